//! The documents that `refresh` keeps in the ledger for commands that run later on other machines:
//! the stack's parameters, the tokens with which runners register and remove themselves, and the
//! observations of earlier sweeps.
//!
//! They are in the collection [`COLLECTION`], except the tokens: those have a collection of their
//! own, so that a policy can exclude it. All are versioned, and absent until the first refresh.
//!
//! Not here: storing them (`bullpen-engine`), the inputs they come from (`bullpen`), or the document
//! of a fleet's site ([`crate::site`]).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::class::RunnerClass;
use crate::ids::{ClassName, RunnerName};
use crate::limits::Limits;
use crate::mailbox::Secret;
use crate::time::Timestamp;

/// The collection of every document but the tokens.
pub const COLLECTION: &str = "stack";
/// The collection of the tokens. Older versions kept them in [`COLLECTION`] under the same name.
pub const TOKENS: &str = "tokens";

/// The settings that a stack's commands share. An absent setting is decided elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameters {
    /// How long a released machine waits for its next owner, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_time_s: Option<u64>,
    /// How long an owner may keep a machine without a job, in minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_runtime_min: Option<u64>,
    /// A script that every machine runs before its first runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre_runner_script: Option<String>,
    /// The named classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<Vec<RunnerClass>>,
    /// The version of GitHub's runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner_version: Option<String>,
}

impl Parameters {
    /// These settings, and those of `before` where these are absent.
    #[must_use]
    pub fn over(self, before: Self) -> Self {
        Self {
            idle_time_s: self.idle_time_s.or(before.idle_time_s),
            max_runtime_min: self.max_runtime_min.or(before.max_runtime_min),
            pre_runner_script: self.pre_runner_script.or(before.pre_runner_script),
            classes: self.classes.or(before.classes),
            runner_version: self.runner_version.or(before.runner_version),
        }
    }

    /// Puts these settings into `limits`.
    pub fn applied_to(&self, limits: &mut Limits) {
        if let Some(seconds) = self.idle_time_s {
            limits.idle_released = Duration::from_secs(seconds);
        }
        if let Some(minutes) = self.max_runtime_min {
            limits.max_runtime_workflow = Duration::from_secs(minutes.saturating_mul(60));
        }
    }
}

/// Tokens for commands without a credential of their own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptTokens {
    /// The token that registers runners.
    pub registration: Secret,
    /// The token that removes runners.
    pub removal: Secret,
    /// When GitHub minted them.
    pub minted_at: Timestamp,
    /// When the first of them expires.
    pub expires_at: Timestamp,
}

impl KeptTokens {
    /// The useless tokens that `refresh` leaves where older versions kept them: an older command
    /// that reads them reports that they have expired.
    pub fn spent() -> Self {
        Self {
            registration: Secret::new(""),
            removal: Secret::new(""),
            minted_at: Timestamp::EPOCH,
            expires_at: Timestamp::EPOCH,
        }
    }
}

/// The classes that have a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuedClasses {
    /// Their names.
    pub classes: BTreeSet<ClassName>,
}

/// How many offline runners one document holds: a name and a time take some 150 bytes, and an item of
/// DynamoDB at most 400 KB.
pub const SUSPECTS_MAX: usize = 2_000;

/// Runners at GitHub that belong to no machine of the stack, and when each was first seen offline.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfflineRunners {
    /// When each runner was first seen offline, by its name.
    pub since: BTreeMap<RunnerName, Timestamp>,
}

impl OfflineRunners {
    /// The memory after a sweep that saw `offline`, and the runners that were offline for as long
    /// as `grace`, and that no sweep saw online in between. Of many runners it keeps those that it
    /// knows and then some of the others, which have their turn once those are removed.
    pub fn after(
        &self,
        offline: &BTreeSet<RunnerName>,
        grace: Duration,
        now: Timestamp,
    ) -> (Self, Vec<RunnerName>) {
        let (known, new): (Vec<_>, Vec<_>) =
            offline.iter().partition(|name| self.since.contains_key(*name));
        let since: BTreeMap<_, _> = known
            .into_iter()
            .chain(new)
            .take(SUSPECTS_MAX)
            .map(|name| (name.clone(), self.since.get(name).copied().unwrap_or(now)))
            .collect();
        let ghosts =
            since.iter().filter(|(_, since)| now.since(**since) >= grace).map(|(name, _)| name);
        let ghosts = ghosts.cloned().collect();
        (Self { since }, ghosts)
    }
}

