//! Progress: the events that a long use case reports to its caller.
//!
//! They are not logs: they are the few things that a person at a terminal wants to see, as values.
//!
//! Not here: showing them (the command does).

use std::time::Duration;

use bullpen_core::ids::InstanceId;

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgressEvent {
    /// The request's entry is stored, and with it the label of its runners.
    Begun {
        /// The label.
        label: String,
    },
    /// The request was live already and has this many machines.
    Resumed {
        /// How many.
        machines: usize,
    },
    /// Workers look for this many runners among the idle machines.
    Selecting {
        /// How many.
        runners: usize,
    },
    /// The request launches this many machines.
    Launching {
        /// How many.
        machines: u32,
    },
    /// A machine's runner listens, this long after the request began.
    Ready {
        /// The machine.
        instance: InstanceId,
        /// The time since the request began.
        after: Duration,
    },
    /// A machine failed its check.
    Failed {
        /// The machine.
        instance: InstanceId,
        /// How it failed.
        why: String,
    },
    /// A ceiling has no capacity left; the request waits for others to release machines.
    WaitingForRoom {
        /// The ceiling that is reached.
        why: String,
    },
    /// A machine is idle again.
    Returned {
        /// The machine.
        instance: InstanceId,
    },
    /// A machine is ending.
    Ended {
        /// The machine.
        instance: InstanceId,
    },
    /// The release waits for the end of a job, or for an acknowledgement by an agent.
    Waiting {
        /// The machine.
        instance: InstanceId,
    },
}

/// Receives the events.
pub type ProgressObserver<'a> = &'a (dyn Fn(ProgressEvent) + Sync);

/// Ignores every event.
pub fn unobserved(_: ProgressEvent) {}
