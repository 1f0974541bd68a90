//! What a plan says: actions in their order, and notes. Its JSON is read by scripts and kept between
//! passes: names in it stay.
//!
//! Not here: carrying one out (the engine), or deciding on it (`plan`).

use serde::{Deserialize, Serialize};

use super::note::Note;
use crate::class::Usage;
use crate::ids::InstanceId;
use crate::instance::EndReason;

/// Which step of the plan ends a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// It cannot be used: its warm-up failed, or the cloud took or takes it away.
    Error,
    /// It was not ready in time, or its time is over.
    Dangling,
    /// It is built otherwise than would be built now.
    Outdated,
    /// There are more than wanted, or its replacement is ready.
    Excess,
}

impl Cause {
    /// The cause as one word, for logs and metrics.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Dangling => "dangling",
            Self::Outdated => "outdated",
            Self::Excess => "excess",
        }
    }
}

/// A machine to end, and what its record is to say.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MachineEnding {
    /// Which machine.
    pub id: InstanceId,
    /// Why.
    pub why: EndReason,
}

/// Why a machine is stopped: which event its record takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StopWhy {
    /// It completed its warm-up and is to be kept stopped.
    WarmedUp,
    /// Its record says stopped and the cloud says running.
    FoundRunning,
    /// The last stop call did not do it and can no longer land.
    Again,
}

impl StopWhy {
    /// The reason as one word, for logs and metrics.
    pub const fn code(self) -> &'static str {
        match self {
            Self::WarmedUp => "warmed-up",
            Self::FoundRunning => "found-running",
            Self::Again => "again",
        }
    }
}

/// Something to do. It names everything: nothing is left to decide. Everything of one kind is one
/// action, to be sent in as few calls as the cloud allows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "action", content = "of")]
pub enum Action {
    /// End these.
    Terminate {
        /// Which step says so.
        cause: Cause,
        /// Which machines.
        endings: Vec<MachineEnding>,
    },
    /// Their warm-up is complete and they stay running: idle from now on. Only the ledger changes.
    KeepHot(Vec<InstanceId>),
    /// The cloud has stopped them: idle from now on. Only the ledger changes.
    KeepStopped(Vec<InstanceId>),
    /// Stop these, each under a new operation.
    Stop(Vec<(InstanceId, StopWhy)>),
    /// Launch this many in one call. What is to be stopped later is launched like what stays hot: which
    /// of the machines becomes which is decided when they are warm.
    Create {
        /// How they are paid for.
        usage: Usage,
        /// How many of them for the hot ones.
        hot: u32,
        /// How many of them for the stopped ones.
        stopped: u32,
    },
}

impl Action {
    /// The machines that it touches; none for a launch.
    pub fn touches(&self) -> Vec<&InstanceId> {
        match self {
            Self::Terminate { endings, .. } => endings.iter().map(|ending| &ending.id).collect(),
            Self::KeepHot(ids) | Self::KeepStopped(ids) => ids.iter().collect(),
            Self::Stop(stops) => stops.iter().map(|(id, _)| id).collect(),
            Self::Create { .. } => Vec::new(),
        }
    }
}

/// What to do for one pool now, and why no more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// In the order in which they are to be done.
    pub actions: Vec<Action>,
    /// What the pool waits on.
    pub notes: Vec<Note>,
}

impl Plan {
    pub(super) fn terminate(&mut self, cause: Cause, mut endings: Vec<MachineEnding>) {
        if !endings.is_empty() {
            endings.sort();
            self.actions.push(Action::Terminate { cause, endings });
        }
    }

    pub(super) fn keep(&mut self, of: fn(Vec<InstanceId>) -> Action, mut ids: Vec<InstanceId>) {
        if !ids.is_empty() {
            ids.sort();
            self.actions.push(of(ids));
        }
    }

    pub(super) fn stop(&mut self, mut stops: Vec<(InstanceId, StopWhy)>) {
        if !stops.is_empty() {
            stops.sort();
            self.actions.push(Action::Stop(stops));
        }
    }

    pub(super) fn create(&mut self, usage: Usage, hot: usize, stopped: usize) {
        if hot + stopped > 0 {
            let (hot, stopped) = (count(hot), count(stopped));
            self.actions.push(Action::Create { usage, hot, stopped });
        }
    }
}

/// As many as a launch can ask for.
pub(super) fn count(machines: usize) -> u32 {
    u32::try_from(machines).unwrap_or(u32::MAX)
}
