//! Watches whether this process can still use its database file. What is lost is lost for the whole
//! process: nothing is written any more, and only a new process may open the file anew.
//!
//! Not here: failures that pass, such as a full disk ([`crate::statement_fault`]).

use std::fs;
use std::future::pending;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use tokio::sync::watch;

use crate::open::beside;

/// Why a process can no longer use a database.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreLost {
    /// The file, or the write-ahead log beside it, is gone.
    #[error("{} was deleted while it was in use", path.display())]
    Deleted {
        /// The file.
        path: PathBuf,
    },
    /// Another file is in its place.
    #[error("{} was replaced while it was in use", path.display())]
    Replaced {
        /// The file.
        path: PathBuf,
    },
    /// A newer program migrated the file, and this one does not know what it may write.
    #[error("{} was brought to version {version} by a newer program", path.display())]
    Migrated {
        /// The file.
        path: PathBuf,
        /// Its version now.
        version: usize,
    },
    /// A thread of the database has panicked.
    #[error("a defect ended the {role} of {}", path.display())]
    ThreadEnded {
        /// The database's file.
        path: PathBuf,
        /// What the thread does.
        role: &'static str,
    },
}

impl StoreLost {
    /// What the operator can do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Deleted { .. } | Self::Replaced { .. } => {
                "nothing was written after that; restore what is missing, then start this program \
                 again: it opens the file that is there, or makes a new one, and the machines of the \
                 old one end"
            }
            Self::Migrated { .. } => "nothing was written after that; start the newer program",
            Self::ThreadEnded { .. } => {
                "start this program again, and report the message of the panic above"
            }
        }
    }
}

/// Tells when a database is lost.
#[derive(Clone, Debug)]
pub struct StoreWatch(watch::Receiver<Option<StoreLost>>);

impl StoreWatch {
    /// Waits until the database is lost; for ever, if it is closed in order.
    pub async fn lost(&self) -> StoreLost {
        let mut lost = self.0.clone();
        let found = lost.wait_for(Option::is_some).await.ok().and_then(|lost| lost.clone());
        match found {
            Some(lost) => lost,
            None => pending().await,
        }
    }
}

/// Notes that a database is lost; shared by its threads.
#[derive(Clone, Debug)]
pub(crate) struct LossNote(watch::Sender<Option<StoreLost>>);

impl LossNote {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(None))
    }

    pub(crate) fn watch(&self) -> StoreWatch {
        StoreWatch(self.0.subscribe())
    }

    /// Notes the first loss: the later ones follow from it.
    pub(crate) fn note(&self, lost: StoreLost) {
        self.0.send_if_modified(|noted| {
            let is_first = noted.is_none();
            if is_first {
                *noted = Some(lost);
            }
            is_first
        });
    }
}

/// Which file a path named: its device and its number there.
type FileId = (u64, u64);

/// The file that a connection has open, and its write-ahead log.
#[derive(Debug)]
pub(crate) struct OpenFile {
    path: PathBuf,
    database: FileId,
    /// As the first look at it found it: SQLite keeps the log while a connection is open.
    log: Option<FileId>,
}

impl OpenFile {
    /// The file at `path`, before a connection opens it.
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        let database = file_id(path)?.ok_or(io::ErrorKind::NotFound)?;
        Ok(Self { path: path.to_owned(), database, log: None })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Checks, inside a transaction, that both files are still where other processes look for them.
    pub(crate) fn check(&mut self) -> io::Result<Result<(), StoreLost>> {
        let path = || self.path.clone();
        match file_id(&self.path)? {
            None => return Ok(Err(StoreLost::Deleted { path: path() })),
            Some(found) if found != self.database => {
                return Ok(Err(StoreLost::Replaced { path: path() }));
            }
            Some(_) => {}
        }
        let Some(found) = file_id(&beside(&self.path, "-wal"))? else {
            return Ok(Err(StoreLost::Deleted { path: path() }));
        };
        if *self.log.get_or_insert(found) == found {
            Ok(Ok(()))
        } else {
            Ok(Err(StoreLost::Replaced { path: path() }))
        }
    }
}

fn file_id(path: &Path) -> io::Result<Option<FileId>> {
    match fs::metadata(path) {
        Ok(found) => Ok(Some((found.dev(), found.ino()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
