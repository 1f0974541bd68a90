//! The errors of opening a database, each with its place and a hint.
//!
//! Not here: faults of an open database ([`crate::statement_fault`]).

use std::io;
use std::path::{Path, PathBuf};

/// Why the program did not open a database. It changed nothing in the file.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file exists but is no SQLite database.
    #[error("{} is not a database", path.display())]
    NotADatabase {
        /// The file or directory.
        path: PathBuf,
    },
    /// A database of another program, or of another kind of ours.
    #[error("{} is a database, but no {wanted} of Bullpen (application id {application_id:#x})", path.display())]
    Foreign {
        /// The file or directory.
        path: PathBuf,
        /// The expected kind of database.
        wanted: &'static str,
        /// The application id in its header.
        application_id: u32,
    },
    /// A newer version of Bullpen wrote the file.
    #[error("{} has version {found}; this program knows up to {known}", path.display())]
    Newer {
        /// The file or directory.
        path: PathBuf,
        /// Its version.
        found: usize,
        /// The newest version that this program knows.
        known: usize,
    },
    /// SQLite cannot read the file.
    #[error("{} cannot be read as a database", path.display())]
    Broken {
        /// The file or directory.
        path: PathBuf,
        /// SQLite's error.
        source: rusqlite::Error,
    },
    /// SQLite checked the file's pages and found an inconsistency.
    #[error("{} is damaged: {finding}", path.display())]
    Damaged {
        /// The file or directory.
        path: PathBuf,
        /// The first inconsistency.
        finding: String,
    },
    /// A migration failed; the file is unchanged.
    #[error("{} could not be brought to version {version}", path.display())]
    Migration {
        /// The file or directory.
        path: PathBuf,
        /// The version that the migration should have made.
        version: usize,
        /// SQLite's error.
        source: rusqlite::Error,
    },
    /// Other users can read it, or another user owns it.
    #[error("{} is not private to this user (mode {mode:o}, of user {owner})", path.display())]
    Exposed {
        /// The file or directory.
        path: PathBuf,
        /// Its mode.
        mode: u32,
        /// The id of its owner.
        owner: u32,
        /// The id of this process's user.
        user: u32,
    },
    /// Another process held the database for too long.
    #[error("{} is held by another process", path.display())]
    Busy {
        /// The file or directory.
        path: PathBuf,
    },
    /// The path of the wake-up sockets beside the database would be too long for a socket.
    #[error("{} lies too deep: at most {bytes_max} bytes of path are possible", path.display())]
    PathTooLong {
        /// The file or directory.
        path: PathBuf,
        /// The longest possible path of the directory.
        bytes_max: usize,
    },
    /// The file system refused.
    #[error("could not open {}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The file system's error.
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

    /// What the operator can do about it.
    pub fn hint(&self) -> String {
        let hint = match self {
            Self::Exposed { path, owner, user, .. } => return repair_command(path, *owner, *user),
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

/// The command for the owner, or root, that makes it private.
fn repair_command(path: &Path, owner: u32, user: u32) -> String {
    let (mode, at) = (if path.is_dir() { "700" } else { "600" }, path.display());
    if owner == user {
        return format!("run `chmod {mode} {at}`");
    }
    format!("run this as user {owner}, or have root run `chown {user} {at} && chmod {mode} {at}`")
}
