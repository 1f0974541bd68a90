//! Models of the outside systems: stores and services that follow the real rules and can misbehave
//! in named ways.
//!
//! Each model is shared state with synchronous methods, and a *handle* per process that implements
//! the port: one trip over that process's [`crate::wire::Wire`] per call. A new world has new
//! models; there is no reset.
//!
//! Not here: the odds of misbehaviour ([`crate::wire::Weather`]), or the ports' contracts
//! (`contract`).

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bullpen_core::ids::InstanceId;
use bullpen_core::ports::{Fault, Written};
use bullpen_core::time::Timestamp;

use crate::wire::{Reply, Wire};

pub mod fleet;
pub mod forge;
mod forge_limits;
pub mod job_forge;
pub mod ledger;
pub mod mailbox;
pub mod queues;

pub use fleet::FleetModel;
pub use forge::ForgeModel;
pub use job_forge::JobForgeModel;
pub use ledger::{LedgerModel, LedgerWrite};
pub use mailbox::MailboxModel;
pub use queues::QueuesModel;

/// The longest lag of a read, in any weather.
const PAST_KEPT: Duration = Duration::from_secs(120);

/// The state before each change, for reads that lag.
#[derive(Debug)]
struct Past<T> {
    changes: VecDeque<(Timestamp, T)>,
}

impl<T> Default for Past<T> {
    fn default() -> Self {
        Self { changes: VecDeque::new() }
    }
}

impl<T> Past<T> {
    /// Notes a change that happens now, by the state before it.
    fn note(&mut self, now: Timestamp, before: T) {
        let kept_from = now.before(PAST_KEPT);
        while self.changes.front().is_some_and(|(at, _)| *at < kept_from) {
            self.changes.pop_front();
        }
        self.changes.push_back((now, before));
    }

    /// The states before each change after `then`, the earliest change first.
    fn since(&self, then: Timestamp) -> impl Iterator<Item = &T> {
        let first = self.changes.partition_point(|(at, _)| *at <= then);
        self.changes.range(first..).map(|(_, before)| before)
    }
}

/// A callback that receives, in words, the events of a machine and of its runner.
#[derive(Default)]
struct Witness(Option<WitnessCallback>);

type WitnessCallback = Box<dyn FnMut(&InstanceId, &str) + Send>;

impl Witness {
    fn see(&mut self, machine: &InstanceId, what: fmt::Arguments<'_>) {
        if let Some(witness) = &mut self.0 {
            witness(machine, &what.to_string());
        }
    }
}

impl fmt::Debug for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Witness").field(&self.0.is_some()).finish()
    }
}

/// A model's state; ignores poisoning, so that a panic elsewhere does not hide this test's result.
fn locked<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The result of a conditional write for its caller.
fn written<T>(reply: Reply<Written<T>>) -> Result<Written<T>, Fault> {
    match reply {
        Reply::Answered(written) => Ok(written),
        Reply::Refused(fault) => Err(fault),
        Reply::Lost => Ok(Written::Unknown),
    }
}

/// The results of conditional writes in one call, for their caller.
fn each<T>(reply: Reply<Vec<Written<T>>>, count: usize) -> Vec<Result<Written<T>, Fault>> {
    match reply {
        Reply::Answered(written) => written.into_iter().map(Ok).collect(),
        Reply::Refused(fault) => (0..count).map(|_| Err(fault.clone())).collect(),
        Reply::Lost => (0..count).map(|_| Ok(Written::Unknown)).collect(),
    }
}

/// Draws the lag of one read; draws nothing in weather without lag.
fn lag(wire: &Wire) -> Duration {
    match wire.weather().lag_max {
        Duration::ZERO => Duration::ZERO,
        most => {
            wire.happened("read lagged");
            wire.dice().between(Duration::ZERO, most)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_past_shows_earlier_states_and_forgets_them_in_time() {
        let at = |secs| Timestamp::EPOCH.after(Duration::from_secs(secs));
        let mut past = Past::default();
        past.note(at(10), "nothing");
        past.note(at(20), "one");
        assert_eq!(past.since(at(5)).next(), Some(&"nothing"));
        assert_eq!(past.since(at(10)).next(), Some(&"one"));
        assert_eq!(past.since(at(20)).next(), None, "the present");
        past.note(at(131), "two");
        assert_eq!(past.since(at(5)).next(), Some(&"one"), "the first change is forgotten");
    }
}
