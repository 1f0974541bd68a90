//! The pickup manager: one per attempt, shared by its claim workers.
//!
//! It receives as many messages as workers wait for, deletes them at once so that concurrent
//! requests do not try the same machines, and judges them in memory. When the queue is exhausted,
//! it reads the class directory once and then closes.
//!
//! A crash loses the messages it holds, never a machine: the records are still idle, the directory
//! still lists them, and refresh advertises them again.
//!
//! Not here: judging (`core::pickup`), claiming ([`super::worker`]).

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bullpen_core::limits::MESSAGES_PER_CALL_MAX;
use bullpen_core::message::{self, Advert};
use bullpen_core::pickup::{JudgedBatch, QueueScan};
use bullpen_core::ports::{Fault, Ledger, Outgoing, Ports, Queues};
use bullpen_core::request::Request;
use bullpen_core::sabotage;
use bullpen_core::time::Timestamp;

use crate::Stack;
use crate::retry::retry_until;

/// Hands candidates to the workers of one attempt.
#[derive(Debug)]
pub struct PickupManager<'s, P> {
    stack: &'s Stack<P>,
    request: &'s Request,
    /// How many workers have no candidate: as many messages are worth receiving.
    unserved: AtomicUsize,
    state: tokio::sync::Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    scan: QueueScan,
    ready: VecDeque<Candidate>,
    closed: bool,
}

#[derive(Debug)]
struct Candidate {
    advert: Advert,
    /// Whether its message came from the queue; it goes back there if no worker needs it.
    from_queue: bool,
}

impl<'s, P: Ports> PickupManager<'s, P> {
    /// Makes the manager of one attempt at this many runners.
    pub fn new(stack: &'s Stack<P>, request: &'s Request, wanted: usize) -> Self {
        let state = tokio::sync::Mutex::new(State::default());
        let unserved = AtomicUsize::new(wanted);
        Self { stack, request, unserved, state }
    }

    /// Until when candidates are worth trying.
    pub(super) const fn deadline(&self) -> Timestamp {
        self.request.deadline
    }

    /// The next candidate. `None`: no worker of the attempt will get another.
    pub async fn candidate(&self) -> Result<Option<Advert>, Fault> {
        let candidate = self.next(&mut *self.state.lock().await).await?;
        self.unserved.fetch_sub(usize::from(candidate.is_some()), Ordering::Relaxed);
        Ok(candidate)
    }

    /// Notes that a candidate did not become a runner; its worker will ask for another.
    pub fn came_to_nothing(&self) {
        self.unserved.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes back a candidate that its worker did not try, for another worker or for the queue.
    pub async fn not_wanted(&self, advert: Advert) {
        self.state.lock().await.ready.push_front(Candidate { advert, from_queue: true });
        self.came_to_nothing();
    }

    async fn next(&self, state: &mut State) -> Result<Option<Advert>, Fault> {
        loop {
            if let Some(candidate) = state.ready.pop_front() {
                return Ok(Some(candidate.advert));
            }
            if state.closed {
                return Ok(None);
            }
            let judged = self.judge_batch(state).await?;
            self.send_back(judged.requeue.into_iter().map(|(body, _)| body), true).await;
            state.ready.extend(
                judged.pass_on.into_iter().map(|advert| Candidate { advert, from_queue: true }),
            );
            if judged.exhausted.is_some() {
                self.confirm(state).await?;
                state.closed = true;
            }
        }
    }

    async fn judge_batch(&self, state: &mut State) -> Result<JudgedBatch, Fault> {
        let queue = self.stack.queue_of(&self.request.class.name);
        let wanted = self.unserved.load(Ordering::Relaxed).clamp(1, MESSAGES_PER_CALL_MAX);
        let queues = self.stack.ports.queues();
        let received = match queues.receive(&queue, wanted, Duration::ZERO).await {
            Ok(received) => received,
            // The directory lists the machines that the unreachable queue would have named.
            Err(fault) => {
                tracing::info!(%fault, "could not read the resource pool");
                Vec::new()
            }
        };
        if !received.is_empty() {
            let receipts: Vec<_> =
                received.iter().map(|delivery| delivery.receipt.clone()).collect();
            // If this fails, the messages come back later; the ledger decides about them then.
            if let Err(fault) = queues.delete(&queue, &receipts).await {
                tracing::debug!(%fault, "could not delete received messages");
            }
        }
        let bodies = received.into_iter().map(|delivery| delivery.body).collect();
        let judged = state.scan.batch(bodies, self.request, &self.stack.limits, self.stack.now());
        for (why, count) in &judged.discarded {
            tracing::debug!(%why, count, "pickup manager discarded messages");
        }
        for (_, why) in &judged.requeue {
            tracing::debug!(%why, "pickup manager re-queued a message");
        }
        Ok(judged)
    }

    /// Adds the candidates that only the class directory lists: an empty poll can be false, and a
    /// message that another request re-queued is hidden for a while.
    async fn confirm(&self, state: &mut State) -> Result<(), Fault> {
        if sabotage!("skip-directory-confirmation") {
            return Ok(());
        }
        let class = &self.request.class.name;
        let directory = retry_until(self.stack, self.request.deadline, || {
            self.stack.ports.ledger().idle_in(class)
        })
        .await?;
        let found = state.scan.confirm(
            self.stack.readable(directory),
            self.request,
            &self.stack.limits,
            self.stack.now(),
        );
        state.ready.extend(found.into_iter().map(|advert| Candidate { advert, from_queue: false }));
        Ok(())
    }

    /// How many idle machines did not fit the request, by reason; complete once no candidate is
    /// left.
    pub async fn unfit(&self) -> BTreeMap<&'static str, u32> {
        self.state.lock().await.scan.unfit().clone()
    }

    /// Re-queues the messages of candidates that no worker needed, without delay.
    pub async fn close(self) {
        let state = self.state.into_inner();
        let surplus: Vec<_> = state
            .ready
            .iter()
            .filter(|candidate| candidate.from_queue)
            .map(|candidate| message::encode(&candidate.advert))
            .collect();
        let manager = Self { state: tokio::sync::Mutex::default(), ..self };
        manager.send_back(surplus.into_iter(), false).await;
    }

    async fn send_back(&self, bodies: impl Iterator<Item = String>, delayed: bool) {
        let delay = if delayed { self.stack.limits.requeue_delay } else { Duration::ZERO };
        let messages: Vec<_> = bodies.map(|body| Outgoing { body, delay, fifo: None }).collect();
        let queue = self.stack.queue_of(&self.request.class.name);
        for batch in messages.chunks(MESSAGES_PER_CALL_MAX) {
            if let Err(fault) = self.stack.ports.queues().send(&queue, batch).await {
                // Refresh advertises the machines again when the queue runs short of messages.
                tracing::info!(%fault, count = batch.len(), "could not re-queue messages");
            }
        }
    }
}
