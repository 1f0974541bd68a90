//! When each pool is surveyed next: all pools at intervals, and a pool that waits for events of seconds
//! sooner, so that one pool that boots costs no reads of thousands that do not.
//!
//! Not here: surveying and executing ([`super`]).

use std::collections::BTreeSet;
use std::time::Duration;

use bullpen_core::ids::PoolName;
use bullpen_core::sabotage;

/// What is due. The times are on the monotonic clock.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    /// When all pools are due.
    all_at: Duration,
    /// The pools that are due sooner.
    soon: BTreeSet<PoolName>,
    /// When those are due.
    soon_at: Option<Duration>,
    /// The pools whose last plan is still executed.
    busy: BTreeSet<PoolName>,
}

impl Agenda {
    /// When the next survey is due.
    pub(super) fn next(&self) -> Duration {
        self.soon_at.map_or(self.all_at, |at| at.min(self.all_at))
    }

    /// Has all pools surveyed at this time, or earlier if that is planned.
    pub(super) fn all_by(&mut self, at: Duration) {
        self.all_at = self.all_at.min(at);
    }

    /// Has a pool surveyed at this time, or earlier if that is planned. A pool that is busy then is
    /// left to the next survey of all, unless it is not settled.
    pub(super) fn soon_by(&mut self, at: Duration, pool: PoolName) {
        self.soon.insert(pool);
        self.soon_at = Some(self.soon_at.map_or(at, |soon| soon.min(at)));
    }

    /// Begins a survey: of all pools if they are due, as `None` says, or else of those that are due
    /// sooner. The next survey of all pools is at `all_at`.
    pub(super) fn begin(&mut self, now: Duration, all_at: Duration) -> Option<BTreeSet<PoolName>> {
        let soon = std::mem::take(&mut self.soon);
        self.soon_at = None;
        if now < self.all_at && !sabotage!("one-pool-hurries-all") {
            return Some(soon);
        }
        self.all_at = all_at;
        None
    }

    pub(super) fn is_busy(&self, pool: &PoolName) -> bool {
        self.busy.contains(pool)
    }

    pub(super) fn executes(&mut self, pool: &PoolName) {
        self.busy.insert(pool.clone());
    }

    pub(super) fn has_executed(&mut self, pool: &PoolName) {
        self.busy.remove(pool);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn a_pool_that_is_due_soon_is_surveyed_without_the_others() {
        let mut agenda = Agenda::default();
        assert_eq!(agenda.begin(secs(0), secs(30)), None, "the first survey is of all");
        assert_eq!(agenda.next(), secs(30));
        agenda.soon_by(secs(5), PoolName::new("ci"));
        agenda.soon_by(secs(3), PoolName::new("ci"));
        assert_eq!(agenda.next(), secs(3));
        let only = agenda.begin(secs(3), secs(33));
        assert_eq!(only, Some(BTreeSet::from([PoolName::new("ci")])));
        assert_eq!(agenda.next(), secs(30), "all are due as before");
        agenda.soon_by(secs(29), PoolName::new("ci"));
        agenda.all_by(secs(20));
        assert_eq!(agenda.begin(secs(20), secs(50)), None);
        assert_eq!(agenda.next(), secs(50), "all have been surveyed, `ci` too");
    }
}
