//! Findings about a job's labels: errors, warnings and notes.
//!
//! Not here: errors in a single value (`value`), or limits on a label's amounts (`policy`).

use std::fmt;

use super::value::{ValueError, short};
use crate::severity::Severity;
use crate::spelling;

/// More findings than this are dropped: untrusted authors write labels, and the first few findings
/// are enough to act on.
const FINDINGS_MAX: usize = 64;

/// Collects the findings about one job.
#[derive(Clone, Debug, Default)]
pub(super) struct LabelFindings(pub(super) Vec<LabelFinding>);

impl LabelFindings {
    pub(super) fn add(&mut self, label: &str, key: Option<&str>, problem: Problem) {
        let is_error = |problem: &Problem| problem.severity() == Severity::Error;
        let first = is_error(&problem) && !self.0.iter().any(|found| is_error(&found.problem));
        // Many notes must not push out the error that refuses the job.
        if self.0.len() < FINDINGS_MAX || first {
            let label = label.chars().take(80).collect();
            self.0.push(LabelFinding { label, key: key.map(short), problem });
        }
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelFinding {
    /// The label, shortened.
    pub label: String,
    /// The key as written in the label, shortened.
    pub key: Option<String>,
    /// The problem with it.
    pub problem: Problem,
}

/// The kinds of findings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// A key that does not exist.
    #[error("there is no such key{}", spelling::hint(.suggestions))]
    UnknownKey {
        /// Similar keys.
        suggestions: Vec<&'static str>,
    },
    /// A part of a packed label that is not `key=value`.
    #[error("{part:?} is not a pair; write it as key=value")]
    NotAPair {
        /// The part, shortened.
        part: String,
    },
    /// A key without a value.
    #[error("the value is empty")]
    Empty,
    /// A key with two values.
    #[error("it is given twice, as {first:?} and as {second:?}")]
    Twice {
        /// The first value, shortened.
        first: String,
        /// The second value, shortened.
        second: String,
    },
    /// An invalid value.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// A label longer than the maximum.
    #[error("the label is longer than {} bytes", super::LABEL_BYTES_MAX)]
    TooLong,
    /// More labels than the maximum.
    #[error("the job has more than {} labels", super::LABELS_MAX)]
    TooManyLabels,
    /// More pairs than the maximum.
    #[error("the labels have more than {} pairs", super::PAIRS_MAX)]
    TooManyPairs,
    /// The key `fleet`, which belongs to another product.
    #[error("fleets belong to another product; name a pool instead, as pool=NAME")]
    NoFleets,
    /// A key that has no effect any more.
    #[error("it is deprecated and does nothing; write volume=80gb instead")]
    Deprecated,
    /// A key beside `pool`, which decides everything.
    #[error("it is ignored: the pool decides")]
    PoolDecides,
    /// A label that asks for nothing; `ownership` decides whether a runner may have it.
    #[error("it asks for nothing")]
    NotForUs,
    /// A label of a request's own runners.
    #[error("it belongs to a request, whose runners alone take the job")]
    OfARequest,
}

impl Problem {
    /// How much it matters.
    pub const fn severity(&self) -> Severity {
        match self {
            Self::UnknownKey { .. }
            | Self::NotAPair { .. }
            | Self::Empty
            | Self::Twice { .. }
            | Self::Value(_)
            | Self::TooLong
            | Self::TooManyLabels
            | Self::TooManyPairs
            | Self::NoFleets => Severity::Error,
            Self::Deprecated => Severity::Warning,
            Self::PoolDecides | Self::NotForUs | Self::OfARequest => Severity::Note,
        }
    }
}

impl LabelFinding {
    /// How much it matters.
    pub const fn severity(&self) -> Severity {
        self.problem.severity()
    }
}

impl fmt::Display for LabelFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "label {:?}: ", self.label)?;
        if let Some(key) = &self.key {
            write!(f, "{}: ", key.escape_debug())?;
        }
        write!(f, "{}", self.problem)
    }
}
