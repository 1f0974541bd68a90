//! Telling the resource pool about idle machines, at once after they become idle and again only
//! when the queue holds fewer messages than there are shareable idle records.
//!
//! A message may be lost: that costs time, never a machine, because the class directory is asked
//! before anything is created.
//!
//! Not here: reading messages ([`crate::provision::pickup`]).

use std::collections::BTreeMap;
use std::time::Duration;

use bullpen_core::ids::{ClassName, InstanceId, QueueName};
use bullpen_core::instance::Record;
use bullpen_core::limits::MESSAGES_PER_CALL_MAX;
use bullpen_core::message::{self, Advert};
use bullpen_core::ports::{Fault, Ledger, Outgoing, Ports, Queues};
use bullpen_core::time::Timestamp;

use crate::Stack;
use crate::refresh::queue_spec;

/// Advertises a machine that has just become idle. A failure is not retried here: the next
/// [`readvertise`] does, and until then the directory has it.
pub async fn advertise<P: Ports>(stack: &Stack<P>, record: &Record) {
    let Some(advert) = record.advert() else { return };
    let queue = stack.queue_of(&advert.class);
    let message = Outgoing::now(message::encode(&advert));
    let mut sent = send(stack, &queue, &message).await;
    if sent == Err(Fault::NotFound) {
        // Nobody has refreshed the stack since the class came.
        let spec = queue_spec(stack, &advert.class);
        sent = match stack.ports.queues().ensure(&spec).await {
            Ok(()) => send(stack, &queue, &message).await,
            Err(fault) => Err(fault),
        };
    }
    if let Err(fault) = sent {
        tracing::info!(instance_id = %record.id, %fault, "not advertised");
    }
}

async fn send<P: Ports>(
    stack: &Stack<P>,
    queue: &QueueName,
    message: &Outgoing,
) -> Result<(), Fault> {
    let answers = stack.ports.queues().send(queue, std::slice::from_ref(message)).await?;
    answers.into_iter().collect()
}

/// When each machine was last advertised by this process, and how long to wait before the next time.
#[derive(Debug, Default)]
pub struct AdvertMemory {
    last: BTreeMap<InstanceId, (Timestamp, Duration)>,
}

impl AdvertMemory {
    /// Those of `idle` whose time has come again, as many as are missing.
    fn due(
        &mut self,
        idle: &[Advert],
        missing: u64,
        first: Duration,
        now: Timestamp,
    ) -> Vec<Advert> {
        self.last.retain(|id, _| idle.iter().any(|advert| advert.id == *id));
        let mut due = Vec::new();
        for advert in idle {
            if u64::try_from(due.len()).unwrap_or(u64::MAX) >= missing {
                break;
            }
            let (last, wait) = self.last.get(&advert.id).copied().unwrap_or((now, Duration::ZERO));
            if now.since(last) >= wait {
                let next = if wait.is_zero() { first } else { wait * 2 };
                self.last.insert(advert.id.clone(), (now, next));
                due.push(advert.clone());
            }
        }
        due
    }
}

/// Advertises again what the queue seems to have lost. Returns how many messages were sent.
pub async fn readvertise<P: Ports>(
    stack: &Stack<P>,
    class: &ClassName,
    memory: &mut AdvertMemory,
) -> Result<usize, Fault> {
    let queue = stack.queue_of(class);
    let idle = stack.ports.ledger().idle_in(class).await?;
    let depth = stack.ports.queues().depth(&queue).await?.total();
    let missing = u64::try_from(idle.len()).unwrap_or(u64::MAX).saturating_sub(depth);
    let due = memory.due(&idle, missing, stack.limits.readvertise, stack.now());
    for batch in due.chunks(MESSAGES_PER_CALL_MAX) {
        let messages: Vec<_> =
            batch.iter().map(|advert| Outgoing::now(message::encode(advert))).collect();
        stack.ports.queues().send(&queue, &messages).await?;
    }
    Ok(due.len())
}
