//! What is wrong with, or worth saying about, a job's labels.
//!
//! Not here: what is wrong with a value alone (`value`), or with what it asks for (`policy`).

use std::fmt;

use super::value::{ValueError, short};
use crate::severity::Severity;
use crate::spelling;

/// More than this is not said: the first few are enough to act on, and strangers write the labels.
const FINDINGS_MAX: usize = 64;

/// What is said about one job, as it is collected.
#[derive(Clone, Debug, Default)]
pub(super) struct LabelFindings(pub(super) Vec<LabelFinding>);

impl LabelFindings {
    pub(super) fn say(&mut self, label: &str, key: Option<&str>, problem: Problem) {
        let is_error = |problem: &Problem| problem.severity() == Severity::Error;
        let first = is_error(&problem) && !self.0.iter().any(|said| is_error(&said.problem));
        // A crowd of notes must not push out the error that refuses the job.
        if self.0.len() < FINDINGS_MAX || first {
            let label = label.chars().take(80).collect();
            self.0.push(LabelFinding { label, key: key.map(short), problem });
        }
    }
}

/// One thing to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelFinding {
    /// The label it is in, shortened.
    pub label: String,
    /// The key it is about, as it was written, shortened.
    pub key: Option<String>,
    /// What it is.
    pub problem: Problem,
}

/// The kinds of things to say.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// A key that there is not.
    #[error("there is no such key{}", spelling::hint(.suggestions))]
    UnknownKey {
        /// Those it resembles.
        suggestions: Vec<&'static str>,
    },
    /// A part of a packed label that is no pair.
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
        /// What came first, shortened.
        first: String,
        /// What came then, shortened.
        second: String,
    },
    /// A value that is none.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// A label longer than can be read.
    #[error("the label is longer than {} bytes", super::LABEL_BYTES_MAX)]
    TooLong,
    /// More labels than can be read.
    #[error("the job has more than {} labels", super::LABELS_MAX)]
    TooManyLabels,
    /// More pairs than can be read.
    #[error("the labels have more than {} pairs", super::PAIRS_MAX)]
    TooManyPairs,
    /// Another product's fleets.
    #[error("fleets belong to another product; name a pool instead, as pool=NAME")]
    NoFleets,
    /// A key that does nothing any more.
    #[error("it is deprecated and does nothing; write volume=80gb instead")]
    Deprecated,
    /// A pool decides everything.
    #[error("it is ignored: the pool decides")]
    PoolDecides,
    /// A label of the job that asks for nothing; whether a runner may have it is `ownership`'s to say.
    #[error("it says nothing to us")]
    NotForUs,
    /// A label that one request's runners have.
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
