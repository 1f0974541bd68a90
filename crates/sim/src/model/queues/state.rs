//! All queues by name, and the one rule that spans two queues: dead letters.
//!
//! Not here: one queue's own rules (`queue`).

use std::collections::BTreeMap;
use std::time::Duration;

use bullpen_core::ids::{QueueName, Receipt};
use bullpen_core::ports::{Delivery, Depth, Fault, Outgoing, QueueKind, QueueSpec};
use bullpen_core::time::Timestamp;

use super::Changed;
use super::queue::{ModelQueue, ReceiveTerms};
use crate::wire::Wire;

/// The state of all queues.
#[derive(Debug, Default)]
pub struct QueuesState {
    queues: BTreeMap<QueueName, ModelQueue>,
    pub(super) weak: bool,
    pub(super) empty_next: bool,
    pub(super) twice_next: bool,
    pub(super) delivered: u64,
}

impl QueuesState {
    fn queue(&mut self, now: Timestamp, name: &QueueName) -> Result<&mut ModelQueue, Fault> {
        let queue = self.queues.get_mut(name).ok_or(Fault::NotFound)?;
        queue.catch_up(now);
        Ok(queue)
    }

    pub(super) fn changed(&self, name: &QueueName) -> Result<Changed, Fault> {
        self.queues.get(name).map(ModelQueue::changed).ok_or(Fault::NotFound)
    }

    /// How long until a hidden message appears by itself.
    pub(super) fn appears(&self, now: Timestamp, name: &QueueName) -> Option<Duration> {
        self.queues.get(name)?.next_appears().map(|at| at.since(now))
    }

    /// Creates or changes a queue as described; its kind cannot change.
    pub fn ensure(&mut self, spec: QueueSpec) -> Result<(), Fault> {
        match self.queues.get_mut(&spec.name) {
            Some(queue) if queue.spec.kind != spec.kind => {
                Err(Fault::Unclassified("QueueNameExists".into()))
            }
            Some(queue) => {
                queue.spec = spec;
                Ok(())
            }
            None => {
                self.queues.insert(spec.name.clone(), ModelQueue::new(spec));
                Ok(())
            }
        }
    }

    /// Deletes a queue and its messages.
    pub fn remove(&mut self, name: &QueueName) -> Result<(), Fault> {
        let removed = self.queues.remove(name).ok_or(Fault::NotFound)?;
        // Waiting receivers must find out that the queue is gone.
        removed.changed().notify_waiters();
        Ok(())
    }

    /// How many queues there are.
    pub fn made(&self) -> usize {
        self.queues.len()
    }

    /// Sends; one answer per message.
    pub fn send(
        &mut self,
        now: Timestamp,
        name: &QueueName,
        messages: Vec<Outgoing>,
    ) -> Result<Vec<Result<(), Fault>>, Fault> {
        let queue = self.queue(now, name)?;
        Ok(messages.into_iter().map(|message| queue.send(now, message)).collect())
    }

    /// Receives ready messages.
    pub fn receive(
        &mut self,
        now: Timestamp,
        name: &QueueName,
        max: usize,
        wire: &Wire,
        deliver_twice: u32,
    ) -> Result<Vec<Delivery>, Fault> {
        let dead_letters = self.queues.get(name).and_then(|queue| queue.spec.dead_letters.clone());
        // A queue whose dead-letter queue does not exist keeps its messages.
        let dead_letters = dead_letters.filter(|(letters, _)| self.queues.contains_key(letters));
        let mut terms = ReceiveTerms {
            receives_max: dead_letters.as_ref().map(|(_, max)| *max),
            wire,
            any_order: self.weak,
            deliver_twice,
            twice_next: self.twice_next,
        };
        let queue = self.queue(now, name)?;
        terms.any_order &= queue.spec.kind == QueueKind::Standard;
        let (received, dead) = queue.receive(now, max, &mut terms);
        self.twice_next = terms.twice_next;
        self.delivered += u64::try_from(received.len()).unwrap_or(u64::MAX);
        if let Some((letters, _)) = dead_letters
            && let Ok(letters) = self.queue(now, &letters)
        {
            for message in dead {
                letters.bury(now, message);
            }
        }
        Ok(received)
    }

    /// Deletes received messages; stale receipts change nothing.
    pub fn delete(
        &mut self,
        now: Timestamp,
        name: &QueueName,
        receipts: &[Receipt],
    ) -> Result<(), Fault> {
        let queue = self.queue(now, name)?;
        for receipt in receipts {
            queue.delete(receipt);
        }
        Ok(())
    }

    /// Hides a received message for this long from now.
    pub fn defer(
        &mut self,
        now: Timestamp,
        name: &QueueName,
        receipt: &Receipt,
        hidden: Duration,
    ) -> Result<(), Fault> {
        self.queue(now, name)?.defer(now, receipt, hidden);
        Ok(())
    }

    /// The exact depth.
    pub fn depth(&mut self, now: Timestamp, name: &QueueName) -> Result<Depth, Fault> {
        self.queue(now, name).map(|queue| queue.depth())
    }
}
