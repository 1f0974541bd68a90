//! How far a process's clock is off, by the dates in other services' answers.
//!
//! An adapter notes each dated answer. A call takes time, and a date is in whole seconds, so an answer
//! proves a difference only beyond both.
//!
//! Not here: what a process with a wrong clock must not do (`bullpen-engine`).

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crate::sabotage;
use crate::time::Timestamp;

/// The precision of a date in an answer.
const DATE_STEP: Duration = Duration::from_secs(1);

/// What dated answers prove; shared by the adapters and the engine of one process.
#[derive(Clone, Debug)]
pub struct ClockWitness {
    ahead_millis: Arc<AtomicI64>,
    /// Whose answers it has seen, for people.
    of: &'static str,
}

impl Default for ClockWitness {
    fn default() -> Self {
        Self::of("GitHub")
    }
}

impl ClockWitness {
    /// A witness of this service's answers that has seen none yet.
    pub fn of(service: &'static str) -> Self {
        Self { ahead_millis: Arc::default(), of: service }
    }

    /// A witness that has seen a clock this many milliseconds ahead.
    pub fn ahead_by(millis: i64) -> Self {
        Self { ahead_millis: Arc::new(AtomicI64::new(millis)), ..Self::default() }
    }

    /// Notes an answer with this date, to a call that was made and answered at these times by the
    /// process's own clock. An answer that fits what is known proves nothing new: a call that waits
    /// for a message fits most differences.
    pub fn note(&self, sent: Timestamp, answered: Timestamp, dated: Timestamp) {
        let least = sent.as_millis() - dated.after(DATE_STEP).as_millis();
        let most = answered.as_millis() - dated.as_millis();
        // The known difference, or else the smallest that the answer allows.
        let known = self.ahead_millis.load(Ordering::Relaxed);
        let is_known = (least..=most).contains(&known);
        if !is_known {
            let smallest = if least > 0 { least } else { most.min(0) };
            self.ahead_millis.store(smallest, Ordering::Relaxed);
        }
    }

    /// By how many milliseconds the clock is ahead, at least; negative if it is behind, and zero if
    /// no answer proves a difference.
    pub fn ahead_millis(&self) -> i64 {
        if sabotage!("clocks-are-believed") { 0 } else { self.ahead_millis.load(Ordering::Relaxed) }
    }

    /// The difference, if it is more than `most`.
    pub fn more_than(&self, most: Duration) -> Option<ClockError> {
        let ahead_millis = self.ahead_millis();
        let most = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
        (ahead_millis.unsigned_abs() > most).then_some(ClockError { ahead_millis, of: self.of })
    }
}

/// A clock that is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this machine's clock is at least {} s {} {of}'s",
    ahead_millis.unsigned_abs().div_ceil(1_000),
    if *ahead_millis > 0 { "ahead of" } else { "behind" }
)]
pub struct ClockError {
    /// By how much it is ahead, at least; negative if it is behind.
    pub ahead_millis: i64,
    /// Whose answers prove it.
    pub of: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    #[test]
    fn only_a_difference_beyond_the_calls_time_is_proved() {
        for (sent, answered, dated, ahead) in [
            (100, 101, 100, 0),
            (100, 101, 101, 0),
            (100, 101, 99, 0),
            // A process that paused for a minute learns nothing from this answer.
            (100, 160, 130, 0),
            (100, 101, 80, 19_000),
            (100, 101, 121, -20_000),
        ] {
            let witness = ClockWitness::default();
            witness.note(seconds(sent), seconds(answered), seconds(dated));
            assert_eq!(witness.ahead_millis(), ahead, "{sent} {answered} {dated}");
        }
    }

    #[test]
    fn the_last_answer_counts() {
        let witness = ClockWitness::default();
        witness.note(seconds(100), seconds(100), seconds(10));
        let off = witness.more_than(Duration::from_secs(10)).unwrap();
        assert_eq!(off.to_string(), "this machine's clock is at least 89 s ahead of GitHub's");
        assert_eq!(witness.more_than(Duration::from_secs(90)), None);
        witness.note(seconds(100), seconds(100), seconds(100));
        assert_eq!(witness.more_than(Duration::ZERO), None);
    }

    #[test]
    fn an_answer_that_took_long_takes_nothing_back() {
        let witness = ClockWitness::of("AWS");
        witness.note(seconds(100), seconds(100), seconds(84));
        assert_eq!(witness.ahead_millis(), 15_000);
        // A call that waited twenty seconds for a message.
        witness.note(seconds(100), seconds(120), seconds(104));
        let off = witness.more_than(Duration::from_secs(10)).unwrap();
        assert_eq!(off.to_string(), "this machine's clock is at least 15 s ahead of AWS's");
        // The clock is set right.
        witness.note(seconds(120), seconds(120), seconds(120));
        assert_eq!(witness.ahead_millis(), 0);
    }
}
