//! What the agent needs from its machine besides the runner: the watchdog, scripts, and a place for
//! its notes. [`Host`] bundles them, so that the agent has one type parameter for all.
//!
//! Not here: the mailbox and the clock (the core's ports), or the runner program ([`crate::runner`]).

use std::future::Future;
use std::io;

use bullpen_core::time::Timestamp;

use crate::notes::Notes;
use crate::runner::Runner;
use crate::warm_up::{Step, StepFailed};

/// What ends the machine when nobody else does. Armed at boot, before the agent exists.
pub trait Watchdog: Send + Sync {
    /// The machine ends at this time at the latest. It can only be moved forward: a later time than
    /// the armed one changes nothing, so the agent shortens only when the machine is to end.
    fn shorten(&self, to: Timestamp) -> impl Future<Output = io::Result<()>> + Send;
}

/// Runs one step of the warm-up.
///
/// Contract: everything that the step started has ended, or is ended, when the future returns. A
/// future that is dropped may leave the step running; the next call of `end` ends it.
pub trait Scripts: Send + Sync {
    /// Runs it to its end.
    fn run(&self, step: &Step) -> impl Future<Output = Result<(), StepFailed>> + Send;
    /// Ends what a dropped `run` left, and returns the tail of its output.
    fn end(&self, step: &Step) -> impl Future<Output = String> + Send;
}

/// Keeps the agent's notes across its own death.
pub trait Notebook: Send + Sync {
    /// What was written last; nothing if nothing was, or if it cannot be read any more.
    fn load(&self) -> Option<Notes>;
    /// Replaces it, as a whole or not at all.
    fn save(&self, notes: &Notes) -> io::Result<()>;
}

/// The machine's side of one agent.
pub trait Host: Send + Sync {
    /// The runner program.
    type Runner: Runner;
    /// What ends the machine.
    type Watchdog: Watchdog;
    /// What runs the warm-up.
    type Scripts: Scripts;
    /// Where notes are kept.
    type Notebook: Notebook;

    /// The runner program.
    fn runner(&self) -> &Self::Runner;
    /// What ends the machine.
    fn watchdog(&self) -> &Self::Watchdog;
    /// What runs the warm-up.
    fn scripts(&self) -> &Self::Scripts;
    /// Where notes are kept.
    fn notebook(&self) -> &Self::Notebook;
}
