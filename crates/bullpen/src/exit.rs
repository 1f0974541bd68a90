//! The exit codes. They are API, because scripts match on them: add codes, never renumber them.
//!
//! Not here: the messages.

use std::process::ExitCode;

/// A command's exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// The command succeeded.
    Done = 0,
    /// The command failed, and printed the reason.
    Failed = 1,
    /// A plan has actions.
    Planned = 10,
    /// The arguments or the configuration are wrong.
    Usage = 64,
    /// GitHub or a store did not answer.
    Unavailable = 69,
    /// There is no capacity; a retry may help.
    NoCapacity = 75,
    /// SIGINT ended the command, which cleaned up.
    Interrupted = 130,
    /// SIGTERM ended the command, which cleaned up.
    Terminated = 143,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
