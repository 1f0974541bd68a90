//! Judging the resource pool's messages against a request, and knowing when to stop.
//!
//! [`judge`] compares one message with one request: *pass on*, *re-queue* (it may suit another
//! request) or *discard* (no request can use it). A [`QueueScan`] is the memory of one attempt:
//! which ids it has seen, how often, at which generation. The pool is *globally* exhausted when the
//! queue came back empty and *locally* when it only repeats itself. Either way the attempt then
//! asks the class directory once, because an empty poll can be false and a re-queue hides a machine
//! for a while.
//!
//! Not here: receiving, deleting and sending (`bullpen-engine`), or claiming (`claim`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::ids::{Generation, InstanceId};
use crate::job::OnlyUnused;
use crate::limits::Limits;
use crate::message::{self, Advert, Decoded, MessageError};
use crate::request::Request;
use crate::sabotage;
use crate::time::Timestamp;

/// Why a message goes back for other requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequeueWhy {
    /// The machine's type matches none of the request's patterns.
    TypeNotAllowed,
    /// The machine is spot and the request wants on-demand, or the reverse.
    UsageDiffers,
    /// Code of another trust group ran on the machine.
    TrustDiffers,
    /// The request gets only unused machines.
    UsedBefore(OnlyUnused),
    /// A newer version wrote the message.
    UnknownVersion,
}

/// Why a message is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiscardWhy {
    /// The message cannot be read.
    Unreadable,
    /// The message does not say how the machine is paid for.
    UsageMissing,
    /// The message is in another class's queue.
    WrongClass,
    /// The machine has fewer or more vCPUs than the class.
    VcpuOutsideClass,
    /// The machine has less memory than the class.
    MemoryBelowClass,
    /// The machine was built from another specification than a new machine would be.
    BuiltOtherwise,
    /// The machine's idle time is over, or so nearly over that no worker may claim it.
    Expired,
    /// This attempt has already read something as new, or newer, about the machine.
    Outdated,
}

impl RequeueWhy {
    /// The reason code, as logged and counted.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TypeNotAllowed => "type-not-allowed",
            Self::UsageDiffers => "usage-differs",
            Self::TrustDiffers => "trust-differs",
            Self::UsedBefore(why) => why.as_str(),
            Self::UnknownVersion => "unknown-version",
        }
    }
}

impl fmt::Display for RequeueWhy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl DiscardWhy {
    /// The reason code, as logged and counted.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable",
            Self::UsageMissing => "usage-missing",
            Self::WrongClass => "wrong-class",
            Self::VcpuOutsideClass => "vcpu-outside-class",
            Self::MemoryBelowClass => "memory-below-class",
            Self::BuiltOtherwise => "built-otherwise",
            Self::Expired => "expired",
            Self::Outdated => "outdated",
        }
    }
}

impl fmt::Display for DiscardWhy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The decision about one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdvertVerdict {
    /// A candidate for this request.
    PassOn,
    /// Goes back into the queue, exactly as it was.
    Requeue(RequeueWhy),
    /// Dropped.
    Discard(DiscardWhy),
}

/// Judges one idle instance against one request. No memory, no I/O.
pub fn judge(advert: &Advert, request: &Request, limits: &Limits, now: Timestamp) -> AdvertVerdict {
    let class = &request.class;
    if advert.class != class.name {
        AdvertVerdict::Discard(DiscardWhy::WrongClass)
    } else if !class.vcpu.contains(advert.vcpu) {
        AdvertVerdict::Discard(DiscardWhy::VcpuOutsideClass)
    } else if advert.memory_mib < class.memory_mib_min {
        AdvertVerdict::Discard(DiscardWhy::MemoryBelowClass)
    } else if advert.deadline <= now.after(limits.not_claimable_before_deadline)
        && !sabotage!("claims-what-has-expired")
    {
        AdvertVerdict::Discard(DiscardWhy::Expired)
    } else if advert.pool.is_none()
        && !request.fits(advert.spec_hash.as_ref())
        && !sabotage!("judge-ignores-the-image")
    {
        // A pool's rollout decides how long its old machines stand by.
        AdvertVerdict::Discard(DiscardWhy::BuiltOtherwise)
    } else if advert.usage != request.usage && !sabotage!("judge-ignores-usage") {
        AdvertVerdict::Requeue(RequeueWhy::UsageDiffers)
    } else if !request.allows(&advert.instance_type) && !sabotage!("judge-ignores-types") {
        AdvertVerdict::Requeue(RequeueWhy::TypeNotAllowed)
    } else if !request.trusts(advert.trust.as_ref()) && !sabotage!("judge-ignores-trust") {
        AdvertVerdict::Requeue(RequeueWhy::TrustDiffers)
    } else if let Some(why) = request.only_unused.filter(|_| advert.tier.is_used()) {
        AdvertVerdict::Requeue(RequeueWhy::UsedBefore(why))
    } else {
        AdvertVerdict::PassOn
    }
}

/// Why a scan of the queue is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exhausted {
    /// The queue came back empty.
    Globally,
    /// The queue only repeats what this attempt has already refused.
    Locally,
}

/// The result of judging one batch of messages, in order of arrival.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct JudgedBatch {
    /// Candidates.
    pub pass_on: Vec<Advert>,
    /// Texts to send back as they were, each with its reason.
    pub requeue: Vec<(String, RequeueWhy)>,
    /// How many were dropped, by reason.
    pub discarded: BTreeMap<DiscardWhy, u32>,
    /// Set if the scan is over.
    pub exhausted: Option<Exhausted>,
}

