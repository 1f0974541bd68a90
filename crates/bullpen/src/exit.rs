//! Exit codes are API: scripts match on them. Add, never renumber.
//!
//! Not here: the messages that go with them.

use std::process::ExitCode;

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Done.
    Done = 0,
    /// Failed, with the reason.
    Failed = 1,
    /// A plan is not empty: there is something to do.
    Planned = 10,
    /// The arguments are off.
    Usage = 64,
    /// GitHub, or a store, did not answer.
    Unavailable = 69,
    /// There is no capacity; a retry may help.
    NoCapacity = 75,
    /// Interrupted, and cleaned up.
    Interrupted = 130,
    /// Terminated, and cleaned up.
    Terminated = 143,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
