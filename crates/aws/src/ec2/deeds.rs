//! Starting, stopping, ending and tagging, in batches.
//!
//! EC2 refuses a whole batch for one instance that it does not know, or that is in no state for it, and
//! names it. Then nothing was done, and the others are asked for again without it.
//!
//! Not here: launching ([`super::launch`]), or when any of it is done (the engine).

use bullpen_core::ids::InstanceId;
use bullpen_core::limits::IDS_PER_CALL_MAX;
use bullpen_core::ports::{Clock, Fault, Started, StopOrder, Tag};

use super::said::{self, Refused};
use super::{Ec2Fleet, tags};

/// How often a batch is asked for again without those that were refused.
const ROUNDS_MAX: u32 = 4;

fn texts(ids: &[InstanceId]) -> Option<Vec<String>> {
    Some(ids.iter().map(ToString::to_string).collect())
}

fn without(ids: &[InstanceId], refused: &Refused) -> Vec<InstanceId> {
    ids.iter().filter(|id| !refused.ids.contains(*id)).cloned().collect()
}

/// What came of a call: it was done, it was refused for some, or it failed.
enum Sent {
    Done,
    Refused(Refused),
    Failed(Fault),
}

/// Sorts a call's answer.
macro_rules! sent {
    ($call:expr, $ids:expr) => {
        match $call.await {
            Ok(_) => Sent::Done,
            Err(error) => match said::refused(&error, $ids) {
                Some(refused) => Sent::Refused(refused),
                None => Sent::Failed(said::fault(&error)),
            },
        }
    };
}

impl<C: Clock> Ec2Fleet<C> {
    pub(super) async fn start_all(
        &self,
        ids: &[InstanceId],
    ) -> Result<Vec<(InstanceId, Started)>, Fault> {
        let mut answers = Vec::new();
        let mut left: Vec<Vec<InstanceId>> =
            ids.chunks(IDS_PER_CALL_MAX).map(<[InstanceId]>::to_vec).collect();
        while let Some(batch) = left.pop() {
            let call = self.client.start_instances().set_instance_ids(texts(&batch));
            match sent!(call.send(), &batch) {
                Sent::Done => {
                    answers.extend(batch.into_iter().map(|id| (id, Started::Starting)));
                }
                Sent::Refused(refused) => {
                    let rest = without(&batch, &refused);
                    left.extend((!rest.is_empty()).then_some(rest));
                    let fault = not_startable(&refused.code);
                    let failed = refused.ids.into_iter();
                    answers.extend(failed.map(|id| (id, Started::Failed(fault.clone()))));
                }
                Sent::Failed(Fault::NoCapacity) => match &batch[..] {
                    [id] => answers.push((id.clone(), Started::NoCapacity)),
                    // One that there is no room for keeps the others from starting: it is looked for
                    // in halves, because every call counts.
                    many => {
                        let (some, others) = many.split_at(many.len() / 2);
                        left.extend([some.to_vec(), others.to_vec()]);
                    }
                },
                Sent::Failed(fault) => return Err(fault),
            }
        }
        Ok(answers)
    }

    /// Sent once for each machine: what was refused was not done, and is not asked for again.
    pub(super) async fn stop_all(&self, orders: &[StopOrder]) -> Result<(), Fault> {
        let in_time = |order: &&StopOrder| self.clock.now() < order.until;
        let mut ids: Vec<InstanceId> =
            orders.iter().filter(in_time).map(|order| order.id.clone()).collect();
        let mut outcome = match orders.len() - ids.len() {
            0 => Ok(()),
            late => Err(Fault::Denied(format!("{late} stop orders came after their time"))),
        };
        for _ in 0..ROUNDS_MAX {
            if ids.is_empty() {
                break;
            }
            let call = self.client.stop_instances().set_instance_ids(texts(&ids));
            match sent!(call.send(), &ids) {
                Sent::Done => return outcome,
                Sent::Failed(fault) => return Err(fault),
                Sent::Refused(refused) => {
                    if !refused.code.starts_with("InvalidInstanceID") {
                        outcome = Err(Fault::Unclassified(refused.code.clone()));
                    }
                    ids = without(&ids, &refused);
                    // Time has passed with the refusal.
                    let until = |id: &InstanceId| orders.iter().find(|order| order.id == *id);
                    ids.retain(|id| until(id).as_ref().is_some_and(in_time));
                }
            }
        }
        outcome
    }

    /// What EC2 does not know, or has ended, is as it should be.
    pub(super) async fn terminate_all(&self, ids: &[InstanceId]) -> Result<(), Fault> {
        for batch in ids.chunks(IDS_PER_CALL_MAX) {
            let mut batch = batch.to_vec();
            for _ in 0..ROUNDS_MAX {
                if batch.is_empty() {
                    break;
                }
                let call = self.client.terminate_instances().set_instance_ids(texts(&batch));
                match sent!(call.send(), &batch) {
                    Sent::Done => break,
                    Sent::Failed(fault) => return Err(fault),
                    Sent::Refused(refused) => batch = without(&batch, &refused),
                }
            }
        }
        Ok(())
    }

    pub(super) async fn tag_all(&self, ids: &[InstanceId], tag: Tag) -> Result<(), Fault> {
        for batch in ids.chunks(IDS_PER_CALL_MAX) {
            let mut batch = batch.to_vec();
            for _ in 0..ROUNDS_MAX {
                if batch.is_empty() {
                    break;
                }
                let call = self.client.create_tags().set_resources(texts(&batch));
                match sent!(call.tags(tags::later(tag)).send(), &batch) {
                    Sent::Done => break,
                    Sent::Failed(fault) => return Err(fault),
                    Sent::Refused(refused) => batch = without(&batch, &refused),
                }
            }
        }
        Ok(())
    }
}

fn not_startable(code: &str) -> Fault {
    if code.starts_with("InvalidInstanceID") {
        Fault::NotFound
    } else {
        Fault::Unclassified(code.to_owned())
    }
}
