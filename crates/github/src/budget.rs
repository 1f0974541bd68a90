//! How much may be asked of GitHub, so that it never has to refuse.
//!
//! GitHub counts *points*, one for a read and five for a write, and allows 900 in any minute; and it
//! counts calls in an hour, and says in every answer how many are left. A [`Budget`] is one
//! credential's part of both. It is exact: it remembers what was spent in the last minute (and a
//! little longer, because GitHub counts when a call arrives), and lets each priority have a share,
//! so that housekeeping leaves room for reads, and both for runners.
//!
//! Everything is by the monotonic clock, and pure.
//!
//! Not here: waiting (`meter`), or which credential serves (`client`).

use std::collections::VecDeque;
use std::time::Duration;

use crate::limits::{
    HOUSEKEEPING_PATIENCE, POINTS_MAX, POINTS_READ, POINTS_WINDOW, POINTS_WRITE, READ_PATIENCE,
    URGENT_PATIENCE,
};

/// Who gives way to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Priority {
    /// Nobody waits for it: sweeps, lists.
    Housekeeping,
    /// Something is decided by it.
    Read,
    /// A job waits for it: a runner, or a token to ask for one with.
    Urgent,
}

impl Priority {
    /// The percentage of the minute's points that it may bring the total up to.
    const fn share(self) -> u32 {
        match self {
            Self::Housekeeping => 50,
            Self::Read => 80,
            Self::Urgent => 100,
        }
    }

    /// The percentage of the hour's calls that it leaves to those above it.
    const fn leaves(self) -> u64 {
        match self {
            Self::Housekeeping => 25,
            Self::Read => 5,
            Self::Urgent => 0,
        }
    }

    /// How long it waits for its turn before it is refused.
    pub(crate) const fn patience(self) -> Duration {
        match self {
            Self::Housekeeping => HOUSEKEEPING_PATIENCE,
            Self::Read => READ_PATIENCE,
            Self::Urgent => URGENT_PATIENCE,
        }
    }
}

/// What one call costs.
pub(crate) const fn points(is_write: bool) -> u32 {
    if is_write { POINTS_WRITE } else { POINTS_READ }
}

/// What an answer says about the hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hour {
    pub(crate) limit: u64,
    pub(crate) remaining: u64,
    /// When it begins anew.
    pub(crate) reset: Duration,
}

/// One credential's budget.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    /// What was spent and when, oldest first.
    spent: VecDeque<(Duration, u32)>,
    total: u32,
    hour: Option<Hour>,
    /// Until when GitHub wants to be left alone.
    quiet_until: Duration,
}

impl Budget {
    /// How long a call of this priority and cost has to wait; nothing is spent yet.
    pub(crate) fn wait(&mut self, now: Duration, priority: Priority, points: u32) -> Duration {
        self.forget(now);
        let quiet = self.quiet_until.saturating_sub(now);
        quiet
            .max(self.wait_for_hour(now, priority))
            .max(self.wait_for_points(now, priority, points))
    }

    /// A call is sent now.
    pub(crate) fn spend(&mut self, now: Duration, points: u32) {
        self.spent.push_back((now, points));
        self.total = self.total.saturating_add(points);
        if let Some(hour) = &mut self.hour {
            hour.remaining = hour.remaining.saturating_sub(1);
        }
    }

    /// An answer said this about the hour. Answers overtake each other: the smaller number of the
    /// same hour is the later one.
    pub(crate) fn told(&mut self, said: Hour) {
        self.hour = Some(match self.hour {
            Some(hour) if hour.reset.abs_diff(said.reset) <= SAME_HOUR => {
                Hour { remaining: hour.remaining.min(said.remaining), ..said }
            }
            _ => said,
        });
    }

    /// GitHub refused, and wants to be left alone until then.
    pub(crate) fn be_quiet(&mut self, until: Duration) {
        self.quiet_until = self.quiet_until.max(until);
    }

    /// How much is left, in thousandths: of the minute or of the hour, whichever is less.
    pub(crate) fn left(&mut self, now: Duration) -> u64 {
        self.forget(now);
        if now < self.quiet_until {
            return 0;
        }
        let minute =
            u64::from(POINTS_MAX.saturating_sub(self.total)) * 1000 / u64::from(POINTS_MAX);
        let hour = self.hour.filter(|hour| now < hour.reset);
        minute.min(hour.map_or(1000, |hour| hour.remaining * 1000 / hour.limit.max(1)))
    }

    fn wait_for_hour(&self, now: Duration, priority: Priority) -> Duration {
        match self.hour {
            Some(hour) if now < hour.reset => {
                let kept = hour.limit * priority.leaves() / 100;
                if hour.remaining > kept { Duration::ZERO } else { hour.reset.saturating_sub(now) }
            }
            _ => Duration::ZERO,
        }
    }

    fn wait_for_points(&self, now: Duration, priority: Priority, points: u32) -> Duration {
        let most = POINTS_MAX * priority.share() / 100;
        let mut over = (self.total + points).saturating_sub(most);
        for (at, cost) in &self.spent {
            if over == 0 {
                break;
            }
            over = over.saturating_sub(*cost);
            if over == 0 {
                return (*at + POINTS_WINDOW).saturating_sub(now);
            }
        }
        Duration::ZERO
    }

