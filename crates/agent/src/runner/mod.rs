//! The agent's interface to the runner program: register, start, watch and end its listener.
//!
//! There is at most one *listener* per machine. It outlives the agent that started it, so the agent
//! stores its identity for the next agent ([`Runner::find`]).
//!
//! Not here: when to do any of it (`agent_life`), or the official program itself ([`process`]).

use std::future::Future;
use std::io;
use std::time::Duration;

use bullpen_core::mailbox::{Assignment, SYSTEMIC, Secret};
use bullpen_core::request::stranger::RanJob;

pub mod confine;
mod hook;
pub(crate) mod leftovers;
pub mod markers;
mod poll_backoff;
pub mod process;
mod program;
pub mod state;
pub mod tree;
pub mod user;
mod watch;

/// How long the program takes at most to replace itself after its listener ended for an update; its own
/// `run.sh` waits as long.
pub const UPDATED_WITHIN: Duration = Duration::from_secs(30);

/// Why the runner program cannot register or listen.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("the runner program says: {detail}")]
pub struct ListenerRefusal {
    /// In the program's words.
    pub detail: String,
    /// Whether the cause is outside this machine: GitHub is down, refuses, or limits.
    pub systemic: bool,
}

impl ListenerRefusal {
    /// A refusal whose cause is on this machine.
    pub fn here(detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), systemic: false }
    }

    /// The text that the control plane reads.
    pub fn report(&self) -> String {
        if self.systemic { format!("{SYSTEMIC} {}", self.detail) } else { self.detail.clone() }
    }
}

/// The listener that an earlier agent left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeftListener {
    /// None since the last cleaning.
    Nothing,
    /// A running listener.
    Alive {
        /// Its assignment, without the credential.
        assignment: Assignment,
        /// Whether it listens already.
        listening: bool,
        /// The job it runs.
        job: Option<String>,
    },
    /// A listener that was started, perhaps registered, and is gone.
    Dead {
        /// Its assignment, without the credential.
        assignment: Assignment,
    },
}

/// Something that the listener did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed {
    /// It listens for jobs.
    Listening {
        /// The runner's id at GitHub, if known.
        id: Option<String>,
    },
    /// A job started.
    JobStarted {
        /// Its name.
        name: String,
    },
    /// The run of the job that started last. An agent that finds an earlier agent's listener
    /// observes this again.
    JobOf(RanJob),
    /// The job ended.
    JobFinished {
        /// Its name.
        name: String,
        /// In the program's words.
        result: String,
    },
    /// It printed why it cannot go on; usually it ends next.
    Trouble(ListenerRefusal),
    /// It ended.
    Ended {
        /// Its exit code; unknown if another agent started it, or a signal ended it.
        code: Option<i32>,
    },
}

/// The outcome of ending a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndOutcome {
    /// The listener and all its processes are gone.
    Gone,
    /// The listener runs a job, and the caller wanted to keep it in that case.
    Busy,
}

/// The runner program on this machine.
///
/// Contract: an implementation passes a credential by environment, never by argument, and never
/// writes it to a file. A caller may drop every future; `end` ends what it had started.
pub trait Runner: Send + Sync {
    /// Finds the listener that an earlier agent left, and ends processes that belong to no known
    /// listener.
    fn find(&self) -> impl Future<Output = io::Result<LeftListener>> + Send;
    /// Registers the runner at GitHub if that is a separate step (a registration token); no job can
    /// start before `listen`.
    fn register(&self, to: &Assignment)
    -> impl Future<Output = Result<(), ListenerRefusal>> + Send;
    /// Starts the listener.
    fn listen(&self, to: &Assignment) -> impl Future<Output = Result<(), ListenerRefusal>> + Send;
    /// Records that the running listener serves this assignment from now on.
    fn adopt(&self, to: &Assignment) -> impl Future<Output = io::Result<()>> + Send;
    /// Waits for the next thing that the listener does; without a listener it waits forever. A
    /// dropped future loses nothing.
    fn observe(&self) -> impl Future<Output = Observed> + Send;
    /// Ends the listener and everything it started. With `unless_busy` it first reads the
    /// listener's output again, and leaves a listener alone that runs a job.
    fn end(&self, unless_busy: bool) -> impl Future<Output = io::Result<EndOutcome>> + Send;
    /// Kills the listener and everything it started. A job that is asked to end may still run
    /// steps; a killed job does not.
    fn kill(&self) -> impl Future<Output = io::Result<()>> + Send;
    /// Removes the runner at GitHub with this token; only after `end`.
    fn deregister(
        &self,
        token: &Secret,
    ) -> impl Future<Output = Result<(), ListenerRefusal>> + Send;
    /// Removes the owner's work directory, temporary files and registration files.
    fn clean(&self) -> impl Future<Output = io::Result<()>> + Send;
}