/// The memory of one attempt at one class's queue.
#[derive(Debug, Default)]
pub struct QueueScan {
    /// How often each machine's message was received, by the machine's id, or by its text if
    /// unreadable.
    sightings: BTreeMap<String, u32>,
    /// The keys of messages that already went back for other requests.
    refused: BTreeSet<String>,
    /// The newest generation read about each machine, for every verdict.
    newest: BTreeMap<InstanceId, Generation>,
    /// The generation each machine was last offered at; `None` while only messages without a
    /// generation named it.
    offered: BTreeMap<InstanceId, Option<Generation>>,
    /// How many idle machines were not for this request when the queue was exhausted, by reason.
    unfit: BTreeMap<&'static str, u32>,
}

impl QueueScan {
    /// Judges a batch as it was received.
    pub fn batch(
        &mut self,
        bodies: Vec<String>,
        request: &Request,
        limits: &Limits,
        now: Timestamp,
    ) -> JudgedBatch {
        let mut judged = JudgedBatch::default();
        if bodies.is_empty() {
            judged.exhausted = Some(Exhausted::Globally);
            return judged;
        }
        let mut repeats_only = true;
        for body in bodies {
            let (key, verdict, advert) = self.read(&body, request, limits, now);
            let seen = self.sightings.entry(key.clone()).or_insert(0);
            *seen += 1;
            if *seen > limits.sightings_max {
                judged.exhausted = Some(Exhausted::Locally);
            }
            repeats_only &= verdict != AdvertVerdict::PassOn && self.refused.contains(&key);
            match verdict {
                AdvertVerdict::PassOn => judged.pass_on.extend(advert),
                AdvertVerdict::Requeue(why) => {
                    self.refused.insert(key);
                    judged.requeue.push((body, why));
                }
                AdvertVerdict::Discard(why) => *judged.discarded.entry(why).or_insert(0) += 1,
            }
        }
        if repeats_only {
            judged.exhausted = Some(Exhausted::Locally);
        }
        judged
    }

    fn read(
        &mut self,
        body: &str,
        request: &Request,
        limits: &Limits,
        now: Timestamp,
    ) -> (String, AdvertVerdict, Option<Advert>) {
        let advert = match message::decode(body) {
            Ok(Decoded::Advert(advert)) => advert,
            Ok(Decoded::Newer { .. }) => {
                let verdict = AdvertVerdict::Requeue(RequeueWhy::UnknownVersion);
                return (body.to_owned(), verdict, None);
            }
            Err(MessageError::UsageMissing) => {
                return (body.to_owned(), AdvertVerdict::Discard(DiscardWhy::UsageMissing), None);
            }
            Err(_) => {
                return (body.to_owned(), AdvertVerdict::Discard(DiscardWhy::Unreadable), None);
            }
        };
        let key = advert.id.as_str().to_owned();
        let outdated = self.is_outdated(&advert);
        let verdict = match judge(&advert, request, limits, now) {
            AdvertVerdict::PassOn if outdated || !self.is_news(&advert) => {
                AdvertVerdict::Discard(DiscardWhy::Outdated)
            }
            // No worker can claim at an old generation, so a re-queued message would only go round.
            AdvertVerdict::Requeue(_) if outdated => AdvertVerdict::Discard(DiscardWhy::Outdated),
            verdict => verdict,
        };
        if verdict == AdvertVerdict::PassOn {
            self.offered.insert(advert.id.clone(), advert.generation);
        }
        if let Some(generation) = advert.generation {
            let newest = self.newest.entry(advert.id.clone()).or_insert(generation);
            *newest = generation.max(*newest);
        }
        (key, verdict, Some(advert))
    }

    /// A machine offered at some generation is news again only at a later generation.
    fn is_news(&self, advert: &Advert) -> bool {
        self.offered.get(&advert.id).is_none_or(|known| advert.generation > *known)
    }

    /// Whether a newer message about the machine was read. A repeated message is not outdated.
    fn is_outdated(&self, advert: &Advert) -> bool {
        let newest = self.newest.get(&advert.id);
        advert.generation.zip(newest).is_some_and(|(generation, newest)| generation < *newest)
    }

    /// The candidates a class directory still holds after the queue was exhausted: those that match
    /// and that this attempt has not been offered yet.
    pub fn confirm(
        &mut self,
        directory: Vec<Advert>,
        request: &Request,
        limits: &Limits,
        now: Timestamp,
    ) -> Vec<Advert> {
        let mut found = Vec::new();
        for advert in directory {
            let why = match judge(&advert, request, limits, now) {
                AdvertVerdict::PassOn if self.is_news(&advert) => {
                    self.offered.insert(advert.id.clone(), advert.generation);
                    found.push(advert);
                    continue;
                }
                // It was offered already, and another worker was faster.
                AdvertVerdict::PassOn => continue,
                AdvertVerdict::Requeue(why) => why.as_str(),
                AdvertVerdict::Discard(why) => why.as_str(),
            };
            *self.unfit.entry(why).or_insert(0) += 1;
        }
        found
    }

    /// How many idle machines did not suit this request when the queue was exhausted, by the codes
    /// of [`RequeueWhy`] and [`DiscardWhy`].
    pub const fn unfit(&self) -> &BTreeMap<&'static str, u32> {
        &self.unfit
    }
}

#[cfg(test)]
mod tests;