    fn forget(&mut self, now: Duration) {
        while let Some((at, cost)) = self.spent.front()
            && now >= *at + POINTS_WINDOW
        {
            self.total -= cost;
            self.spent.pop_front();
        }
    }
}

/// Resets are told in whole seconds and read off a clock that moves.
const SAME_HOUR: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::CALL_TIMEOUT;

    const MINUTE: Duration = Duration::from_secs(60);

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Spends as much as it may, with the clock moving by `step`, and returns when each call went.
    fn greedy(calls: &[(Priority, bool)], step: Duration, until: Duration) -> Vec<(Duration, u32)> {
        let (mut budget, mut now, mut sent) = (Budget::default(), Duration::ZERO, Vec::new());
        let mut next = calls.iter().cycle();
        while now < until {
            let (priority, is_write) = *next.next().expect("it repeats");
            let cost = points(is_write);
            if budget.wait(now, priority, cost) == Duration::ZERO {
                budget.spend(now, cost);
                sent.push((now, cost));
            }
            now += step;
        }
        sent
    }

    fn most_in(window: Duration, sent: &[(Duration, u32)]) -> u32 {
        let sums = sent.iter().map(|(begin, _)| {
            let inside = sent.iter().filter(|(at, _)| at >= begin && *at < *begin + window);
            inside.map(|(_, cost)| cost).sum()
        });
        sums.max().unwrap_or_default()
    }

    #[test]
    fn no_minute_ever_has_more_points_than_github_allows() {
        use Priority::{Housekeeping, Read, Urgent};
        let mixed = [(Urgent, true), (Read, false), (Housekeeping, false), (Read, true)];
        for step in [7, 50, 333, 1_001] {
            let sent = greedy(&mixed, at(step), 4 * MINUTE);
            // However late the first calls of a minute arrive, and however early the last.
            assert!(most_in(MINUTE + CALL_TIMEOUT, &sent) <= POINTS_MAX, "every {step} ms");
        }
    }

    #[test]
    fn what_is_allowed_is_used() {
        let sent = greedy(&[(Priority::Urgent, true)], at(10), MINUTE);
        assert_eq!(most_in(MINUTE, &sent), POINTS_MAX);
        assert_eq!(sent.len(), 180, "GitHub allows so many writes in a minute");
    }

    #[test]
    fn housekeeping_gives_way_to_reads_and_both_to_runners() {
        let mut budget = Budget::default();
        let mut used = Vec::new();
        for priority in [Priority::Housekeeping, Priority::Read, Priority::Urgent] {
            while budget.wait(at(0), priority, 1) == Duration::ZERO {
                budget.spend(at(0), 1);
            }
            used.push(budget.total);
        }
        assert_eq!(used, [450, 720, 900]);
        assert_eq!(
            budget.wait(at(1000), Priority::Urgent, 5),
            POINTS_WINDOW.saturating_sub(at(1000))
        );
        assert_eq!(budget.left(at(1000)), 0);
        assert_eq!(budget.wait(POINTS_WINDOW, Priority::Housekeeping, 5), Duration::ZERO);
    }

    #[test]
    fn the_wait_is_as_long_as_it_takes_and_no_longer() {
        let mut budget = Budget::default();
        for second in 0..90 {
            budget.spend(at(second * 100), 10);
        }
        let now = at(10_000);
        let wait = budget.wait(now, Priority::Urgent, 5);
        assert_eq!(wait, POINTS_WINDOW.saturating_sub(now), "the first ten points are enough");
        let almost = (now + wait).saturating_sub(at(1));
        assert_eq!(budget.wait(almost, Priority::Urgent, 5), at(1));
        assert_eq!(budget.wait(now + wait, Priority::Urgent, 5), Duration::ZERO);
    }

    #[test]
    fn the_hour_is_kept_for_those_who_need_it() {
        let mut budget = Budget::default();
        let hour = |remaining| Hour { limit: 5_000, remaining, reset: at(100_000) };
        for (remaining, waits) in
            [(1_251, [0, 0, 0]), (1_250, [100, 0, 0]), (250, [100, 100, 0]), (0, [100; 3])]
        {
            budget.told(hour(remaining));
            for (priority, wait) in
                [Priority::Housekeeping, Priority::Read, Priority::Urgent].into_iter().zip(waits)
            {
                let waited = budget.wait(at(0), priority, 1).as_secs();
                assert_eq!(waited, wait, "{priority:?} with {remaining}");
            }
        }
        budget.told(hour(9));
        assert_eq!(budget.left(at(0)), 0, "an answer that was overtaken gives nothing back");
        assert_eq!(budget.wait(at(100_000), Priority::Housekeeping, 1), Duration::ZERO);
        budget.told(Hour { reset: at(3_700_000), ..hour(4_999) });
        assert_eq!(budget.left(at(100_000)), 999);
        for _ in 0..1_000 {
            budget.spend(at(100_000), 0);
        }
        assert_eq!(budget.left(at(100_000)), 799, "what is on its way counts");
    }

    #[test]
    fn a_refusal_silences_everyone() {
        let mut budget = Budget::default();
        budget.be_quiet(at(30_000));
        budget.be_quiet(at(10_000));
        assert_eq!(budget.wait(at(0), Priority::Urgent, 1), at(30_000));
        assert_eq!(budget.left(at(0)), 0);
        assert_eq!(budget.wait(at(30_000), Priority::Urgent, 1), Duration::ZERO);
    }
}
