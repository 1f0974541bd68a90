//! A plan's parts: ordered actions, and notes. Scripts read its JSON, and the service stores parts
//! of it, so the names in it stay.
//!
//! Not here: carrying an action out (the engine), or deciding on it (`plan`).

use serde::{Deserialize, Serialize};

use super::note::Note;
use crate::class::Usage;
use crate::ids::{InstanceId, PoolName, StopOp};
use crate::instance::{AfterWarmUp, EndReason, InstanceEvent};
use crate::limits::Limits;
use crate::time::Timestamp;

/// Which step of the plan ends a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// It cannot be used: its warm-up failed, or the cloud took or takes it away.
    Error,
    /// It was not ready in time, or its deadline has passed.
    Dangling,
    /// It has another specification than the wanted one.
    Outdated,
    /// The pool has more than it wants, or the machine's replacement is ready.
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

/// A machine to end, with the reason for its record.
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
    /// The last stop call did not stop it and can no longer land.
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

    /// The event of a record whose machine is stopped for this reason, under a new operation whose call
    /// may land until `limits.stop_fence` from now.
    pub fn event(
        self,
        pool: &PoolName,
        op: StopOp,
        now: Timestamp,
        limits: &Limits,
    ) -> InstanceEvent {
        let (until, deadline) = (now.after(limits.stop_fence), now.after(limits.warm_up));
        match self {
            Self::WarmedUp => InstanceEvent::WarmedUp {
                pool: pool.clone(),
                at: now,
                into: AfterWarmUp::ToStop { op, until, deadline },
            },
            Self::FoundRunning => InstanceEvent::FoundRunning { op, until, deadline },
            Self::Again => InstanceEvent::StopAgain { op, until },
        }
    }
}

/// The event of a record whose machine has stopped and is kept.
pub fn found_stopped(shared: bool, now: Timestamp, limits: &Limits) -> InstanceEvent {
    let (skew, deadline) = (limits.clock_skew, now.after(limits.idle_stopped));
    InstanceEvent::FoundStopped { at: now, skew, deadline, shared }
}

/// An action that leaves the engine nothing to decide. All changes of one kind are one action, so
/// that the engine needs as few calls as the cloud allows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "action", content = "of")]
pub enum Action {
    /// End these machines.
    Terminate {
        /// The step that ends them.
        cause: Cause,
        /// Which machines.
        endings: Vec<MachineEnding>,
    },
    /// Keep these warm machines running: they are idle from now on. Only the ledger changes.
    KeepHot(Vec<InstanceId>),
    /// Keep these stopped machines: they are idle from now on. Only the ledger changes.
    KeepStopped(Vec<InstanceId>),
    /// Stop these, each under a new operation.
    Stop(Vec<(InstanceId, StopWhy)>),
    /// Launch this many in one call. All are launched alike: a later plan decides which of them
    /// stay hot and which are stopped, when they are warm.
    Create {
        /// How they are paid for.
        usage: Usage,
        /// How many of them for hot places.
        hot: u32,
        /// How many of them for stopped places.
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

/// What to do for one pool now, and why not more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The actions, in the order in which the engine carries them out.
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

/// The count as a launch stores it, at most the largest number that it can store.
pub(super) fn count(machines: usize) -> u32 {
    u32::try_from(machines).unwrap_or(u32::MAX)
}
