//! The result of playing a scenario.
//!
//! Not here: playing it (`runner`).

use std::fmt;
use std::time::Duration;

use bullpen_core::invariants::Violation;

/// A scenario that was played to its end, or to the line where it broke.
#[derive(Clone, Debug)]
pub struct Played {
    /// The script with the results below each line, as far as it was played.
    pub transcript: String,
    /// Why it was not played to its end, if it was not.
    pub broken: Option<Broken>,
    /// Every event line, if a trace was requested.
    pub trace: Vec<String>,
}

/// Where and why a scenario broke.
#[derive(Clone, Debug)]
pub struct Broken {
    /// The line.
    pub line: usize,
    /// The time since the world began.
    pub at: Duration,
    /// The cause.
    pub why: Why,
}

/// Why a scenario broke.
#[derive(Clone, Debug)]
pub enum Why {
    /// An expectation is not met, or a line cannot be run.
    Unmet(String),
    /// An invariant is violated; with the last events of the machine concerned.
    Violated(Violation, Vec<String>),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, {} s into the story: ", self.line, self.at.as_secs())?;
        match &self.why {
            Why::Unmet(what) => f.write_str(what),
            Why::Violated(violation, history) => {
                write!(f, "{violation}")?;
                history.iter().try_for_each(|line| write!(f, "\n  {line}"))
            }
        }
    }
}
