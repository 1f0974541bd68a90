//! What was done about a job and when: the parts of its wait that are ours.
//!
//! A row is written where something is decided, and every such write brings its steps along; what a
//! worker did in between comes with its next write. So no step costs a write of its own, and only a
//! worker that dies takes some with it.
//!
//! Not here: what went wrong on the way (`reason`), GitHub's part (`fact`), or telling it (`explain`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Lane;
use crate::ids::InstanceId;
use crate::instance::Tier;
use crate::time::Timestamp;

/// How many steps a row remembers: a dozen for a job that all goes well with, and some attempts more.
pub const STEPS_KEPT_MAX: usize = 32;
/// How many of the first ones are never forgotten: they say where the job was sent, and when.
pub const STEPS_FIRST_KEPT: usize = 4;

/// One thing that was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "step")]
pub enum JobStep {
    /// We learned that it wants a runner.
    Heard,
    /// It was sent there.
    Routed {
        /// Where.
        lane: Lane,
    },
    /// A worker took it on.
    Begun,
    /// GitHub was asked for a credential for its runner.
    Asked,
    /// GitHub gave a credential for its runner.
    Minted,
    /// No idle machine was found that it may have.
    NothingIdle {
        /// How many were there and not for it, by reason (`pickup`).
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        unfit: BTreeMap<String, u32>,
    },
    /// An idle machine was taken for it.
    Claimed {
        /// Which one.
        instance: InstanceId,
        /// How it had come to be idle.
        tier: Tier,
    },
    /// A machine was launched for it.
    Launched {
        /// Which one.
        instance: InstanceId,
    },
    /// The new machine was warm.
    Warm,
    /// It had a machine.
    Assigned {
        /// How that was come by.
        how: MachineSource,
        /// Which one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instance: Option<InstanceId>,
    },
    /// Its runner listened for jobs.
    Listens,
    /// It exchanged machines with the job that had the runner GitHub gave it to.
    Exchanged {
        /// What it had from then on.
        instance: InstanceId,
    },
    /// It ran on a machine of ours, had none, and was given that one.
    Adopted {
        /// Which one.
        instance: InstanceId,
    },
    /// Its author was told why there is no runner.
    Told,
    /// Its run was cancelled.
    RunCancelled,
    /// Its machine was taken back.
    Released,
    /// A newer version did something that this one has no word for.
    #[serde(other)]
    Unknown,
}

impl JobStep {
    /// The step as one word.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Heard => "heard",
            Self::Routed { .. } => "routed",
            Self::Begun => "begun",
            Self::Asked => "asked",
            Self::Minted => "minted",
            Self::NothingIdle { .. } => "nothing-idle",
            Self::Claimed { .. } => "claimed",
            Self::Launched { .. } => "launched",
            Self::Warm => "warm",
            Self::Assigned { .. } => "assigned",
            Self::Listens => "listens",
            Self::Exchanged { .. } => "exchanged",
            Self::Adopted { .. } => "adopted",
            Self::Told => "told",
            Self::RunCancelled => "run-cancelled",
            Self::Released => "released",
            Self::Unknown => "unknown",
        }
    }
}

impl JobStep {
    /// Whether it is part of one attempt, and of no interest once another has come to the same.
    const fn is_of_an_attempt(&self) -> bool {
        match self {
            Self::Begun
            | Self::Asked
            | Self::Minted
            | Self::NothingIdle { .. }
            | Self::Claimed { .. }
            | Self::Launched { .. }
            | Self::Warm => true,
            Self::Heard
            | Self::Routed { .. }
            | Self::Assigned { .. }
            | Self::Listens
            | Self::Exchanged { .. }
            | Self::Adopted { .. }
            | Self::Told
            | Self::RunCancelled
            | Self::Released
            | Self::Unknown => false,
        }
    }
}

/// How a job's machine was come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MachineSource {
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct JobStepAt {
    /// When.
    pub at: Timestamp,
    /// What.
    #[serde(rename = "what")]
    pub step: JobStep,
}

/// Adds a step; if there are too many, the oldest but the first few is forgotten.
pub(super) fn remember(steps: &mut Vec<JobStepAt>, step: JobStepAt) {
    steps.push(step);
    while steps.len() > STEPS_KEPT_MAX {
        steps.remove(STEPS_FIRST_KEPT);
    }
}

/// Forgets the last attempt, which began after `since`.
pub(super) fn forget_attempt(steps: &mut Vec<JobStepAt>, since: Timestamp) {
    while steps.last().is_some_and(|last| last.at > since && last.step.is_of_an_attempt()) {
        steps.pop();
    }
}
