//! Start, stop, terminate and tag instances, in batches.
//!
//! EC2 refuses a whole batch because of one instance that is unknown, in the wrong state or denied,
//! and its error names the instance. Nothing was done then, so the others are sent again without it.
//! If the error names no instance, the batch is split in halves until the culprit is alone.
//!
//! Not here: launching ([`super::launch`]), or when to do any of this (the engine).

use std::collections::BTreeSet;

use bullpen_core::ids::InstanceId;
use bullpen_core::limits::IDS_PER_CALL_MAX;
use bullpen_core::ports::{Clock, Fault, StartOutcome, StopOrder, Tag};

use super::answers::{self, PartialRefusal};
use super::{Ec2Fleet, tags};

/// How many refused calls one operation makes at most: enough to find several culprits in a batch.
/// If EC2 refuses every instance, the operation must not make a call for each.
const REFUSALS_MAX: usize = 32;

/// Batches still to be sent. Every refusal leaves fewer or smaller batches, so the loop ends.
struct Left {
    batches: Vec<Vec<InstanceId>>,
    refusals: usize,
}

impl Left {
    fn new(ids: &[InstanceId]) -> Self {
        let batches = ids.chunks(IDS_PER_CALL_MAX).map(<[InstanceId]>::to_vec).collect();
        Self { batches, refusals: 0 }
    }

    fn next(&mut self) -> Option<Vec<InstanceId>> {
        self.batches.pop()
    }

    /// Queues the batch again without the instances that EC2 refused, and returns those.
    fn refused(&mut self, batch: Vec<InstanceId>, refused: PartialRefusal) -> BTreeSet<InstanceId> {
        self.refusals += 1;
        if self.refusals >= REFUSALS_MAX {
            return batch.into_iter().collect();
        }
        if refused.ids.is_empty() {
            return self.halve(batch).into_iter().collect();
        }
        let rest = batch.into_iter().filter(|id| !refused.ids.contains(id)).collect::<Vec<_>>();
        self.batches.extend((!rest.is_empty()).then_some(rest));
        refused.ids
    }

    /// As [`Left::refused`]; a denial of instances becomes the outcome.
    fn note_denied(
        &mut self,
        batch: Vec<InstanceId>,
        refused: PartialRefusal,
        outcome: &mut Result<(), Fault>,
    ) {
        let code = refused.code.clone();
        let ids = self.refused(batch, refused);
        if answers::is_denied(&code) && !ids.is_empty() {
            *outcome = Err(answers::denied(&code, &ids));
        }
    }

    /// Queues a batch in halves because EC2 did not name the refused instance; returns the instance
    /// if the batch holds only one.
    fn halve(&mut self, mut batch: Vec<InstanceId>) -> Option<InstanceId> {
        if batch.len() > 1 {
            let half = batch.split_off(batch.len() / 2);
            self.batches.extend([half, batch]);
            return None;
        }
        batch.pop()
    }
}

fn texts(ids: &[InstanceId]) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}

/// The outcome of one call.
enum Sent {
    Done,
    Refused(PartialRefusal),
    Failed(Fault),
}

impl Sent {
    /// Treats an unclassified error as a refusal that names no instance: the halves find the
    /// instance and serve the others.
    fn with_unnamed_refused(self) -> Self {
        match self {
            Self::Failed(Fault::Unclassified(code)) => {
                Self::Refused(PartialRefusal { code, ids: BTreeSet::new() })
            }
            sent => sent,
        }
    }
}

/// Sends the call and sorts its answer.
macro_rules! sent {
    ($call:expr, $ids:expr) => {
        match $call.await {
            Ok(_) => Sent::Done,
            Err(error) => match answers::refused(&error, $ids) {
                Some(refused) => Sent::Refused(refused),
                None => Sent::Failed(answers::fault(&error)),
            },
        }
    };
}

impl<C: Clock> Ec2Fleet<C> {
    pub(super) async fn start_all(
        &self,
        ids: &[InstanceId],
    ) -> Result<Vec<(InstanceId, StartOutcome)>, Fault> {
        let (mut answers, mut left) = (Vec::new(), Left::new(ids));
        while let Some(batch) = left.next() {
            let call = self.client.start_instances().set_instance_ids(Some(texts(&batch)));
            match sent!(call.send(), &batch).with_unnamed_refused() {
                Sent::Done => {
                    answers.extend(batch.into_iter().map(|id| (id, StartOutcome::Starting)));
                }
                Sent::Refused(refused) => {
                    let code = refused.code.clone();
                    for id in left.refused(batch, refused) {
                        let failed = StartOutcome::Failed(not_startable(&code, &id));
                        answers.push((id, failed));
                    }
                }
                // One instance without capacity keeps the whole batch from starting.
                Sent::Failed(Fault::NoCapacity) => {
                    let none = left.halve(batch);
                    answers.extend(none.map(|id| (id, StartOutcome::NoCapacity)));
                }
                Sent::Failed(fault) => return Err(fault),
            }
        }
        Ok(answers)
    }

