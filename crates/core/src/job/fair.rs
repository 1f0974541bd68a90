//! Which repository's job is next: weighted turns, with a cap on each repository's jobs under way.
//!
//! At each turn every waiting repository earns its weight, and the repository that has earned most
//! gets the turn and pays for it. So a burst of one repository delays another by at most its own
//! share, no matter how long the burst is, and turns are spread. If no other repository needs the
//! capacity, a repository may exceed its cap, up to a bound that leaves capacity for the next
//! repository.
//!
//! Not here: which rows wait (the `Ledger` port).

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::Repository;
use crate::sabotage;

/// The share of each repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shares {
    /// The weight of a repository that `weights` does not name.
    pub weight_default: u32,
    /// The weights of single repositories.
    pub weights: BTreeMap<Repository, u32>,
    /// The most jobs of one repository that one process works on at once while others wait.
    pub cap: u32,
    /// How many jobs one process works on before the cap holds even if no other repository waits.
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
    /// Enough to serve a burst as fast as machines come, and few enough that its calls leave
    /// capacity for other repositories.
    pub const CAP_DEFAULT: u32 = 32;
    /// Starts a burst of five hundred jobs in two waves; the workers have capacity for more.
    pub const BUSY_DEFAULT: u32 = 256;

    /// A repository without weight would never be served.
    fn weight(&self, repository: &Repository) -> i64 {
        i64::from(*self.weights.get(repository).unwrap_or(&self.weight_default)).max(1)
    }
}

/// The unspent earnings of each repository, and how many of its jobs are under way.
#[derive(Clone, Debug, Default)]
pub struct FairQueue {
    earned: BTreeMap<Repository, i64>,
    under_way: BTreeMap<Repository, u32>,
}

impl FairQueue {
    /// The waiting repository whose turn it is; none if all of them are at their cap and the
    /// process is busy. The caller must [`FairQueue::end`] each turn.
    pub fn begin(&mut self, waiting: &BTreeSet<Repository>, shares: &Shares) -> Option<Repository> {
        // A repository that does not wait loses its earnings: they must not become a burst later.
        self.earned.retain(|repository, _| waiting.contains(repository));
        let in_line: Vec<&Repository> = waiting
            .iter()
            .filter(|repository| self.under_way_for(repository) < shares.cap)
            .collect();
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
        // Of several that have earned most the first in the alphabet, so that it is always the
        // same.
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

    /// A turn beyond every cap, for the repository with the fewest jobs under way.
    fn begin_beyond(
        &mut self,
        waiting: &BTreeSet<Repository>,
        shares: &Shares,
    ) -> Option<Repository> {
        if self.under_way.values().sum::<u32>() >= shares.busy {
            return None;
        }
        let next = waiting.iter().min_by_key(|repository| self.under_way_for(repository))?.clone();
        *self.under_way.entry(next.clone()).or_default() += 1;
        Some(next)
    }

    fn under_way_for(&self, repository: &Repository) -> u32 {
        self.under_way.get(repository).copied().unwrap_or(0)
    }

    /// Ends a turn.
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

    /// Serves lines of these lengths one job at a time, and returns the repository of each turn.
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
    fn one_burst_starves_no_repository() {
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
        let first = turns.begin(&waiting, &shares).expect("it is below its cap");
        assert!(turns.begin(&waiting, &shares).is_some());
        assert_eq!(turns.begin(&waiting, &shares), None);
        turns.end(&first);
        assert_eq!(turns.begin(&waiting, &shares), Some(first));
    }

    #[test]
    fn unneeded_capacity_is_used_and_a_newcomer_has_its_cap() {
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
