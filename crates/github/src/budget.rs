//! One credential's rate-limit budget: how long a call must wait so that GitHub accepts it. Pure.
//!
//! GitHub allows 900 *points* in any minute, one for a read and five for a write, and a number of
//! calls in an hour. Each priority has a share of both, so that housekeeping leaves some for reads,
//! and both leave some for runners. All times are monotonic.
//!
//! Not here: the hour's shares (`core::forge_rates`), waiting (`meter`), and choosing the credential
//! (`client`).

use std::collections::BTreeMap;
use std::time::Duration;

use bullpen_core::forge_rates::{CallPriority, HourLeft};

use crate::limits::{
    HOUSEKEEPING_PATIENCE, POINTS_MAX, POINTS_MINUTE, POINTS_READ, POINTS_WINDOW, POINTS_WRITE,
    READ_PATIENCE, URGENT_PATIENCE,
};

/// The percentage of the minute's points up to which this priority may spend.
const fn share(priority: CallPriority) -> u32 {
    match priority {
        CallPriority::Housekeeping => 50,
        CallPriority::Read => 80,
        CallPriority::Urgent => 100,
    }
}

/// How long a call of this priority waits before the meter refuses it.
pub(crate) const fn patience(priority: CallPriority) -> Duration {
    match priority {
        CallPriority::Housekeeping => HOUSEKEEPING_PATIENCE,
        CallPriority::Read => READ_PATIENCE,
        CallPriority::Urgent => URGENT_PATIENCE,
    }
}

/// The points that one call costs.
pub(crate) const fn points(is_write: bool) -> u32 {
    if is_write { POINTS_WRITE } else { POINTS_READ }
}

/// One credential's budget. A call counts until no minute of GitHub's can hold it any more: for
/// [`POINTS_MINUTE`] after its answer, or without one for [`POINTS_WINDOW`] after it was sent.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    /// The points of each call that counts.
    spent: BTreeMap<Spent, u32>,
    total: u32,
    /// How many calls were ever sent.
    calls: u64,
    /// The hour as the last answer had it.
    hour: Option<HourLeft>,
    /// Calls whose answer has not come, and so is in no answer's numbers.
    under_way: u64,
    /// Until when GitHub's last rate limit forbids calls.
    paused_until: Duration,
}

/// A call that counts: until when, and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spent {
    until: Duration,
    call: u64,
}

impl Budget {
    /// How long a call of this priority and cost has to wait; spends nothing.
    pub(crate) fn wait(&mut self, now: Duration, priority: CallPriority, points: u32) -> Duration {
        self.forget(now);
        let pause = self.paused_until.saturating_sub(now);
        pause
            .max(self.wait_for_hour(now, priority))
            .max(self.wait_for_points(now, priority, points))
    }

    /// Counts a call that is sent now.
    pub(crate) fn spend(&mut self, now: Duration, points: u32) -> Spent {
        self.calls += 1;
        let spent = Spent { until: now + POINTS_WINDOW, call: self.calls };
        self.spent.insert(spent, points);
        self.total = self.total.saturating_add(points);
        self.under_way += 1;
        spent
    }

    /// Notes that a call will have no answer: it may have arrived.
    pub(crate) fn lost(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
        if let Some(hour) = &mut self.hour {
            hour.remaining = hour.remaining.saturating_sub(1);
        }
    }

    /// Notes that a call was answered now: it arrived before. The answer's own numbers say what it
    /// cost of the hour.
    pub(crate) fn answered(&mut self, spent: Spent, now: Duration) {
        self.under_way = self.under_way.saturating_sub(1);
        if let Some(points) = self.spent.remove(&spent) {
            let until = spent.until.min(now + POINTS_MINUTE);
            self.spent.insert(Spent { until, ..spent }, points);
        }
    }

    /// Stores an answer's hourly numbers. Answers may arrive out of order: within one hour the
    /// smaller remainder is the later one.
    pub(crate) fn update_hour(&mut self, received: HourLeft) {
        self.hour = Some(match self.hour {
            Some(hour) if hour.reset.abs_diff(received.reset) <= SAME_HOUR => {
                HourLeft { remaining: hour.remaining.min(received.remaining), ..received }
            }
            _ => received,
        });
    }

