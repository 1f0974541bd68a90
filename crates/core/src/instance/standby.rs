//! RunsOn's pool statuses, derived from the instance's state and never stored.
//!
//! Not here: writing the tag that shows them to operators.

use serde::{Deserialize, Serialize};

use super::{EndReason, Record, State};

/// The status of a pool's instance as operators see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StandbyStatus {
    /// Created for a pool, not yet warm.
    WarmingUp,
    /// Warm, of the stopped kind, not yet stopped.
    ReadyToStop,
    /// Idle.
    Ready,
    /// Taken from the pool by a job or a request.
    Detached,
    /// Ending because its warm-up or start failed.
    Error,
}

impl StandbyStatus {
    /// All statuses.
    pub const ALL: [Self; 5] =
        [Self::WarmingUp, Self::ReadyToStop, Self::Ready, Self::Detached, Self::Error];

    /// The status in the tag.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WarmingUp => "warming-up",
            Self::ReadyToStop => "ready-to-stop",
            Self::Ready => "ready",
            Self::Detached => "detached",
            Self::Error => "error",
        }
    }
}

/// The status of a pool's instance; none if no pool launched it, or if it ends for another reason.
pub fn standby_status(record: &Record) -> Option<StandbyStatus> {
    record.facts.pool.as_ref()?;
    match &record.state {
        State::Created { .. } => Some(StandbyStatus::WarmingUp),
        State::Stopping { .. } => Some(StandbyStatus::ReadyToStop),
        State::Idle { .. } => Some(StandbyStatus::Ready),
        State::Claimed { .. } | State::Running { .. } | State::Releasing { .. } => {
            Some(StandbyStatus::Detached)
        }
        State::Terminating { why: EndReason::FailedWarmUp | EndReason::FailedChecks, .. } => {
            Some(StandbyStatus::Error)
        }
        State::Terminating { .. } | State::Terminated { .. } => None,
    }
}

#[cfg(test)]
mod tests;