    /// Sends each order once: a refused stop is not sent again.
    pub(super) async fn stop_all(&self, orders: &[StopOrder]) -> Result<(), Fault> {
        let in_time = |order: &&StopOrder| self.clock.now() < order.until;
        let ids: Vec<InstanceId> = orders.iter().map(|order| order.id.clone()).collect();
        let (mut outcome, mut left) = (Ok(()), Left::new(&ids));
        while let Some(batch) = left.next() {
            // Every call took time: drop orders that are now too late.
            let order = |id: &InstanceId| orders.iter().find(|order| order.id == *id);
            let (batch, late): (Vec<_>, Vec<_>) =
                batch.into_iter().partition(|id| order(id).as_ref().is_some_and(in_time));
            if !late.is_empty() {
                let late = format!("{} stop orders were too late to send", late.len());
                outcome = Err(Fault::Denied(late));
            }
            if batch.is_empty() {
                continue;
            }
            let call = self.client.stop_instances().set_instance_ids(Some(texts(&batch)));
            match sent!(call.send(), &batch) {
                Sent::Done => {}
                Sent::Failed(fault) => return Err(fault),
                Sent::Refused(refused) => {
                    let code = refused.code.clone();
                    let not_stopped = left.refused(batch, refused);
                    if let Some(first) = not_stopped.first()
                        && !is_unknown(&code)
                    {
                        outcome = Err(not_startable(&code, first));
                    }
                }
            }
        }
        outcome
    }

    /// Terminates instances. Unknown and terminated ones count as done; denied ones are the fault,
    /// after the others are terminated.
    pub(super) async fn terminate_all(&self, ids: &[InstanceId]) -> Result<(), Fault> {
        let (mut outcome, mut left) = (Ok(()), Left::new(ids));
        while let Some(batch) = left.next() {
            let call = self.client.terminate_instances().set_instance_ids(Some(texts(&batch)));
            match sent!(call.send(), &batch) {
                Sent::Done => {}
                Sent::Failed(fault) => return Err(fault),
                Sent::Refused(refused) => left.note_denied(batch, refused, &mut outcome),
            }
        }
        outcome
    }

    /// Tags instances. Unknown ones count as done; denied ones are the fault, after the others are
    /// tagged.
    pub(super) async fn tag_all(&self, ids: &[InstanceId], tag: Tag) -> Result<(), Fault> {
        let (mut outcome, mut left) = (Ok(()), Left::new(ids));
        while let Some(batch) = left.next() {
            let call = self.client.create_tags().set_resources(Some(texts(&batch)));
            match sent!(call.tags(tags::later(tag)).send(), &batch) {
                Sent::Done => {}
                Sent::Failed(fault) => return Err(fault),
                Sent::Refused(refused) => left.note_denied(batch, refused, &mut outcome),
            }
        }
        outcome
    }
}

fn is_unknown(code: &str) -> bool {
    code.starts_with("InvalidInstanceID")
}

fn not_startable(code: &str, id: &InstanceId) -> Fault {
    if is_unknown(code) {
        Fault::NotFound
    } else if answers::is_denied(code) {
        answers::denied(code, [id])
    } else {
        Fault::Unclassified(code.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(numbers: std::ops::Range<u32>) -> Vec<InstanceId> {
        numbers.map(|number| InstanceId::new(format!("i-{number}"))).collect()
    }

    fn refused(ids: &[InstanceId]) -> PartialRefusal {
        PartialRefusal {
            code: "IncorrectInstanceState".to_owned(),
            ids: ids.iter().cloned().collect(),
        }
    }

    #[test]
    fn what_is_named_is_left_out_of_the_next_call() {
        let mut left = Left::new(&ids(0..3));
        let batch = left.next().expect("the batch is queued");
        assert_eq!(left.refused(batch, refused(&ids(1..2))), ids(1..2).into_iter().collect());
        let batch = left.next().expect("the rest is queued");
        assert_eq!(batch, [&ids(0..1)[..], &ids(2..3)].concat());
        left.refused(batch.clone(), refused(&batch));
        assert_eq!(left.next(), None, "nothing is queued again");
    }

    #[test]
    fn who_is_not_named_is_found_by_halves() {
        let (mut left, mut found, mut calls) = (Left::new(&ids(0..50)), Vec::new(), 0);
        let (strange, mut done) = (InstanceId::new("i-33"), Vec::new());
        while let Some(batch) = left.next() {
            calls += 1;
            if batch.contains(&strange) {
                found.extend(left.refused(batch, refused(&[])));
            } else {
                done.extend(batch);
            }
        }
        assert_eq!((found, done.len()), (vec![strange], 49));
        assert!(calls <= 13, "{calls}");
    }

    #[test]
    fn a_refusal_of_everything_is_not_asked_about_for_each() {
        let (mut left, mut found, mut calls) = (Left::new(&ids(0..50)), BTreeSet::new(), 0);
        while let Some(batch) = left.next() {
            calls += 1;
            found.extend(left.refused(batch, refused(&[])));
        }
        assert_eq!(found.len(), 50);
        assert!(calls <= 50, "{calls}");
    }
}