    /// Forbids calls until then, after GitHub's rate limit refused one.
    pub(crate) fn pause(&mut self, until: Duration) {
        self.paused_until = self.paused_until.max(until);
    }

    /// The remaining budget in thousandths: the minute's or the hour's, the smaller of the two.
    pub(crate) fn left(&mut self, now: Duration) -> u64 {
        self.forget(now);
        if now < self.paused_until {
            return 0;
        }
        let minute =
            u64::from(POINTS_MAX.saturating_sub(self.total)) * 1000 / u64::from(POINTS_MAX);
        let hour = self.hour_left(now);
        minute.min(hour.map_or(1000, |hour| hour.remaining * 1000 / hour.limit.max(1)))
    }

    /// The hour without the calls under way; none if GitHub has not told, or it is over.
    fn hour_left(&self, now: Duration) -> Option<HourLeft> {
        let hour = self.hour.filter(|hour| now < hour.reset)?;
        Some(HourLeft { remaining: hour.remaining.saturating_sub(self.under_way), ..hour })
    }

    fn wait_for_hour(&self, now: Duration, priority: CallPriority) -> Duration {
        self.hour_left(now).map_or(Duration::ZERO, |hour| hour.wait(now, priority))
    }

    fn wait_for_points(&self, now: Duration, priority: CallPriority, points: u32) -> Duration {
        let most = POINTS_MAX * share(priority) / 100;
        let mut over = (self.total + points).saturating_sub(most);
        for (spent, cost) in &self.spent {
            if over == 0 {
                break;
            }
            over = over.saturating_sub(*cost);
            if over == 0 {
                return spent.until.saturating_sub(now);
            }
        }
        Duration::ZERO
    }

    fn forget(&mut self, now: Duration) {
        while let Some(first) = self.spent.first_entry()
            && now >= first.key().until
        {
            self.total -= first.remove();
        }
    }
}

