//! Counts of a wire: the calls of each port, and how often each fault occurred.
//!
//! Not here: what causes faults ([`super::fate`]).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many calls each port received.
pub type Calls = BTreeMap<&'static str, u64>;

/// How often each fault occurred, to prove that it did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Trips over the wire.
    pub calls: u64,
    /// Refused as throttled or unavailable.
    pub refused: u64,
    /// Landed without an answer.
    pub answers_lost: u64,
    /// Landed late, without an answer.
    pub landed_late: u64,
    /// Processes that died.
    pub crashes: u64,
    /// Other troubles, by name.
    pub happened: BTreeMap<&'static str, u64>,
}

impl Counts {
    /// Counts one trouble of this name.
    pub fn happened(&mut self, what: &'static str) {
        *self.happened.entry(what).or_default() += 1;
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.refused += other.refused;
        self.answers_lost += other.answers_lost;
        self.landed_late += other.landed_late;
        self.crashes += other.crashes;
        for (what, count) in other.happened {
            *self.happened.entry(what).or_default() += count;
        }
    }
}

/// How many calls of a process are under way, and how many were at most.
#[derive(Debug, Default)]
pub(super) struct UnderWay {
    now: AtomicU64,
    most: AtomicU64,
}

impl UnderWay {
    /// Counts a call until the answer is dropped.
    pub(super) fn begin(&self) -> CallUnderWay<'_> {
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(now, Ordering::Relaxed);
        CallUnderWay(self)
    }

    pub(super) fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }
}

/// A call under way, until it is dropped.
pub(super) struct CallUnderWay<'w>(&'w UnderWay);

impl Drop for CallUnderWay<'_> {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::Relaxed);
    }
}
