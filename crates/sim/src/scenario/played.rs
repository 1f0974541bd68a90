//! What came of playing a scenario.
//!
//! Not here: playing it (`runner`).

use std::fmt;
use std::time::Duration;

use bullpen_core::invariants::Violation;

/// A scenario that was played to its end, or to where it broke.
#[derive(Clone, Debug)]
pub struct Played {
    /// The script with what happened below each line, as far as it was played.
    pub transcript: String,
    /// Why it was not played to its end, if it was not.
    pub broken: Option<Broken>,
    /// Every ledger write and every end of a machine, if they were asked for.
    pub trace: Vec<String>,
}

/// Where a play broke, and why.
#[derive(Clone, Debug)]
pub struct Broken {
    /// The line it broke at.
    pub line: usize,
    /// Since the world began.
    pub at: Duration,
    /// What broke it.
    pub why: Why,
}

/// What broke a play.
#[derive(Clone, Debug)]
pub enum Why {
    /// An expectation does not hold, or what a line asks for cannot be.
    Unmet(String),
    /// An invariant is violated; with the last lines about the machine concerned.
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
