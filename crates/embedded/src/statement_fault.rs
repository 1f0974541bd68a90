//! Translates SQLite's errors into the ports' faults.
//!
//! [`classify`] is the only table from SQLite's codes to [`Fault`]. [`StatementFault`] carries a
//! fault through code that also returns SQLite's errors.
//!
//! Not here: whether a write landed ([`crate::store`]), or failures to open a file
//! ([`crate::open`]).

use bullpen_core::ports::{Fault, ItemKind, Unreadable, Written, read_text};
use rusqlite::ErrorCode;
use serde::de::DeserializeOwned;

/// A fault of a statement.
#[derive(Debug)]
pub(crate) struct StatementFault(pub(crate) Fault);

impl From<rusqlite::Error> for StatementFault {
    fn from(error: rusqlite::Error) -> Self {
        Self(classify(&error))
    }
}

impl From<Fault> for StatementFault {
    fn from(fault: Fault) -> Self {
        Self(fault)
    }
}

/// The fault for a SQLite error.
pub(crate) fn classify(error: &rusqlite::Error) -> Fault {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Fault::Throttled,
        Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure | ErrorCode::OutOfMemory) => {
            Fault::Unavailable(error.to_string())
        }
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => {
            Fault::Denied(error.to_string())
        }
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            Fault::Unreadable(error.to_string())
        }
        _ => Fault::Unclassified(error.to_string()),
    }
}

impl From<Unreadable> for StatementFault {
    fn from(unreadable: Unreadable) -> Self {
        Self(unreadable.fault())
    }
}

/// Reads the stored text of one item. A text of invalid bytes makes this item alone unreadable.
pub(crate) fn decode<T: DeserializeOwned>(
    kind: ItemKind,
    key: &str,
    text: rusqlite::Result<String>,
) -> Result<T, Unreadable> {
    match text {
        Ok(text) => read_text(kind, key, &text),
        Err(error) => Err(Unreadable::of(kind, key, "", error)),
    }
}

/// How a write ended.
#[derive(Debug)]
pub(crate) enum WriteOutcome<T> {
    /// It is in the file.
    Done(T),
    /// It is certainly not in the file.
    Refused(Fault),
    /// It may be in the file or not.
    Unknown,
}

impl<T> WriteOutcome<Option<T>> {
    /// The answer of a conditional write; `None` means that the condition did not hold.
    pub(crate) fn written(self) -> Result<Written<T>, Fault> {
        match self {
            Self::Done(Some(value)) => Ok(Written::Won(value)),
            Self::Done(None) => Ok(Written::Lost),
            Self::Unknown => Ok(Written::Unknown),
            Self::Refused(fault) => Err(fault),
        }
    }
}

impl<T> WriteOutcome<Vec<Result<Option<T>, Fault>>> {
    /// The answers of `count` conditional writes in one transaction; a write with a fault of its own
    /// was not made.
    pub(crate) fn written_each(self, count: usize) -> Vec<Result<Written<T>, Fault>> {
        match self {
            Self::Done(values) => values
                .into_iter()
                .map(|value| Ok(value?.map_or(Written::Lost, Written::Won)))
                .collect(),
            Self::Unknown => (0..count).map(|_| Ok(Written::Unknown)).collect(),
            Self::Refused(fault) => (0..count).map(|_| Err(fault.clone())).collect(),
        }
    }
}

impl<T> WriteOutcome<T> {
    /// The fault of a write that may have landed.
    pub(crate) fn unconfirmed() -> Fault {
        Fault::unavailable("the store did not confirm a write")
    }

    /// The answer of a write without a third outcome: an unavailable fault leaves open whether it
    /// landed.
    pub(crate) fn plain(self) -> Result<T, Fault> {
        match self {
            Self::Done(value) => Ok(value),
            Self::Unknown => Err(Self::unconfirmed()),
            Self::Refused(fault) => Err(fault),
        }
    }
}
