//! Life is a lock: a machine is up as long as somebody holds its `life.lock`.
//!
//! The fleet takes the lock, and the supervisor gets it as its standard input: the lock belongs to
//! the open file, so it passes from one process to the other without a gap in which the machine
//! would look dead. The kernel drops it with the supervisor, however that ends.
//!
//! Not here: what is done about a machine whose lock is free.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use crate::write_gate::{LockWait, PATIENCE_MAX};

/// Takes the lock, as soon as nobody looks at it.
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

/// Whether anybody holds it. The look itself is a shared lock, so that looks do not see each other.
pub(super) fn is_held(path: &Path) -> io::Result<bool> {
    match open(path)?.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// The lock that this process was given as its standard input; else the free one.
pub(super) fn given(path: &Path) -> io::Result<File> {
    let given = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let (mine, wanted) = (given.metadata()?, open(path)?.metadata()?);
    let is_it = (mine.dev(), mine.ino()) == (wanted.dev(), wanted.ino());
    let file = if is_it { given } else { open(path)? };
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(io::Error::new(io::ErrorKind::WouldBlock, "another supervisor has this machine"))
        }
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}
