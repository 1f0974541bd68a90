//! Listings of stored items, of which this program may be unable to read some.
//!
//! An item is *unreadable* if a newer program wrote it, or if its text is damaged. A listing returns
//! the items that it can read, and names the others; the store keeps them as they are.
//!
//! Not here: what the engine does with the rest (`bullpen_engine::unreadable`).

use std::fmt;

use serde::Deserialize;

use super::Fault;

/// A kind of stored item. Each has a version of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ItemKind {
    /// An instance's record.
    Record,
    /// A launch intent.
    Intent,
    /// A job's row.
    Row,
    /// A document of the engine.
    Document,
    /// A pool's journal: a document of the collection `pools`.
    Journal,
    /// A lease.
    Lease,
    /// The count of a scope's machines.
    Counter,
    /// The orders to one agent.
    Inbox,
    /// An agent's report.
    Report,
    /// The process fleet's file of one machine.
    Machine,
}

impl ItemKind {
    /// Every kind.
    pub const ALL: [Self; 10] = [
        Self::Record,
        Self::Intent,
        Self::Row,
        Self::Document,
        Self::Journal,
        Self::Lease,
        Self::Counter,
        Self::Inbox,
        Self::Report,
        Self::Machine,
    ];

    /// The newest version that this program reads; it writes this version.
    pub const fn version(self) -> u32 {
        match self {
            Self::Record
            | Self::Intent
            | Self::Row
            | Self::Document
            | Self::Journal
            | Self::Lease
            | Self::Counter
            | Self::Inbox
            | Self::Report
            | Self::Machine => 1,
        }
    }

    /// Its name in logs, metrics and faults.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Record => "record",
            Self::Intent => "intent",
            Self::Row => "row",
            Self::Document => "document",
            Self::Journal => "journal",
            Self::Lease => "lease",
            Self::Counter => "counter",
            Self::Inbox => "inbox",
            Self::Report => "report",
            Self::Machine => "machine",
        }
    }
}

impl fmt::Display for ItemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A stored item that this program cannot read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Its kind.
    pub kind: ItemKind,
    /// Its key: an instance's id, a job's id, a pool's name.
    pub key: String,
    /// Its version, as far as it says one.
    pub version: Option<String>,
    /// Why this program cannot read it.
    pub why: String,
}

impl Unreadable {
    /// An item whose text could not be read.
    pub fn of(kind: ItemKind, key: impl fmt::Display, text: &str, why: impl fmt::Display) -> Self {
        Self { kind, key: key.to_string(), version: version_of(text), why: why.to_string() }
    }

    /// Whether a newer program wrote it.
    pub fn is_newer(&self) -> bool {
        let version = self.version.as_ref().and_then(|version| version.parse::<u32>().ok());
        version.is_some_and(|version| version > self.kind.version())
    }

    /// The fault of a read of this item alone.
    pub fn fault(&self) -> Fault {
        Fault::Unreadable(self.to_string())
    }
}

impl From<Unreadable> for Fault {
    fn from(unreadable: Unreadable) -> Self {
        unreadable.fault()
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.kind, self.key, self.why)
    }
}

/// Reads a stored text of this kind. A text of a version that this program does not read is
/// refused, even if its shape looks familiar.
pub fn read_text<T: serde::de::DeserializeOwned>(
    kind: ItemKind,
    key: impl fmt::Display,
    text: &str,
) -> Result<T, Unreadable> {
    let reads = |version: &String| version.parse::<u32>().is_ok_and(|v| v <= kind.version());
    let newer = version_of(text).filter(|version| !reads(version));
    let read = match newer {
        None => serde_json::from_str(text).map_err(|error| error.to_string()),
        Some(found) => {
            Err(format!("it has version {found}; this program reads up to {}", kind.version()))
        }
    };
    read.map_err(|why| Unreadable::of(kind, key, text, why))
}

/// The `v` of a JSON text, if it has one.
fn version_of(text: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Versioned {
        v: serde_json::Value,
    }
    match serde_json::from_str::<Versioned>(text).ok()?.v {
        serde_json::Value::String(version) => Some(version),
        serde_json::Value::Number(version) => Some(version.to_string()),
        _ => None,
    }
}

/// A whole listing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "its unreadable items must be noted, or be a fault"]
pub struct Listing<T> {
    /// The items that this program can read.
    pub items: Vec<T>,
    /// The others.
    pub unreadable: Vec<Unreadable>,
}

impl<T> Listing<T> {
    /// All items, for a decision that must miss none; a fault if one is unreadable.
    pub fn complete(self) -> Result<Vec<T>, Fault> {
        match self.unreadable.first() {
            None => Ok(self.items),
            Some(unreadable) => Err(unreadable.fault()),
        }
    }

    /// The same listing of something that is made of each item.
    pub fn filter_map<U>(self, make: impl FnMut(T) -> Option<U>) -> Listing<U> {
        let items = self.items.into_iter().filter_map(make).collect();
        Listing { items, unreadable: self.unreadable }
    }
}

impl<T> From<Vec<T>> for Listing<T> {
    fn from(items: Vec<T>) -> Self {
        Self { items, unreadable: Vec::new() }
    }
}

impl<T> FromIterator<Result<T, Unreadable>> for Listing<T> {
    fn from_iter<I: IntoIterator<Item = Result<T, Unreadable>>>(found: I) -> Self {
        let mut listing = Self::from(Vec::new());
        for one in found {
            match one {
                Ok(item) => listing.items.push(item),
                Err(unreadable) => listing.unreadable.push(unreadable),
            }
        }
        listing
    }
}

/// One page of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "its unreadable items must be noted"]
pub struct Page<T> {
    /// The page's items that this program can read.
    pub items: Vec<T>,
    /// The others.
    pub unreadable: Vec<Unreadable>,
    /// The token of the next page; `None` on the last.
    pub next: Option<String>,
}

impl<T> Page<T> {
    /// This listing as a page.
    pub fn of(listing: Listing<T>, next: Option<String>) -> Self {
        Self { items: listing.items, unreadable: listing.unreadable, next }
    }

    /// The page's items, and the token of the next page.
    pub fn split(self) -> (Listing<T>, Option<String>) {
        (Listing { items: self.items, unreadable: self.unreadable }, self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_before_the_shape() {
        let read = |text: &str| read_text::<serde_json::Value>(ItemKind::Record, "i-1", text);
        for familiar in [r#"{"id":"i-1"}"#, r#"{"v":1}"#, r#"{"v":"1"}"#] {
            assert!(read(familiar).is_ok(), "{familiar}");
        }
        let newer = read(r#"{"v":2,"id":"i-1"}"#).expect_err("it is newer");
        assert_eq!((newer.version.as_deref(), newer.is_newer()), (Some("2"), true));
        assert_eq!(newer.to_string(), "record i-1: it has version 2; this program reads up to 1");
        let damaged = read("{").expect_err("it is damaged");
        assert_eq!((damaged.version.as_deref(), damaged.is_newer()), (None, false));
    }

    #[test]
    fn a_decision_that_must_miss_nothing_sees_the_unreadable_item() {
        let bad = Unreadable::of(ItemKind::Row, 7, r#"{"v":"9"}"#, "too new");
        let found: Listing<u32> = [Ok(1), Err(bad.clone()), Ok(2)].into_iter().collect();
        assert_eq!(
            (found.items.as_slice(), found.unreadable.as_slice()),
            (&[1, 2][..], &[bad][..])
        );
        assert_eq!(found.complete(), Err(Fault::Unreadable("row 7: too new".to_owned())));
        assert_eq!(Listing::from(vec![1]).complete(), Ok(vec![1]));
    }
}
