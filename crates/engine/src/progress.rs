//! What long work tells whoever waits for it.
//!
//! Telling is not logging: it is the few things a person at a terminal wants to see, as values.
//!
//! Not here: how they are shown (the command does).

use std::time::Duration;

use bullpen_core::ids::InstanceId;

/// One thing worth telling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgressEvent {
    /// The request's entry is stored, and with it the label of its runners.
    Begun {
        /// Which label.
        label: String,
    },
    /// The request was found live, with this many machines.
    Resumed {
        /// How many.
        machines: usize,
    },
    /// This many runners are looked for among the idle ones.
    Selecting {
        /// How many.
        runners: usize,
    },
    /// This many machines are being launched.
    Launching {
        /// How many.
        machines: u32,
    },
    /// A machine listens, this long after the beginning.
    Ready {
        /// Which.
        instance: InstanceId,
        /// Since when.
        after: Duration,
    },
    /// A machine did not do its part.
    Failed {
        /// Which.
        instance: InstanceId,
        /// What it failed to do.
        why: String,
    },
    /// There is no room under a ceiling; others are waited for.
    WaitingForRoom {
        /// Which ceiling.
        why: String,
    },
    /// A machine is idle again.
    Returned {
        /// Which.
        instance: InstanceId,
    },
    /// A machine is ending.
    Ended {
        /// Which.
        instance: InstanceId,
    },
    /// A job, or an agent's word, is waited for.
    Waiting {
        /// On which machine.
        instance: InstanceId,
    },
}

/// Whoever is told.
pub type ProgressObserver<'a> = &'a (dyn Fn(ProgressEvent) + Sync);

/// Tells nobody.
pub fn unobserved(_: ProgressEvent) {}
