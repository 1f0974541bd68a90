//! The queues' model: standard and FIFO queues with delay, visibility, dead letters, retention and
//! deduplication.
//!
//! In bad weather a short poll is falsely empty, a standard message is delivered twice, and the
//! depth is slightly wrong. *Weak* queues also deliver standard messages in any order. The levers
//! [`QueuesModel::answer_empty_next`] and [`QueuesModel::deliver_next_twice`] act once.
//!
//! Not here: the content of messages.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bullpen_core::ids::{QueueName, Receipt};
use bullpen_core::limits::MESSAGES_PER_CALL_MAX;
use bullpen_core::ports::{Delivery, Depth, Fault, Outgoing, QueueSpec, Queues};
use bullpen_core::time::Timestamp;
use tokio::sync::Notify;

use super::locked;
use crate::clock::{SimClock, pass};
use crate::wire::{Reply, Wire};

mod queue;
mod state;

pub use state::QueuesState;

/// One process's handle on a world's queues.
#[derive(Clone, Debug)]
pub struct QueuesModel {
    state: Arc<Mutex<QueuesState>>,
    wire: Wire,
    clock: SimClock,
}

impl QueuesModel {
    /// A new world's queues.
    pub fn new(wire: Wire, clock: SimClock) -> Self {
        Self { state: Arc::default(), wire, clock }
    }

    /// A new world's queues, which deliver standard messages in any order.
    pub fn weak(wire: Wire, clock: SimClock) -> Self {
        let model = Self::new(wire, clock);
        model.set_weak(true);
        model
    }

    /// Another process's handle on the same queues.
    #[must_use]
    pub fn for_process(&self, wire: Wire, clock: SimClock) -> Self {
        Self { state: Arc::clone(&self.state), wire, clock }
    }

    /// Sets whether standard messages come in any order.
    pub fn set_weak(&self, weak: bool) {
        locked(&self.state).weak = weak;
    }

    /// Lever: the next receive from any queue is empty.
    pub fn answer_empty_next(&self) {
        locked(&self.state).empty_next = true;
    }

    /// Lever: the next message received from a standard queue is delivered again later.
    pub fn deliver_next_twice(&self) {
        locked(&self.state).twice_next = true;
    }

    /// How many messages were received from all queues.
    pub fn delivered(&self) -> u64 {
        locked(&self.state).delivered
    }

    /// Lever: a queue is deleted, and not by the engine.
    pub fn delete_now(&self, queue: &str) {
        // A queue that is not there needs no deletion.
        let _ = locked(&self.state).remove(&QueueName::new(queue));
    }

    /// How many queues there are.
    pub fn made(&self) -> usize {
        locked(&self.state).made()
    }

    /// The exact depth of a queue, without a call.
    pub fn depth_now(&self, queue: &QueueName) -> Option<Depth> {
        locked(&self.state).depth(self.clock.true_now(), queue).ok()
    }

    async fn trip<T: Send + 'static>(
        &self,
        effect: impl FnOnce(&mut QueuesState, Timestamp) -> T + Send + 'static,
    ) -> Reply<T> {
        let (state, clock) = (Arc::clone(&self.state), self.clock.clone());
        self.wire.call("queues", move || effect(&mut locked(&state), clock.true_now())).await
    }

    async fn ask<T: Send + 'static>(
        &self,
        effect: impl FnOnce(&mut QueuesState, Timestamp) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        self.trip(effect).await.or_unavailable()?
    }

    async fn try_receive(
        &self,
        queue: &QueueName,
        max: usize,
        short_poll: bool,
    ) -> Result<Vec<Delivery>, Fault> {
        let (queue, max, wire) = (queue.clone(), max.min(MESSAGES_PER_CALL_MAX), self.wire.clone());
        let weather = wire.weather();
        let falsely_empty = short_poll && wire.dice().chance(weather.false_empty);
        if falsely_empty {
            wire.happened("poll falsely empty");
        }
        self.ask(move |state, now| {
            if falsely_empty || std::mem::take(&mut state.empty_next) {
                // A receive from an unknown queue still fails.
                return state.depth(now, &queue).map(|_| Vec::new());
            }
            state.receive(now, &queue, max, &wire, weather.deliver_twice)
        })
        .await
    }
}

/// Refuses more messages than a queue service takes in one call.
fn checked(count: usize) -> Result<(), Fault> {
    if count <= MESSAGES_PER_CALL_MAX {
        Ok(())
    } else {
        Err(Fault::Unclassified("TooManyEntriesInBatchRequest".into()))
    }
}

impl Queues for QueuesModel {
    async fn ensure(&self, spec: &QueueSpec) -> Result<(), Fault> {
        let spec = spec.clone();
        self.ask(move |state, _| state.ensure(spec)).await
    }

    async fn remove(&self, queue: &QueueName) -> Result<(), Fault> {
        let queue = queue.clone();
        self.ask(move |state, _| state.remove(&queue)).await
    }

    async fn send(
        &self,
        queue: &QueueName,
        messages: &[Outgoing],
    ) -> Result<Vec<Result<(), Fault>>, Fault> {
        checked(messages.len())?;
        let (queue, count, messages) = (queue.clone(), messages.len(), messages.to_vec());
        match self.trip(move |state, now| state.send(now, &queue, messages)).await {
            Reply::Answered(answers) => answers,
            Reply::Refused(fault) => Err(fault),
            // The messages may have landed, so this must not say that none was sent.
            Reply::Lost => Ok(vec![Err(Fault::unavailable("no answer")); count]),
        }
    }

    async fn receive(
        &self,
        queue: &QueueName,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<Delivery>, Fault> {
        if wait.is_zero() {
            return self.try_receive(queue, max, true).await;
        }
        let until = self.clock.elapsed() + wait;
        loop {
            let changed = locked(&self.state).changed(queue)?;
            let changed = changed.notified();
            // Registered before the receive: a message sent meanwhile must not be missed.
            tokio::pin!(changed);
            changed.as_mut().enable();
            let received = self.try_receive(queue, max, false).await?;
            let left = until.saturating_sub(self.clock.elapsed());
            if !received.is_empty() || left.is_zero() {
                return Ok(received);
            }
            let appears = locked(&self.state).appears(self.clock.true_now(), queue);
            tokio::select! {
                biased;
                () = changed => {}
                () = pass(appears.map_or(left, |appears| left.min(appears))) => {}
            }
        }
    }

    async fn delete(&self, queue: &QueueName, receipts: &[Receipt]) -> Result<(), Fault> {
        checked(receipts.len())?;
        let (queue, receipts) = (queue.clone(), receipts.to_vec());
        self.ask(move |state, now| state.delete(now, &queue, &receipts)).await
    }

    async fn defer(
        &self,
        queue: &QueueName,
        receipt: &Receipt,
        hidden: Duration,
    ) -> Result<(), Fault> {
        let (queue, receipt) = (queue.clone(), receipt.clone());
        self.ask(move |state, now| state.defer(now, &queue, &receipt, hidden)).await
    }

    async fn depth(&self, queue: &QueueName) -> Result<Depth, Fault> {
        let queue = queue.clone();
        let estimated = self.wire.weather().lag_max > Duration::ZERO;
        let off = if estimated { self.wire.dice().below(3) } else { 1 };
        let exact = self.ask(move |state, now| state.depth(now, &queue)).await?;
        // One too few, exact, or one too many.
        Ok(Depth { visible: (exact.visible + off).saturating_sub(1), ..exact })
    }
}

/// Wakes the receivers that wait at a queue.
type Changed = Arc<Notify>;
