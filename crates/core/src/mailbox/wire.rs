//! The text form of mailbox records, for stores that keep text.
//!
//! Every record carries its version. A reader refuses a newer version and changes nothing.
//!
//! Not here: stores that keep each signal of a report as an attribute; they use the types.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Inbox, Report};
use crate::limits::MAILBOX_BYTES_MAX;

/// The version that this program writes.
pub const VERSION: u32 = 1;

/// A record that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The record is longer than any of ours.
    #[error("the mailbox record has {bytes} bytes; at most {MAILBOX_BYTES_MAX} are read")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// The record is not the expected JSON; the source names line and column.
    #[error("the mailbox record is not readable")]
    Malformed(#[source] serde_json::Error),
    /// A newer version wrote the record.
    #[error("the mailbox record has version {found}; this program reads up to {VERSION}")]
    Newer {
        /// Its version.
        found: u32,
    },
}

#[derive(Deserialize)]
struct Versioned {
    v: u32,
}

#[derive(Serialize, Deserialize)]
struct Envelope<T> {
    v: u32,
    #[serde(rename = "record")]
    body: T,
}

fn encode<T: Serialize>(body: &T) -> String {
    serde_json::to_string(&Envelope { v: VERSION, body })
        .expect("mailbox records have string keys only, so they serialise")
}

fn decode<T: DeserializeOwned>(text: &[u8]) -> Result<T, WireError> {
    if text.len() > MAILBOX_BYTES_MAX {
        return Err(WireError::TooLong { bytes: text.len() });
    }
    let Versioned { v } = serde_json::from_slice(text).map_err(WireError::Malformed)?;
    if v > VERSION {
        return Err(WireError::Newer { found: v });
    }
    let envelope: Envelope<T> = serde_json::from_slice(text).map_err(WireError::Malformed)?;
    Ok(envelope.body)
}

/// Writes an inbox.
pub fn encode_inbox(inbox: &Inbox) -> String {
    encode(inbox)
}

/// Reads an inbox.
pub fn decode_inbox(text: &[u8]) -> Result<Inbox, WireError> {
    decode(text)
}

/// Writes a report.
pub fn encode_report(report: &Report) -> String {
    encode(report)
}

/// Reads a report.
pub fn decode_report(text: &[u8]) -> Result<Report, WireError> {
    decode(text)
}
