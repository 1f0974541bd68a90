//! What a call to GitHub is for, how urgent it is, and how much of GitHub's hour it leaves to more
//! urgent calls.
//!
//! GitHub allows a number of calls in an hour. A less urgent call is made only while more calls are
//! left than the more urgent ones may need until the reset. So calls that are not urgent are spread
//! over the hour, and what the hour has to spare is theirs before it ends.
//!
//! Not here: GitHub's points a minute, waiting (`bullpen-github`), or the cloud's rates (`rates`).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::sabotage;

/// GitHub's hour.
pub const HOUR: Duration = Duration::from_secs(60 * 60);

/// What a call to GitHub is for. The list is fixed: metrics and the simulator count by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallPurpose {
    /// A credential for a runner.
    Mint,
    /// Deleting a runner.
    Remove,
    /// Where the code of a run comes from.
    Origin,
    /// The state of a job that the service has, or of the other jobs of its run.
    Job,
    /// Searching for jobs that no webhook announced.
    Look,
    /// Searching for webhooks that were not delivered, and having them sent again.
    Redeliver,
    /// Telling a job's author why it has no runner.
    Tell,
    /// Cancelling a run.
    Cancel,
    /// Listing all runners.
    List,
    /// The configuration, runner groups, permissions and versions.
    Configure,
    /// A token for the calls themselves.
    Login,
}

impl CallPurpose {
    /// Every purpose.
    pub const ALL: [Self; 11] = [
        Self::Mint,
        Self::Remove,
        Self::Origin,
        Self::Job,
        Self::Look,
        Self::Redeliver,
        Self::Tell,
        Self::Cancel,
        Self::List,
        Self::Configure,
        Self::Login,
    ];

    /// The purpose as one word, for metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mint => "mint",
            Self::Remove => "remove",
            Self::Origin => "origin",
            Self::Job => "job",
            Self::Look => "look",
            Self::Redeliver => "redeliver",
            Self::Tell => "tell",
            Self::Cancel => "cancel",
            Self::List => "list",
            Self::Configure => "configure",
            Self::Login => "login",
        }
    }
}

/// How urgent a call is: a lower priority leaves part of GitHub's limits to the higher ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallPriority {
    /// No caller is blocked on it: searches, lists.
    Housekeeping,
    /// A caller needs the answer for a decision.
    Read,
    /// A job waits for it: a runner, or a token for requesting a runner.
    Urgent,
}

impl CallPriority {
    /// The part of the calls that the rest of the hour would have at an even pace, in thousandths,
    /// that this priority leaves to the higher ones. A service whose jobs take all but a twentieth of
    /// the hour has the twentieth left for housekeeping.
    const fn leaves_permille(self) -> u64 {
        match self {
            Self::Housekeeping => 950,
            Self::Read => 50,
            Self::Urgent => 0,
        }
    }
}

/// What is left of GitHub's hour. Times are on one monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HourLeft {
    /// The calls of a whole hour.
    pub limit: u64,
    /// The calls that are left.
    pub remaining: u64,
    /// When GitHub resets the count.
    pub reset: Duration,
}

impl HourLeft {
    /// How long a call of this priority has to wait.
    pub fn wait(&self, now: Duration, priority: CallPriority) -> Duration {
        let until_reset = self.reset.saturating_sub(now);
        if self.remaining == 0 {
            return until_reset;
        }
        let leaves = match priority {
            CallPriority::Housekeeping if sabotage!("looking-leaves-nothing-for-minting") => 0,
            priority => priority.leaves_permille(),
        };
        // In thousandths of a call, times the milliseconds of an hour: nothing is rounded.
        let limit = u128::from(self.limit.max(1)) * u128::from(leaves);
        let have = u128::from(self.remaining - 1) * 1_000 * HOUR.as_millis();
        let kept = limit * until_reset.as_millis();
        if kept <= have {
            return Duration::ZERO;
        }
        // The time until the reset at which no more is kept than is left.
        let enough = u64::try_from(have / limit.max(1)).unwrap_or(u64::MAX);
        until_reset.saturating_sub(Duration::from_millis(enough))
    }
}

