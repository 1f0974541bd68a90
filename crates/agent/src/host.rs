//! The agent's interfaces to its machine: the watchdog, scripts and a notebook. [`Host`] bundles
//! them with the runner, so that the agent has one type parameter for all.
//!
//! Not here: the mailbox and the clock (the core's ports), or the runner program
//! ([`crate::runner`]).

use std::future::Future;
use std::io;

use bullpen_core::time::Timestamp;

use crate::notes::Notes;
use crate::runner::Runner;
use crate::warm_up::{Step, StepFailed};

/// Ends the machine if nothing else does. The machine arms it at boot, before the agent starts.
pub trait Watchdog: Send + Sync {
    /// Sets the latest time of the machine's end. A later time than the armed time changes nothing,
    /// and there is no way back, so the agent calls this only when the machine must end.
    fn shorten(&self, to: Timestamp) -> impl Future<Output = io::Result<()>> + Send;
}

/// Runs one step of the warm-up.
///
/// Contract: the step has ended when the future returns. A dropped future may leave the step
/// running; the next call of `end` ends it.
pub trait Scripts: Send + Sync {
    /// Runs the step until it ends.
    fn run(&self, step: &Step) -> impl Future<Output = Result<(), StepFailed>> + Send;
    /// Ends a step that a dropped `run` left running, and returns the tail of its output.
    fn end(&self, step: &Step) -> impl Future<Output = String> + Send;
}

/// Keeps the agent's notes across its own death.
pub trait Notebook: Send + Sync {
    /// Reads the notes; `None` if there are none or they are unreadable.
    fn load(&self) -> Option<Notes>;
    /// Replaces the notes atomically.
    fn save(&self, notes: &Notes) -> io::Result<()>;
}

/// The machine's side of one agent.
pub trait Host: Send + Sync {
    /// The runner program.
    type Runner: Runner;
    /// Ends the machine.
    type Watchdog: Watchdog;
    /// Runs the warm-up's steps.
    type Scripts: Scripts;
    /// Keeps the agent's notes.
    type Notebook: Notebook;

    /// The runner program.
    fn runner(&self) -> &Self::Runner;
    /// The machine's watchdog.
    fn watchdog(&self) -> &Self::Watchdog;
    /// The runner of the warm-up's steps.
    fn scripts(&self) -> &Self::Scripts;
    /// The keeper of the agent's notes.
    fn notebook(&self) -> &Self::Notebook;
}
