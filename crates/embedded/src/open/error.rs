//! Why a database was not opened: what happened, where, and what to do about it.
//!
//! Not here: faults of a database that is open ([`crate::statement_fault`]).

use std::io;
use std::path::{Path, PathBuf};

/// A database that was not opened. Nothing in it was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file is there and is no SQLite database.
    #[error("{} is not a database", path.display())]
    NotADatabase {
        /// Where.
        path: PathBuf,
    },
    /// A database of another program, or another one of ours.
    #[error("{} is a database, but no {wanted} of Bullpen (application id {application_id:#x})", path.display())]
    Foreign {
        /// Where.
        path: PathBuf,
        /// What was to be opened.
        wanted: &'static str,
        /// Whose it says it is.
        application_id: u32,
    },
    /// Written by a newer version of Bullpen.
    #[error("{} has version {found}; this program knows up to {known}", path.display())]
    Newer {
        /// Where.
        path: PathBuf,
        /// Its version.
        found: usize,
        /// Ours.
        known: usize,
    },
    /// SQLite cannot make sense of it.
    #[error("{} cannot be read as a database", path.display())]
    Broken {
        /// Where.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// SQLite looked at its pages and found them at odds.
    #[error("{} is damaged: {finding}", path.display())]
    Damaged {
        /// Where.
        path: PathBuf,
        /// The first thing it found.
        finding: String,
    },
    /// A step from an older version did not work; the file is as it was.
    #[error("{} could not be brought to version {version}", path.display())]
    Migration {
        /// Where.
        path: PathBuf,
        /// To which version.
        version: usize,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// Others than its owner can reach what is secret in it, or it is another user's.
    #[error("{} is not private to this user (mode {mode:o}, of user {owner})", path.display())]
    Exposed {
        /// Where.
        path: PathBuf,
        /// Its mode.
        mode: u32,
        /// Whose it is.
        owner: u32,
        /// Who this process is.
        user: u32,
    },
    /// Another process held the database for too long.
    #[error("{} is held by another process", path.display())]
    Busy {
        /// Where.
        path: PathBuf,
    },
    /// Wake-ups between processes need a socket beside the database, and its path would not fit.
    #[error("{} lies too deep: at most {bytes_max} bytes of path are possible", path.display())]
    PathTooLong {
        /// Where.
        path: PathBuf,
        /// What the directory's path may have.
        bytes_max: usize,
    },
    /// The file system refused.
    #[error("could not open {}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

impl OpenError {
    pub(super) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { path: path.into(), source }
    }

    pub(super) fn broken(path: &Path, source: rusqlite::Error) -> Self {
        Self::Broken { path: path.into(), source }
    }

    /// What to do about it.
    pub fn hint(&self) -> String {
        let hint = match self {
            Self::Exposed { path, owner, user, .. } => return mends(path, *owner, *user),
            Self::NotADatabase { .. } | Self::Foreign { .. } => {
                "it was left untouched; move it away, or name another state directory"
            }
            Self::Newer { .. } => {
                "it was left untouched; run the Bullpen that wrote it, or a newer one"
            }
            Self::Broken { .. } | Self::Damaged { .. } => {
                "it was left untouched; copy it with its -wal file to a safe place, then restore a \
                 backup, or move it away to begin anew"
            }
            Self::Migration { .. } => {
                "the file is as it was; check the free space on its disk and try again, or run the \
                 Bullpen that wrote it"
            }
            Self::Busy { .. } => {
                "look for a stopped or stuck Bullpen process that uses the same state directory"
            }
            Self::PathTooLong { .. } => "name a state directory with a shorter path",
            Self::Io { .. } => "check that the directory exists and that this user may write in it",
        };
        hint.to_owned()
    }
}

/// What the owner, or root, runs to make it private.
fn mends(path: &Path, owner: u32, user: u32) -> String {
    let (mode, at) = (if path.is_dir() { "700" } else { "600" }, path.display());
    if owner == user {
        return format!("run `chmod {mode} {at}`");
    }
    format!("run this as user {owner}, or have root run `chown {user} {at} && chmod {mode} {at}`")
}
