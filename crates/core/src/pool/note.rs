//! Notes: what a pool waits on, as texts for people and as codes that stay.
//!
//! Not here: showing them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::creation::Scope;
use crate::time::Timestamp;

/// Why a plan goes no further now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "kebab-case", tag = "note")]
pub enum Note {
    /// An operator paused the pool.
    Paused,
    /// An operator empties the pool.
    Draining {
        /// Machines that are still in use.
        in_use: usize,
    },
    /// The pool is no longer configured.
    Removed {
        /// Machines that are still in use.
        in_use: usize,
    },
    /// No entry of the schedule applies now.
    NoEntry,
    /// A ceiling allows no more machines.
    Ceiling {
        /// The ceiling's scope.
        scope: Scope,
        /// How many it allows.
        max: u32,
        /// How many count under it.
        used: u32,
        /// How many more are wanted.
        short: usize,
    },
    /// The cloud has no capacity.
    NoCapacity {
        /// How many more are wanted.
        short: usize,
        /// When the planner asks the cloud again.
        until: Timestamp,
    },
    /// The wanted specification does not boot.
    Quarantined {
        /// How many boots failed in a row.
        failed: usize,
        /// When the planner tries it again.
        until: Timestamp,
    },
    /// The planner tries one machine of a specification that did not boot.
    Probing {
        /// How many boots failed in a row.
        failed: usize,
    },
    /// The rollout waits because a boot failed.
    RolloutPaused {
        /// How many boots failed in a row.
        failed: usize,
        /// How many old machines stay meanwhile.
        old: usize,
    },
    /// The rollout goes on.
    RollingOut {
        /// How many old machines are left.
        old: usize,
    },
    /// Machines are due to be replaced.
    Expiring {
        /// How many.
        count: usize,
    },
    /// Machines are being launched.
    Launching {
        /// How many.
        count: usize,
    },
    /// Machines are warming up.
    WarmingUp {
        /// How many.
        count: usize,
    },
    /// Machines are being stopped.
    Stopping {
        /// How many.
        count: usize,
    },
    /// Machines are stopped, but a late stop call may still land.
    Fenced {
        /// How many.
        count: usize,
        /// When no stop call can land any more.
        until: Timestamp,
    },
    /// The cloud does not list machines that it should list.
    Unseen {
        /// How many.
        count: usize,
    },
}

impl Note {
    /// Whether the wait ends by itself and soon, so that it is worth looking often.
    pub const fn is_passing(&self) -> bool {
        match self {
            Self::Launching { .. }
            | Self::WarmingUp { .. }
            | Self::Stopping { .. }
            | Self::Fenced { .. } => true,
            Self::Paused
            | Self::Draining { .. }
            | Self::Removed { .. }
            | Self::NoEntry
            | Self::Ceiling { .. }
            | Self::NoCapacity { .. }
            | Self::Quarantined { .. }
            | Self::Probing { .. }
            | Self::RolloutPaused { .. }
            | Self::RollingOut { .. }
            | Self::Expiring { .. }
            | Self::Unseen { .. } => false,
        }
    }

    /// The note as one word, for conditions and metrics.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Paused => "paused",
            Self::Draining { .. } => "draining",
            Self::Removed { .. } => "removed",
            Self::NoEntry => "no-entry",
            Self::Ceiling { .. } => "ceiling",
            Self::NoCapacity { .. } => "no-capacity",
            Self::Quarantined { .. } => "quarantined",
            Self::Probing { .. } => "probing",
            Self::RolloutPaused { .. } => "rollout-paused",
            Self::RollingOut { .. } => "rolling-out",
            Self::Expiring { .. } => "expiring",
            Self::Launching { .. } => "launching",
            Self::WarmingUp { .. } => "warming-up",
            Self::Stopping { .. } => "stopping",
            Self::Fenced { .. } => "fenced",
            Self::Unseen { .. } => "unseen",
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paused => f.write_str("paused by an operator: nothing is changed"),
            Self::Draining { in_use } => {
                write!(f, "drained by an operator; still in use: {in_use}")
            }
            Self::Removed { in_use } => {
                write!(f, "no longer in the configuration; still in use: {in_use}")
            }
            Self::NoEntry => {
                f.write_str("no entry of the schedule applies now, so that nothing is kept")
            }
            Self::Ceiling { scope, max, used, short } => {
                write!(f, "{scope} holds {used} of at most {max} machines; wanted more: {short}")
            }
            Self::NoCapacity { short, until } => write!(
                f,
                "the cloud had no capacity and is asked again at {until}; wanted more: {short}"
            ),
            Self::Quarantined { failed, until } => write!(
                f,
                "the last {failed} boots of this specification failed: none is tried until {until}, \
                 and old machines are kept as long as they may live"
            ),
            Self::Probing { failed } => write!(
                f,
                "the last {failed} boots of this specification failed: one machine is tried at a time"
            ),
            Self::RolloutPaused { failed, old } => write!(
                f,
                "replacing waits until a machine boots; failed in a row: {failed}, old machines \
                 kept: {old}"
            ),
            Self::RollingOut { old } => {
                write!(f, "old machines are replaced a few at a time; left: {old}")
            }
            Self::Expiring { count } => {
                write!(
                    f,
                    "due to be replaced, and kept until their replacements are ready: {count}"
                )
            }
            Self::Launching { count } => write!(f, "being launched: {count}"),
            Self::WarmingUp { count } => write!(f, "warming up: {count}"),
            Self::Stopping { count } => write!(f, "being stopped: {count}"),
            Self::Fenced { count, until } => write!(
                f,
                "stopped, and left alone until {until} because a stop call may be late: {count}"
            ),
            Self::Unseen { count } => {
                write!(f, "not listed by the cloud, and counted until that is certain: {count}")
            }
        }
    }
}