/// A document that `refresh` keeps.
pub trait Kept: Serialize + DeserializeOwned {
    /// The collection that holds it.
    const COLLECTION: &'static str = COLLECTION;
    /// Its name there.
    const NAME: &'static str;
}

impl Kept for Parameters {
    const NAME: &'static str = "parameters";
}

impl Kept for KeptTokens {
    const COLLECTION: &'static str = TOKENS;
    const NAME: &'static str = "tokens";
}

impl Kept for QueuedClasses {
    const NAME: &'static str = "queues";
}

impl Kept for OfflineRunners {
    const NAME: &'static str = "suspects";
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "v")]
enum Stored<T> {
    #[serde(rename = "1")]
    V1(T),
}

/// The text of a document to store.
pub fn encode<T: Serialize>(kept: T) -> String {
    serde_json::to_string(&Stored::V1(kept))
        .expect("kept documents have string keys only, so they serialise")
}

/// Reads a stored document.
pub fn decode<T: DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    let Stored::V1(kept) = serde_json::from_str(text)?;
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::at;

    #[test]
    fn what_is_not_said_stays_as_it_was() {
        let before =
            Parameters { idle_time_s: Some(60), max_runtime_min: Some(9), ..Parameters::default() };
        let changed = Parameters { idle_time_s: Some(120), ..Parameters::default() };
        let now = changed.over(before);
        assert_eq!((now.idle_time_s, now.max_runtime_min), (Some(120), Some(9)));
        let mut limits = Limits::DEFAULT;
        now.applied_to(&mut limits);
        assert_eq!(limits.idle_released, Duration::from_secs(120));
        assert_eq!(limits.max_runtime_workflow, Duration::from_secs(540));
    }

    #[test]
    fn everything_kept_is_read_back() {
        let parameters =
            Parameters { pre_runner_script: Some("EOF\n'\"".into()), ..Parameters::default() };
        assert_eq!(decode::<Parameters>(&encode(parameters.clone())).unwrap(), parameters);
        assert_eq!(encode(Parameters::default()), r#"{"v":"1"}"#);
        assert!(decode::<Parameters>(r#"{"v":"2"}"#).is_err());
    }

    #[test]
    fn a_ghost_is_offline_in_two_sweeps_far_enough_apart() {
        let grace = Duration::from_secs(600);
        let (one, two) = (RunnerName::new("one"), RunnerName::new("two"));
        let both = BTreeSet::from([one.clone(), two.clone()]);
        let (first, ghosts) = OfflineRunners::default().after(&both, grace, at(0));
        assert_eq!(ghosts, []);
        let (second, ghosts) = first.after(&BTreeSet::from([one.clone()]), grace, at(300));
        assert_eq!(ghosts, []);
        let (_, ghosts) = second.after(&both, grace, at(600));
        assert_eq!(ghosts, [one], "the other was seen online in between");
    }

    #[test]
    fn however_many_runners_are_offline_their_memory_fits_into_one_item() {
        let grace = Duration::from_secs(600);
        let longest = |number| RunnerName::new(format!("{number:0>64}"));
        let mut offline: BTreeSet<_> = (0..10_000).map(longest).collect();
        let (mut memory, mut removed) = (OfflineRunners::default(), 0);
        for sweep in 0..20 {
            let (next, ghosts) = memory.after(&offline, grace, at(sweep * 600));
            assert!(encode(next.clone()).len() < 350_000);
            for ghost in &ghosts {
                offline.remove(ghost);
            }
            removed += ghosts.len();
            memory = next;
        }
        assert_eq!((removed, offline.len()), (10_000, 0), "each has its turn");
    }
}
