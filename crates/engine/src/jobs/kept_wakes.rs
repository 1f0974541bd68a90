//! Wake-ups that no queue took. This process keeps them, and its own workers receive them: a queue
//! that is gone or does not answer must cost time, not service.
//!
//! Not here: sending a wake-up ([`super::queues`]), or receiving one ([`super::workers`]).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bullpen_core::ids::{JobId, QueueName};
use bullpen_core::job::Wake;
use bullpen_core::limits::MESSAGES_PER_CALL_MAX;
use bullpen_core::ports::{Clock, Ports};
use tokio::sync::Notify;

use crate::Stack;

/// How many wake-ups one process keeps; the sweep finds the rows of all others.
const KEPT_MAX: usize = 1_000;
/// How long a queue that did not take a wake-up is sent none: a call that hangs takes seconds, and
/// a webhook waits for it.
const QUEUE_RESTS: Duration = Duration::from_secs(5);

/// The wake-ups that a process keeps for its own workers.
#[derive(Debug, Default)]
pub(crate) struct KeptWakes {
    state: Mutex<State>,
    news: Notify,
    /// How many workers wait for kept wake-ups. A process without one has only the queue.
    takers: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    /// By queue and job: when each is due on the monotonic clock, and its lane.
    wakes: BTreeMap<(QueueName, JobId), (Duration, Option<String>)>,
    /// Until when each queue is left alone.
    rests: BTreeMap<QueueName, Duration>,
}

impl KeptWakes {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a worker of this process takes what it keeps.
    pub(super) fn are_taken(&self) -> bool {
        self.takers.load(Ordering::Relaxed) > 0
    }

    /// Whether the queue failed to take a wake-up lately.
    pub(super) fn rests<P: Ports>(&self, stack: &Stack<P>, queue: &QueueName) -> bool {
        let now = stack.ports.clock().monotonic();
        self.state().rests.get(queue).is_some_and(|until| now < *until)
    }

    /// Lets a queue rest that did not take a wake-up.
    pub(super) fn let_rest<P: Ports>(&self, stack: &Stack<P>, queue: &QueueName) {
        let until = stack.ports.clock().monotonic() + QUEUE_RESTS;
        self.state().rests.insert(queue.clone(), until);
    }

    /// Keeps a wake-up until it is due.
    pub(super) fn keep<P: Ports>(
        &self,
        stack: &Stack<P>,
        queue: &QueueName,
        wake: &Wake,
        due_after: Duration,
    ) {
        let due = stack.ports.clock().monotonic() + due_after;
        let mut state = self.state();
        if state.wakes.len() >= KEPT_MAX {
            return;
        }
        let kept = state.wakes.entry((queue.clone(), wake.job.clone()));
        kept.and_modify(|(at, _)| *at = due.min(*at)).or_insert_with(|| (due, wake.lane.clone()));
        drop(state);
        self.news.notify_waiters();
    }

    /// Takes the wake-ups of a queue that are due; waits for the first.
    pub(super) async fn take<P: Ports>(&self, stack: &Stack<P>, queue: &QueueName) -> Vec<Wake> {
        let clock = stack.ports.clock();
        let _taker = Taker::of(self);
        loop {
            let news = self.news.notified();
            tokio::pin!(news);
            // Registered before the look: a wake-up kept meanwhile must not be missed.
            news.as_mut().enable();
            let (taken, next) = self.take_due(queue, clock.monotonic());
            if !taken.is_empty() {
                return taken;
            }
            let Some(next) = next else {
                news.await;
                continue;
            };
            tokio::select! {
                biased;
                () = news => {}
                () = clock.sleep(next.saturating_sub(clock.monotonic())) => {}
            }
        }
    }

    /// The wake-ups of a queue that are due, as many as one receive takes, and when the next is.
    fn take_due(&self, queue: &QueueName, now: Duration) -> (Vec<Wake>, Option<Duration>) {
        let mut state = self.state();
        let of_queue = || state.wakes.iter().filter(|((of, _), _)| of == queue);
        let due = of_queue().filter(|(_, (at, _))| *at <= now).take(MESSAGES_PER_CALL_MAX);
        let due: Vec<_> = due.map(|(key, _)| key.clone()).collect();
        let next = of_queue().map(|(_, (at, _))| *at).min();
        let taken = due.into_iter().filter_map(|key| {
            let (_, lane) = state.wakes.remove(&key)?;
            Some(Wake { job: key.1, lane })
        });
        (taken.collect(), next)
    }
}

/// A worker that waits.
struct Taker<'k>(&'k KeptWakes);

impl<'k> Taker<'k> {
    fn of(kept: &'k KeptWakes) -> Self {
        kept.takers.fetch_add(1, Ordering::Relaxed);
        Self(kept)
    }
}

impl Drop for Taker<'_> {
    fn drop(&mut self) {
        self.0.takers.fetch_sub(1, Ordering::Relaxed);
    }
}
