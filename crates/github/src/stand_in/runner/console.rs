//! The program's output: plain lines, and lines with the time, which the agent reads.
//!
//! Not here: what the lines say.

use std::io::Write;
use std::sync::{Mutex, PoisonError};

use bullpen_core::ports::Clock;
use bullpen_core::time::Timestamp;

/// The program's output.
pub(super) struct Console<'a, C, W> {
    clock: &'a C,
    out: Mutex<W>,
}

impl<'a, C: Clock, W: Write> Console<'a, C, W> {
    pub(super) fn new(clock: &'a C, out: W) -> Self {
        Self { clock, out: Mutex::new(out) }
    }

    /// A plain line.
    pub(super) fn say(&self, line: &str) {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        // If the reader is gone there is nowhere to report that.
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    }

    /// A line that begins with the time.
    pub(super) fn line_with_time(&self, line: &str) {
        self.say(&format!("{}: {line}", stamp(self.clock.now())));
    }
}

/// `2026-11-15 10:00:00Z`, as the official program writes it.
fn stamp(at: Timestamp) -> String {
    let millis = at.as_millis();
    Timestamp::from_millis(millis - millis.rem_euclid(1000)).to_string().replace('T', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_has_whole_seconds_and_no_letter_in_it() {
        assert_eq!(stamp(Timestamp::from_millis(1_794_736_800_250)), "2026-11-15 10:00:00Z");
        assert_eq!(stamp(Timestamp::EPOCH), "1970-01-01 00:00:00Z");
    }
}
