//! The lock that shows whether a machine is up: its supervisor holds `life.lock`.
//!
//! The fleet takes the lock and passes it to the supervisor as standard input. The lock belongs to
//! the open file, so that it passes without a gap in which the machine would look dead. The kernel
//! releases it when the supervisor ends, in any way.
//!
//! Not here: repairing a machine whose lock is free (`machines`).

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use crate::write_gate::{LockWait, PATIENCE_MAX};

/// Takes the lock; waits for processes that are checking it.
pub(super) fn take(path: &Path) -> io::Result<File> {
    let file = open(path)?;
    let mut patience = LockWait::new(PATIENCE_MAX);
    for attempt in 0.. {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if patience.nap(attempt) => {}
            Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Ok(file)
}

/// Whether a process holds the lock. The check takes a shared lock, so that checks do not see each
/// other.
pub(super) fn is_held(path: &Path) -> io::Result<bool> {
    match open(path)?.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// The lock that this process inherited as standard input; otherwise takes the lock if it is free.
pub(super) fn inherited(path: &Path) -> io::Result<File> {
    let stdin = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let (found, wanted) = (stdin.metadata()?, open(path)?.metadata()?);
    let is_the_lock = (found.dev(), found.ino()) == (wanted.dev(), wanted.ino());
    let file = if is_the_lock { stdin } else { open(path)? };
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let why = "another supervisor holds this machine's lock";
            Err(io::Error::new(io::ErrorKind::WouldBlock, why))
        }
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}
