//! What can go wrong inside SQLite, in the ports' words.
//!
//! [`classify`] is the one table from SQLite's codes to [`Fault`]. [`StatementFault`] carries a fault
//! through code that also meets SQLite's own errors.
//!
//! Not here: whether a write landed ([`crate::store`] knows), or a file that cannot be opened
//! ([`crate::open`]).

use bullpen_core::ports::{Fault, Written};
use rusqlite::ErrorCode;
use serde::de::DeserializeOwned;

/// A fault on its way out of a statement.
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

/// The fault that a SQLite error is.
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

/// Reads a document, or names the table and key that hold what nobody can read.
pub(crate) fn decode<T: DeserializeOwned>(
    table: &str,
    key: &str,
    text: &str,
) -> Result<T, StatementFault> {
    serde_json::from_str(text).map_err(|error| unreadable(table, key, &error))
}

/// The fault for what is stored under `key` of `table`.
pub(crate) fn unreadable(table: &str, key: &str, why: &dyn std::fmt::Display) -> StatementFault {
    StatementFault(Fault::Unreadable(format!("{table}/{key}: {why}")))
}

/// How a write ended.
#[derive(Debug)]
pub(crate) enum WriteOutcome<T> {
    /// It is in the file.
    Done(T),
    /// It certainly is not.
    Refused(Fault),
    /// Nobody can say.
    Unknown,
}

impl<T> WriteOutcome<Option<T>> {
    /// As a conditional write's answer: nothing means that the condition did not hold.
    pub(crate) fn written(self) -> Result<Written<T>, Fault> {
        match self {
            Self::Done(Some(value)) => Ok(Written::Won(value)),
            Self::Done(None) => Ok(Written::Lost),
            Self::Unknown => Ok(Written::Unknown),
            Self::Refused(fault) => Err(fault),
        }
    }
}

impl<T> WriteOutcome<Vec<Option<T>>> {
    /// As the answers of `count` conditional writes that were made together.
    pub(crate) fn written_each(self, count: usize) -> Vec<Result<Written<T>, Fault>> {
        match self {
            Self::Done(values) => values
                .into_iter()
                .map(|value| Ok(value.map_or(Written::Lost, Written::Won)))
                .collect(),
            Self::Unknown => (0..count).map(|_| Ok(Written::Unknown)).collect(),
            Self::Refused(fault) => (0..count).map(|_| Err(fault.clone())).collect(),
        }
    }
}

impl<T> WriteOutcome<T> {
    /// The fault of a write that may have landed.
    pub(crate) fn unsure() -> Fault {
        Fault::unavailable("the store did not confirm a write")
    }

    /// As the answer of a write that has no third one: unavailable leaves open whether it landed.
    pub(crate) fn plain(self) -> Result<T, Fault> {
        match self {
            Self::Done(value) => Ok(value),
            Self::Unknown => Err(Self::unsure()),
            Self::Refused(fault) => Err(fault),
        }
    }
}
