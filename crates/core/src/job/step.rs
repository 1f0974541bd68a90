//! What was done about a job and when: the parts of its wait that are ours.
//!
//! Not here: what went wrong on the way (`reason`), or GitHub's part (`fact`).

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// One thing that was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "step")]
pub enum Step {
    /// A worker took it on.
    Begun,
    /// It had a machine.
    Assigned {
        /// How that was come by.
        how: How,
    },
}

/// How a job's machine was come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// It was the job's already: an earlier worker had taken it.
    Continued,
    /// It stood by in the job's pool.
    Picked,
    /// It was idle in the resource pool.
    Reused,
    /// It was launched for the job.
    Created,
}

/// A step, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct StepAt {
    /// When.
    pub at: Timestamp,
    /// What.
    #[serde(rename = "what")]
    pub step: Step,
}
