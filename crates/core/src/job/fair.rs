//! Whose job is next: weighted turns among repositories, with a cap on how much one has under way.
//!
//! Every repository that waits earns its weight at each turn, and who has earned most is served and
//! pays for it. So a burst of one repository delays another by at most its own share, however long
//! the burst's line is, and turns are spread instead of coming in runs. A cap that nobody else needs is
//! not held: what would stand idle serves whoever has least under way, up to a bound that leaves room
//! for whoever comes next.
//!
//! Not here: which rows wait (the `Ledger` port).

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::Repository;
use crate::sabotage;

/// How much each repository is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Of those that are not named.
    pub weight_default: u32,
    /// Of those that are.
    pub weights: BTreeMap<Repository, u32>,
    /// The most jobs of one repository that one process works on at once while others wait.
    pub cap: u32,
    /// How many jobs one process works on before a cap holds although nobody else waits.
    pub busy: u32,
}

impl Default for Shares {
    fn default() -> Self {
        Self {
            weight_default: 1,
            weights: BTreeMap::new(),
            cap: Self::CAP_DEFAULT,
            busy: Self::BUSY_DEFAULT,
        }
    }
}

impl Shares {
    /// Enough for a burst to be served at the speed that machines come, and few enough that the
    /// calls it costs leave room for others.
    pub const CAP_DEFAULT: u32 = 32;
    /// A burst of five hundred is begun in two waves; the workers have room for more than that.
    pub const BUSY_DEFAULT: u32 = 256;

    /// A repository without weight would never be served.
    fn weight(&self, repository: &Repository) -> i64 {
        i64::from(*self.weights.get(repository).unwrap_or(&self.weight_default)).max(1)
    }
}

/// What each repository has earned and not been served for, and what it has under way.
#[derive(Clone, Debug, Default)]
pub struct FairQueue {
    earned: BTreeMap<Repository, i64>,
    under_way: BTreeMap<Repository, u32>,
}

impl FairQueue {
    /// Whose turn it is among those that wait; none if all of them have as much under way as they
    /// may, and the process is busy. Whoever gets a turn must [`FairQueue::end`] it.
    pub fn begin(&mut self, waiting: &BTreeSet<Repository>, shares: &Shares) -> Option<Repository> {
        // Who waits for nothing earns nothing: an old claim must not become a burst.
        self.earned.retain(|repository, _| waiting.contains(repository));
        let in_line: Vec<&Repository> =
            waiting.iter().filter(|repository| self.has(repository) < shares.cap).collect();
        if in_line.is_empty() {
            return self.begin_beyond(waiting, shares);
        }
        let mut total = 0;
        for repository in &in_line {
            let weight = shares.weight(repository);
            *self.earned.entry((*repository).clone()).or_default() += weight;
            total += weight;
        }
        let earned = |repository: &Repository| self.earned.get(repository).copied().unwrap_or(0);
        // The first in the alphabet of those who have earned most, so that it is always the same.
        let next = in_line
            .into_iter()
            .rev()
            .max_by_key(
                |repository| if sabotage!("turns-are-not-taken") { 0 } else { earned(repository) },
            )?
            .clone();
        *self.earned.entry(next.clone()).or_default() -= total;
        *self.under_way.entry(next.clone()).or_default() += 1;
        Some(next)
    }

    /// A turn beyond every cap, for whoever has least under way.
    fn begin_beyond(
        &mut self,
        waiting: &BTreeSet<Repository>,
        shares: &Shares,
    ) -> Option<Repository> {
        if self.under_way.values().sum::<u32>() >= shares.busy {
            return None;
        }
        let next = waiting.iter().min_by_key(|repository| self.has(repository))?.clone();
        *self.under_way.entry(next.clone()).or_default() += 1;
        Some(next)
    }

    fn has(&self, repository: &Repository) -> u32 {
        self.under_way.get(repository).copied().unwrap_or(0)
    }