/// Two resets within this are the same hour: GitHub rounds them to seconds, and our clock moves.
const SAME_HOUR: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::CALL_TIMEOUT;

    const MINUTE: Duration = Duration::from_secs(60);

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Spends as much as the budget allows, advancing the clock by `step`; returns each call's time
    /// and cost.
    fn greedy(
        calls: &[(CallPriority, bool)],
        step: Duration,
        until: Duration,
    ) -> Vec<(Duration, u32)> {
        let (mut budget, mut now, mut sent) = (Budget::default(), Duration::ZERO, Vec::new());
        let mut next = calls.iter().cycle();
        while now < until {
            let (priority, is_write) = *next.next().expect("the calls repeat");
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
        use CallPriority::{Housekeeping, Read, Urgent};
        let mixed = [(Urgent, true), (Read, false), (Housekeeping, false), (Read, true)];
        for step in [7, 50, 333, 1_001] {
            let sent = greedy(&mixed, at(step), 4 * MINUTE);
            // The first calls of a minute may arrive late, and the last ones early.
            assert!(most_in(MINUTE + CALL_TIMEOUT, &sent) <= POINTS_MAX, "every {step} ms");
        }
    }

    /// The answer comes after this long, and GitHub may have counted the call at any time before.
    #[test]
    fn an_answered_call_counts_for_a_minute_from_its_answer() {
        for latency in [at(0), at(40), at(3_000), CALL_TIMEOUT] {
            let (mut budget, mut now, mut sent) = (Budget::default(), Duration::ZERO, Vec::new());
            let mut under_way = Vec::new();
            while now < 4 * MINUTE {
                under_way.retain(|(spent, answer)| {
                    if now >= *answer {
                        budget.answered(*spent, now);
                    }
                    now < *answer
                });
                while budget.wait(now, CallPriority::Urgent, 5).is_zero() {
                    under_way.push((budget.spend(now, 5), now + latency));
                    sent.push((now, 5));
                }
                now += at(20);
            }
            // The first calls of a minute may arrive late, and the last ones early.
            assert!(most_in(MINUTE + latency, &sent) <= POINTS_MAX, "{latency:?}");
            let whole = 4 * MINUTE.as_millis() / (MINUTE + latency).as_millis();
            let least = usize::try_from(whole).expect("it is small") * 180;
            assert!(sent.len() >= least, "{latency:?}: {} calls", sent.len());
        }
    }

    #[test]
    fn the_whole_allowance_is_used() {
        let sent = greedy(&[(CallPriority::Urgent, true)], at(10), MINUTE);
        assert_eq!(most_in(MINUTE, &sent), POINTS_MAX);
        assert_eq!(sent.len(), 180, "GitHub allows 180 writes in a minute");
    }

    #[test]
    fn housekeeping_gives_way_to_reads_and_both_to_runners() {
        let mut budget = Budget::default();
        let mut used = Vec::new();
        for priority in [CallPriority::Housekeeping, CallPriority::Read, CallPriority::Urgent] {
            while budget.wait(at(0), priority, 1) == Duration::ZERO {
                budget.spend(at(0), 1);
            }
            used.push(budget.total);
        }
        assert_eq!(used, [450, 720, 900]);
        assert_eq!(
            budget.wait(at(1000), CallPriority::Urgent, 5),
            POINTS_WINDOW.saturating_sub(at(1000))
        );
        assert_eq!(budget.left(at(1000)), 0);
        assert_eq!(budget.wait(POINTS_WINDOW, CallPriority::Housekeeping, 5), Duration::ZERO);
    }

    #[test]
    fn the_wait_ends_as_soon_as_enough_points_are_free() {
        let mut budget = Budget::default();
        for second in 0..90 {
            budget.spend(at(second * 100), 10);
        }
        let now = at(10_000);
        let wait = budget.wait(now, CallPriority::Urgent, 5);
        assert_eq!(wait, POINTS_WINDOW.saturating_sub(now), "the first ten points are enough");
        let almost = (now + wait).saturating_sub(at(1));
        assert_eq!(budget.wait(almost, CallPriority::Urgent, 5), at(1));
        assert_eq!(budget.wait(now + wait, CallPriority::Urgent, 5), Duration::ZERO);
    }

    #[test]
    fn low_priorities_leave_the_hours_calls_to_higher_ones() {
        let mut budget = Budget::default();
        let reset = at(3_600_000);
        let hour = |remaining| HourLeft { limit: 5_000, remaining, reset };
        for (remaining, waits) in
            [(4_751, [0, 0, 0]), (4_750, [1, 0, 0]), (250, [1, 1, 0]), (0, [1; 3])]
        {
            budget.update_hour(hour(remaining));
            for (priority, wait) in
                [CallPriority::Housekeeping, CallPriority::Read, CallPriority::Urgent]
                    .into_iter()
                    .zip(waits)
            {
                let waits = !budget.wait(at(0), priority, 1).is_zero();
                assert_eq!(waits, wait == 1, "{priority:?} with {remaining}");
            }
        }
        budget.update_hour(hour(9));
        assert_eq!(budget.left(at(0)), 0, "an older answer that arrives later adds nothing");
        assert_eq!(budget.wait(reset, CallPriority::Housekeeping, 1), Duration::ZERO);
        budget.update_hour(HourLeft { reset: 2 * reset, ..hour(4_999) });
        assert_eq!(budget.left(reset), 999);
    }

    #[test]
    fn calls_without_an_answer_count_and_free_ones_do_not() {
        let mut budget = Budget::default();
        let hour = |remaining| HourLeft { limit: 5_000, remaining, reset: at(3_600_000) };
        budget.update_hour(hour(4_000));
        let under_way: Vec<_> = (0..1_000).map(|_| budget.spend(at(0), 0)).collect();
        assert_eq!(budget.left(at(0)), 600, "calls under way count");
        for spent in under_way {
            budget.answered(spent, at(1));
            budget.update_hour(hour(4_000));
        }
        assert_eq!(budget.left(at(1)), 800, "GitHub says that they were free");
        for _ in 0..500 {
            budget.spend(at(2), 0);
            budget.lost();
        }
        assert_eq!(budget.left(at(2)), 700, "they may have arrived");
    }

    #[test]
    fn a_rate_limit_pauses_every_priority() {
        let mut budget = Budget::default();
        budget.pause(at(30_000));
        budget.pause(at(10_000));
        assert_eq!(budget.wait(at(0), CallPriority::Urgent, 1), at(30_000));
        assert_eq!(budget.left(at(0)), 0);
        assert_eq!(budget.wait(at(30_000), CallPriority::Urgent, 1), Duration::ZERO);
    }
}
