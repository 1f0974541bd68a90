//! Adverts of idle machines in the resource pool: one as soon as a machine becomes idle, and
//! another only when the queue holds fewer messages than the class has shareable idle records.
//!
//! A lost message costs time, never a machine: a request reads the class directory before it
//! launches anything.
//!
//! Not here: reading messages ([`crate::provision::pickup`]).

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
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
/// [`readvertise`] sends the message, and until then the class directory lists the machine.
pub async fn advertise<P: Ports>(stack: &Stack<P>, record: &Record) {
    let Some(advert) = record.advert() else { return };
    let queue = stack.queue_of(&advert.class);
    let message = Outgoing::now(message::encode(&advert));
    let mut sent = send(stack, &queue, &message).await;
    if sent == Err(Fault::NotFound) {
        // No refresh has run since the class was configured, so it has no queue yet.
        let spec = queue_spec(stack, &advert.class);
        sent = match stack.ports.queues().ensure(&spec).await {
            Ok(()) => send(stack, &queue, &message).await,
            Err(fault) => Err(fault),
        };
    }
    if let Err(fault) = sent {
        tracing::info!(instance_id = %record.id, %fault, "could not advertise an idle machine");
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

/// When this process last advertised each machine, and how long it waits before the next advert.
#[derive(Debug, Default)]
pub struct AdvertMemory {
    classes: Mutex<BTreeMap<ClassName, LastAdverts>>,
}

impl AdvertMemory {
    /// The adverts of a class's `idle` machines that are due now ([`LastAdverts::due`]).
    fn due(
        &self,
        class: &ClassName,
        idle: &[Advert],
        missing: u64,
        first: Duration,
        now: Timestamp,
    ) -> Vec<Advert> {
        let mut classes = self.classes.lock().unwrap_or_else(PoisonError::into_inner);
        classes.entry(class.clone()).or_default().due(idle, missing, first, now)
    }
}

/// The last adverts of one class's machines.
#[derive(Debug, Default)]
struct LastAdverts {
    last: BTreeMap<InstanceId, (Timestamp, Duration)>,
}

impl LastAdverts {
    /// The adverts of `idle` whose wait is over, at most `missing` of them.
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

/// Advertises again the machines whose messages the queue seems to have lost. Returns how many
/// messages it sent.
pub async fn readvertise<P: Ports>(
    stack: &Stack<P>,
    class: &ClassName,
    memory: &AdvertMemory,
) -> Result<usize, Fault> {
    let queue = stack.queue_of(class);
    let idle = stack.readable(stack.ports.ledger().idle_in(class).await?);
    let depth = stack.ports.queues().depth(&queue).await?.total();
    let missing = u64::try_from(idle.len()).unwrap_or(u64::MAX).saturating_sub(depth);
    let due = memory.due(class, &idle, missing, stack.limits.readvertise, stack.now());
    for batch in due.chunks(MESSAGES_PER_CALL_MAX) {
        let messages: Vec<_> =
            batch.iter().map(|advert| Outgoing::now(message::encode(advert))).collect();
        stack.ports.queues().send(&queue, &messages).await?;
    }
    Ok(due.len())
}
