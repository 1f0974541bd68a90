//! The runner program as the agent sees it: something that registers, listens, runs jobs and ends.
//!
//! There is at most one *listener* per machine. It outlives the agent that started it, so starting
//! one leaves a trace by which the next agent finds it ([`Runner::find`]).
//!
//! Not here: when to do any of it (`life`), or the official program itself ([`process`]).

use std::future::Future;
use std::io;

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

/// Why a listener does not listen.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("the runner program says: {detail}")]
pub struct ListenerRefusal {
    /// In the program's words.
    pub detail: String,
    /// Whether the cause is not the machine's: GitHub is down, refuses, or limits.
    pub systemic: bool,
}

impl ListenerRefusal {
    /// A cause of this machine's own.
    pub fn here(detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), systemic: false }
    }

    /// As the control plane reads it.
    pub fn report(&self) -> String {
        if self.systemic { format!("{SYSTEMIC} {}", self.detail) } else { self.detail.clone() }
    }
}

/// What an earlier agent left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeftListener {
    /// Nothing, or nothing since the last cleaning.
    Nothing,
    /// A listener that lives.
    Alive {
        /// What it was started for, without the credential.
        assignment: Assignment,
        /// Whether it listens already.
        listening: bool,
        /// The job it runs.
        job: Option<String>,
    },
    /// One that was started, perhaps registered, and is gone.
    Dead {
        /// What it was started for, without the credential.
        assignment: Assignment,
    },
}

/// What a listener was seen to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed {
    /// It listens for jobs.
    Listening {
        /// The runner's id at GitHub, where it is known.
        id: Option<String>,
    },
    /// A job started.
    JobStarted {
        /// Its name.
        name: String,
    },
    /// Which run the job is of that was started last. An agent that finds an earlier one's listener
    /// is told again.
    JobOf(RanJob),
    /// The job ended.
    JobFinished {
        /// Its name.
        name: String,
        /// In the program's words.
        result: String,
    },
    /// It said why it cannot go on; usually it ends next.
    Trouble(ListenerRefusal),
    /// It ended.
    Ended {
        /// With which code; unknown if another agent started it, or a signal ended it.
        code: Option<i32>,
    },
}

/// How ending a listener went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndOutcome {
    /// Nothing of it is left.
    Gone,
    /// A job runs on it, and it was to be spared then.
    Busy,
}

/// The runner program on this machine.
///
/// Contract: a credential is given by environment, never by argument, and is never written down.
/// Every future may be dropped; what it had begun is ended by `end`.
pub trait Runner: Send + Sync {
    /// What an earlier agent left. Whatever of it belongs to no known listener is ended.
    fn find(&self) -> impl Future<Output = io::Result<LeftListener>> + Send;
    /// Makes the runner known at GitHub where that is a step of its own (a registration token); no
    /// job can start before `listen`.
    fn register(&self, to: &Assignment)
    -> impl Future<Output = Result<(), ListenerRefusal>> + Send;
    /// Starts the listener.
    fn listen(&self, to: &Assignment) -> impl Future<Output = Result<(), ListenerRefusal>> + Send;
    /// The living listener serves this assignment from now on.
    fn adopt(&self, to: &Assignment) -> impl Future<Output = io::Result<()>> + Send;
    /// The next thing the listener does. Never returns while there is none. Nothing is lost when the
    /// future is dropped.
    fn observe(&self) -> impl Future<Output = Observed> + Send;
    /// Ends the listener and everything it started. Looks at it afresh first: with `unless_busy` a
    /// listener that runs a job is left alone.
    fn end(&self, unless_busy: bool) -> impl Future<Output = io::Result<EndOutcome>> + Send;
    /// Ends the listener and everything it started at once. A job that is asked to end may still run
    /// steps; one that is killed does not.
    fn kill(&self) -> impl Future<Output = io::Result<()>> + Send;
    /// Removes the runner at GitHub, with a token for that; only after `end`.
    fn deregister(
        &self,
        token: &Secret,
    ) -> impl Future<Output = Result<(), ListenerRefusal>> + Send;
    /// Removes what the owner left: work directory, temporary files, the registration's files.
    fn clean(&self) -> impl Future<Output = io::Result<()>> + Send;
}