/// How many calls were made for one purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallCount {
    /// Calls that were sent.
    pub sent: u64,
    /// Those of them that GitHub answered with "not modified": they cost nothing of the hour.
    pub free: u64,
}

/// How many calls one process has made, by purpose.
pub type CallCounts = BTreeMap<CallPurpose, CallCount>;

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn left(remaining: u64) -> HourLeft {
        HourLeft { limit: 5_000, remaining, reset: HOUR }
    }

    /// An hour in which jobs mint evenly and housekeeping takes all that it may; returns the calls
    /// of each, and how many mints had to wait.
    fn hour(mints: u64, other_reads: u64) -> (u64, u64, u64) {
        let (mut remaining, mut made, mut looked, mut waited) = (5_000, 0, 0, 0);
        let (mut mints_due, mut reads_due) = (0, 0);
        for second in 0..3_600 {
            let now = Duration::from_secs(second);
            let mut try_call = |priority| {
                let may = HourLeft { limit: 5_000, remaining, reset: HOUR }.wait(now, priority);
                remaining -= u64::from(may.is_zero());
                may.is_zero()
            };
            mints_due += mints;
            while mints_due >= 3_600 {
                mints_due -= 3_600;
                if try_call(CallPriority::Urgent) { made += 1 } else { waited += 1 }
            }
            reads_due += other_reads;
            while reads_due >= 3_600 {
                reads_due -= 3_600;
                let _ = try_call(CallPriority::Urgent);
            }
            while try_call(CallPriority::Housekeeping) {
                looked += 1;
            }
        }
        (made, looked, waited)
    }

    #[test]
    fn no_mint_of_a_hundred_thousand_jobs_a_day_waits_for_looking() {
        let (made, looked, waited) = hour(4_167, 417);
        assert_eq!((made, waited), (4_167, 0));
        assert!((300..=416).contains(&looked), "{looked} calls were left for housekeeping");
    }

    #[test]
    fn housekeeping_has_what_minting_does_not_need() {
        let (made, looked, waited) = hour(0, 0);
        assert_eq!((made, waited), (0, 0));
        assert!(looked > 4_900, "an idle hour was not used: {looked}");
    }

    #[test]
    fn housekeeping_is_spread_over_the_hour() {
        let mut remaining = 5_000;
        let mut looked = Vec::new();
        for minute in 0..60 {
            let now = MINUTE * minute;
            let mut count = 0;
            while (HourLeft { remaining, ..left(0) })
                .wait(now, CallPriority::Housekeeping)
                .is_zero()
            {
                remaining -= 1;
                count += 1;
            }
            looked.push(count);
        }
        assert!(looked[0] <= 250, "{looked:?}");
        assert!(looked[1..].iter().all(|calls| (75..=85).contains(calls)), "{looked:?}");
    }

    #[test]
    fn a_wait_ends_when_the_call_may_be_made() {
        for priority in [CallPriority::Housekeeping, CallPriority::Read, CallPriority::Urgent] {
            for remaining in [0, 1, 100, 2_500, 4_700] {
                let wait = left(remaining).wait(Duration::ZERO, priority);
                let then = left(remaining).wait(wait, priority);
                assert_eq!(then, Duration::ZERO, "{priority:?} with {remaining} after {wait:?}");
                if let Some(before) = wait.checked_sub(Duration::from_millis(2)) {
                    assert!(!left(remaining).wait(before, priority).is_zero(), "{priority:?}");
                }
            }
        }
        assert_eq!(left(0).wait(Duration::ZERO, CallPriority::Urgent), HOUR);
        assert_eq!(left(1).wait(Duration::ZERO, CallPriority::Urgent), Duration::ZERO);
    }

    #[test]
    fn every_purpose_has_a_word_of_its_own() {
        let words: std::collections::BTreeSet<_> =
            CallPurpose::ALL.iter().map(|purpose| purpose.as_str()).collect();
        assert_eq!(words.len(), CallPurpose::ALL.len());
    }
}
