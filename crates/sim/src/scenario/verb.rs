//! The meanings of a scenario's lines.
//!
//! Not here: reading them (`parse`), or running them (`runner` and its neighbours).

use std::time::Duration;

use bullpen_core::class::{RunnerClass, Usage};
use bullpen_core::creation::Ceiling;
use bullpen_core::ids::{ClassName, InstanceType, RequestId, RunAttempt, SpecHash, Zone};
use bullpen_core::limits::Limits;
use bullpen_core::request::{OnPartial, TypePattern};

use super::expect::Expectation;
use super::serving::Serving;
use crate::model::fleet::Oddity;
use crate::storms::Storm;
use crate::wire::{Planned, Weather};

/// The setup of a world.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub(super) seed: u64,
    pub(super) limits: Limits,
    pub(super) ceilings: Vec<Ceiling>,
    pub(super) weak: bool,
    pub(super) skew: Duration,
}

/// Idle or stopped machines that a scenario starts with.
#[derive(Clone, Debug)]
pub(super) struct Put {
    pub(super) count: u32,
    pub(super) stopped: bool,
    pub(super) class: Option<ClassName>,
    pub(super) usage: Usage,
    pub(super) types: Vec<TypePattern>,
    pub(super) lasts: Option<Duration>,
    pub(super) spec_hash: Option<SpecHash>,
}

/// When a process dies.
#[derive(Clone, Debug)]
pub(super) enum Death {
    Await(u64),
    Call(Planned),
    After(Duration),
}

/// A request of a scenario.
#[derive(Clone, Debug)]
pub(super) struct Provision {
    pub(super) id: RequestId,
    pub(super) count: u32,
    pub(super) class: Option<ClassName>,
    pub(super) usage: Usage,
    pub(super) types: Vec<TypePattern>,
    pub(super) trust: String,
    pub(super) deadline: Option<Duration>,
    pub(super) on_partial: OnPartial,
    pub(super) fallback: bool,
    pub(super) spec_hash: Option<SpecHash>,
    pub(super) cancel_after: Option<Duration>,
}

/// The task of a process.
#[derive(Clone, Debug)]
pub(super) enum Task {
    Provision(Provision),
    Release { id: RequestId, within: Duration },
    Dump(RequestId),
    Refresh,
}

/// One process of the engine.
#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) task: Task,
    pub(super) death: Option<Death>,
}

/// How agents of machines that boot from now on behave.
#[derive(Clone, Copy, Debug)]
pub(super) enum Agents {
    Well,
    Mute,
    FailWarmUp,
    Crashing,
    Updating,
}

/// A stored item that a newer program rewrites.
#[derive(Clone, Copy, Debug)]
pub(super) enum Item {
    Record,
    Row,
    Journal,
    Report,
}

/// The views of `show`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Look {
    Records,
    Machines,
    Runners,
    Calls,
    Ended,
}

/// A change that lasts.
#[derive(Clone, Debug)]
pub(super) enum Change {
    RunEnds(RunAttempt),
    Weather(Weather),
    GitHub {
        down: bool,
    },
    /// GitHub gives no job to any listener, or gives them again.
    GivesNothing(bool),
    /// GitHub's client panics at credentials with a label that contains this.
    Breaks(String),
    /// GitHub answers no call about runs and jobs.
    Silent,
    Points(Option<u32>),
    Outage(Storm),
    OutageOver,
    /// A queue is removed; the name is without the stack's.
    QueueDeleted(String),
    Shortage {
        usage: Usage,
        instance_type: Option<InstanceType>,
        zone: Option<Zone>,
    },
    ShortageOver,
    Capacity(Option<u32>),
    Agents(Agents),
    Cloud {
        boot: Option<Duration>,
        visible_after: Option<Duration>,
        /// The most machines on one page of a listing.
        page: Option<usize>,
        /// The longest time for which an answer shows the state before.
        lag: Option<Duration>,
    },
}

/// A line about a request's jobs.
#[derive(Clone, Debug)]
pub(super) enum JobVerb {
    Submit { count: u32, of: RequestId, lasts: Duration },
    Await { of: RequestId, within: Duration },
    Cancel(RequestId),
}

/// The meaning of one line.
#[derive(Clone, Debug)]
pub(super) enum Verb {
    Class(RunnerClass),
    RemoveClass(ClassName),
    Put(Put),
    Run(Process),
    Meanwhile(Process),
    Await(RequestId),
    Upkeep(Duration),
    Pass(Duration),
    Jobs(JobVerb),
    Serving(Serving),
    Fault(Vec<Planned>),
    Lose(String),
    /// A machine is odd from now on, or no longer.
    Odd {
        name: String,
        oddity: Oddity,
        is_odd: bool,
    },
    /// A newer program rewrites an item, or makes it readable again.
    Rewrite {
        item: Item,
        name: String,
        newer: bool,
    },
    Change(Change),
    Show(Look),
    Expect(Expectation),
    Quiet,
}
