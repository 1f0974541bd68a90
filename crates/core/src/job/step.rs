//! Steps: what the service did about a job, and when.
//!
//! A process that writes a decision to a row writes its steps with it; a worker's steps in between
//! come with its next write. So no step costs a write of its own, and only a worker that dies loses
//! some.
//!
//! Not here: failures on the way (`reason`), GitHub's part (`fact`), or explaining it (`explain`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Lane;
use crate::ids::InstanceId;
use crate::instance::Tier;
use crate::time::Timestamp;

/// How many steps a row keeps: a dozen for a job without setbacks, and some more attempts.
pub const STEPS_KEPT_MAX: usize = 32;
/// How many of the first steps a row always keeps: they show where the job was sent, and when.
pub const STEPS_FIRST_KEPT: usize = 4;

/// One thing that the service did about a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "step")]
pub enum JobStep {
    /// The service learned that it wants a runner.
    Heard,
    /// The service sent it to a lane.
    Routed {
        /// Which one.
        lane: Lane,
    },
    /// A worker took it on.
    Begun,
    /// The worker asked GitHub for a credential for its runner.
    Asked,
    /// GitHub gave a credential for its runner.
    Minted,
    /// The worker found no idle machine that it may have.
    NothingIdle {
        /// How many idle machines did not fit, by reason (`pickup`).
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        unfit: BTreeMap<String, u32>,
    },
    /// The worker claimed an idle machine for it.
    Claimed {
        /// Which one.
        instance: InstanceId,
        /// The machine's tier.
        tier: Tier,
    },
    /// The worker launched a machine for it.
    Launched {
        /// Which one.
        instance: InstanceId,
    },
    /// The new machine completed its warm-up.
    Warm,
    /// It had a machine.
    Assigned {
        /// How the worker got it.
        how: MachineSource,
        /// Which one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instance: Option<InstanceId>,
    },
    /// Its runner listened for jobs.
    Listens,
    /// GitHub gave it to the runner of another job.
    Exchanged {
        /// The machine that it runs on.
        instance: InstanceId,
    },
    /// It ran on another job's machine, and its own was kept for a job that waited.
    Adopted {
        /// Which one.
        instance: InstanceId,
    },
    /// The service told its author why there is no runner.
    Told,
    /// Its run was cancelled.
    RunCancelled,
    /// The service released its machine.
    Released,
    /// A step of a newer version, which this version does not know.
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
    /// Whether it belongs to one attempt, and is of no interest once the next has failed alike.
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

/// How a job got its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MachineSource {
    /// The job had it already: an earlier worker had claimed it.
    Continued,
    /// It stood by in the job's pool.
    Picked,
    /// It was idle in the resource pool.
    Reused,
    /// It was launched for the job.
    Created,
}

/// A step with its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct JobStepAt {
    /// The time.
    pub at: Timestamp,
    /// The step.
    #[serde(rename = "what")]
    pub step: JobStep,
}

/// Adds a step; if there are too many, drops the oldest after the first few.
pub(super) fn remember(steps: &mut Vec<JobStepAt>, step: JobStepAt) {
    steps.push(step);
    while steps.len() > STEPS_KEPT_MAX {
        steps.remove(STEPS_FIRST_KEPT);
    }
}

/// Drops the steps of the last attempt, which began after `since`.
pub(super) fn forget_attempt(steps: &mut Vec<JobStepAt>, since: Timestamp) {
    while steps.last().is_some_and(|last| last.at > since && last.step.is_of_an_attempt()) {
        steps.pop();
    }
}