    /// A turn is over.
    pub fn end(&mut self, repository: &Repository) {
        if let Some(count) = self.under_way.get_mut(repository) {
            *count -= 1;
            if *count == 0 {
                self.under_way.remove(repository);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository(name: &str) -> Repository {
        Repository::new(format!("acme/{name}"))
    }

    /// Serves lines of these lengths, one at a time, and returns whose turn each was.
    fn served(lines: &[(&str, usize)], shares: &Shares) -> Vec<Repository> {
        let mut left: BTreeMap<Repository, usize> =
            lines.iter().map(|(name, count)| (repository(name), *count)).collect();
        let mut turns = FairQueue::default();
        let mut order = Vec::new();
        loop {
            left.retain(|_, count| *count > 0);
            let waiting = left.keys().cloned().collect();
            let Some(next) = turns.begin(&waiting, shares) else { return order };
            turns.end(&next);
            *left.get_mut(&next).expect("it waits") -= 1;
            order.push(next);
        }
    }

    #[test]
    fn one_burst_starves_nobody() {
        let order = served(&[("burst", 500), ("calm", 3), ("zeal", 3)], &Shares::default());
        assert_eq!(order.len(), 506);
        for quiet in ["calm", "zeal"] {
            let last = order.iter().rposition(|served| *served == repository(quiet));
            assert!(last < Some(9), "{quiet} waited until {last:?}");
        }
    }

    #[test]
    fn turns_follow_the_weights_and_are_spread() {
        let shares =
            Shares { weights: BTreeMap::from([(repository("big"), 3)]), ..Shares::default() };
        let order = served(&[("big", 300), ("small", 100)], &shares);
        for window in order.chunks(4) {
            let small = window.iter().filter(|served| **served == repository("small")).count();
            assert_eq!(small, 1, "{window:?}");
        }
    }

    #[test]
    fn what_was_not_waited_for_is_not_earned() {
        let mut turns = FairQueue::default();
        let shares = Shares::default();
        let (one, both) = (
            BTreeSet::from([repository("one")]),
            BTreeSet::from([repository("late"), repository("one")]),
        );
        for _ in 0..50 {
            let next = turns.begin(&one, &shares).expect("it waits");
            turns.end(&next);
        }
        let mut late = 0;
        for _ in 0..10 {
            let next = turns.begin(&both, &shares).expect("both wait");
            late += u32::from(next == repository("late"));
            turns.end(&next);
        }
        assert_eq!(late, 5);
    }

    #[test]
    fn a_repository_has_no_more_under_way_than_its_cap_in_a_busy_process() {
        let mut turns = FairQueue::default();
        let shares = Shares { cap: 2, busy: 2, ..Shares::default() };
        let waiting = BTreeSet::from([repository("one")]);
        let first = turns.begin(&waiting, &shares).expect("it may");
        assert!(turns.begin(&waiting, &shares).is_some());
        assert_eq!(turns.begin(&waiting, &shares), None);
        turns.end(&first);
        assert_eq!(turns.begin(&waiting, &shares), Some(first));
    }

    #[test]
    fn what_nobody_else_needs_is_used_and_a_newcomer_has_its_cap() {
        let mut turns = FairQueue::default();
        let shares = Shares { cap: 2, busy: 5, ..Shares::default() };
        let burst = BTreeSet::from([repository("burst")]);
        let begun = (0..9).filter(|_| turns.begin(&burst, &shares).is_some()).count();
        assert_eq!(begun, 5);
        let both = BTreeSet::from([repository("burst"), repository("calm")]);
        for _ in 0..2 {
            assert_eq!(turns.begin(&both, &shares), Some(repository("calm")));
        }
        assert_eq!(turns.begin(&both, &shares), None);
    }

    #[test]
    fn a_weight_of_nothing_is_served_all_the_same() {
        let shares = Shares { weight_default: 0, ..Shares::default() };
        assert_eq!(served(&[("one", 2)], &shares).len(), 2);
    }
}
