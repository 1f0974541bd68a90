//! Rows that a process sets aside, because it failed at them again and again ([`RowFailures`]), and the
//! note about one. The note is for people; no process decides by it.
//!
//! Not here: trying a row, or storing the note (`bullpen-engine`).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::limits::Limits;
use crate::ports::Fault;
use crate::sabotage;
use crate::time::Timestamp;

/// The collection of the notes, each under its job's id.
pub const COLLECTION: &str = "set-aside";

/// A failure that may be the row's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowFailure {
    /// The process panicked.
    Panic,
    /// A port answered with a fault that no retry mends.
    Fault,
}

impl RowFailure {
    /// The failure that a fault is, if it may be the row's own. A permission is the operator's to give,
    /// an unreadable item waits for its version, and every other fault may pass.
    pub const fn of(fault: &Fault) -> Option<Self> {
        match fault {
            Fault::NotFound | Fault::Unclassified(_) => Some(Self::Fault),
            Fault::Throttled
            | Fault::Unavailable(_)
            | Fault::NoCapacity
            | Fault::Denied(_)
            | Fault::Unreadable(_) => None,
        }
    }
}

/// How often a process failed at one row. Times are on its monotonic clock.
#[derive(Clone, Debug, Default)]
pub struct RowFailures {
    times: u32,
    /// How many rows the process had stored at the last failure.
    stored: u64,
    again_at: Duration,
}

impl RowFailures {
    /// Counts a failure; `stored`: how many rows the process has stored. Returns how often the process
    /// has failed, if it now sets the row aside.
    ///
    /// A fault does not count while the process stores no row at all: the store may be at fault.
    pub fn note(
        &mut self,
        failure: RowFailure,
        stored: u64,
        now: Duration,
        limits: &Limits,
    ) -> Option<u32> {
        if self.is_set_aside(now, limits) {
            // Only an attempt counts, and this one was none.
            return None;
        }
        let is_the_stores = failure == RowFailure::Fault && self.times > 0 && stored == self.stored;
        if is_the_stores && !sabotage!("outages-bury-rows") {
            return None;
        }
        self.times = self.times.saturating_add(1);
        self.stored = stored;
        self.again_at = now + limits.set_aside_for;
        (self.times >= limits.set_aside_after).then_some(self.times)
    }

    /// Whether the process leaves the row alone now.
    pub fn is_set_aside(&self, now: Duration, limits: &Limits) -> bool {
        self.times >= limits.set_aside_after
            && now < self.again_at
            && !sabotage!("poison-is-never-set-aside")
    }
}

/// Why a process has set a row aside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetAside {
    /// The last failure.
    pub what: String,
    /// How often the process failed.
    pub times: u32,
    /// When it last did.
    pub at: Timestamp,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "v")]
enum Stored {
    #[serde(rename = "1")]
    V1(SetAside),
}

impl SetAside {
    /// The stored form.
    pub fn encode(&self) -> String {
        serde_json::to_string(&Stored::V1(self.clone()))
            .expect("it has string keys only, so it serialises")
    }

    /// Reads the stored form.
    pub fn decode(text: &str) -> Result<Self, serde_json::Error> {
        let Stored::V1(note) = serde_json::from_str(text)?;
        Ok(note)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits::DEFAULT;

    #[test]
    fn a_fault_counts_only_while_other_rows_are_stored() {
        let most = LIMITS.set_aside_after;
        for (failure, alone) in [(RowFailure::Panic, most), (RowFailure::Fault, 1)] {
            let counted = |stored_between: u64| {
                let mut failures = RowFailures::default();
                for nth in 0..u64::from(most) {
                    let _ = failures.note(failure, nth * stored_between, Duration::ZERO, &LIMITS);
                }
                failures.times
            };
            assert_eq!((counted(0), counted(1)), (alone, most), "{failure:?}");
        }
    }

    #[test]
    fn a_row_that_is_set_aside_is_tried_again_at_intervals() {
        let (mut failures, lasts) = (RowFailures::default(), LIMITS.set_aside_for);
        let mut fail = |now| failures.note(RowFailure::Panic, 0, now, &LIMITS);
        for _ in 1..LIMITS.set_aside_after {
            assert_eq!(fail(Duration::ZERO), None);
        }
        assert_eq!(fail(Duration::ZERO), Some(LIMITS.set_aside_after));
        assert!(failures.is_set_aside(Duration::ZERO, &LIMITS));
        let nearly = lasts / 2;
        assert_eq!(failures.note(RowFailure::Panic, 0, nearly, &LIMITS), None, "it is left alone");
        assert!(!failures.is_set_aside(lasts, &LIMITS));
        assert!(failures.note(RowFailure::Panic, 0, lasts, &LIMITS).is_some());
        assert!(failures.is_set_aside(lasts, &LIMITS));
    }

    #[test]
    fn version_one_keeps_parsing() {
        let text = r#"{"v":"1","what":"a defect: odd","times":5,"at":"1970-01-01T00:00:01Z"}"#;
        let note = SetAside::decode(text).unwrap();
        let at = Timestamp::from_millis(1_000);
        assert_eq!(note, SetAside { what: "a defect: odd".to_owned(), times: 5, at });
        assert_eq!(SetAside::decode(&note.encode()).unwrap(), note);
    }
}
