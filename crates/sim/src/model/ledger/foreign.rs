//! Items of another version: a newer program has written them, and this one cannot read them.
//!
//! The item itself stays in the state, so that the world can make it readable again. Writes by the
//! world are no writes of the engine: the observer does not see them.
//!
//! Not here: what a body says. Bodies of rows and documents are opaque to a ledger; the world
//! rewrites them ([`LedgerState::reword`]), and the engine finds out.

use std::collections::BTreeSet;
use std::fmt::Display;

use bullpen_core::ids::{InstanceId, JobId};
use bullpen_core::ports::{Document, Fault, ItemKind, JobRow, Listing, Page, Unreadable};
use bullpen_core::time::Timestamp;

use super::state::LedgerState;

/// The version that the newer program writes.
pub const NEWER: &str = "9";
/// A body's version as this program writes it, and as the newer one does.
const BODY_VERSIONS: [&str; 2] = ["\"v\":\"1\"", "\"v\":\"9\""];

/// Which items are of another version.
pub(super) type Foreign = BTreeSet<(ItemKind, String)>;

impl LedgerState {
    /// Whether this program can read the item.
    pub(super) fn readable(&self, kind: ItemKind, key: impl Display) -> Result<(), Unreadable> {
        let key = key.to_string();
        if self.foreign.is_empty() || !self.foreign.contains(&(kind, key.clone())) {
            return Ok(());
        }
        let why = format!("the {kind} has version {NEWER}; this program reads up to 1");
        Err(Unreadable { kind, key, version: Some(NEWER.to_owned()), why })
    }

    /// One item, if this program can read it.
    pub(super) fn checked<T>(
        &self,
        kind: ItemKind,
        key: impl Display,
        found: T,
    ) -> Result<T, Fault> {
        self.readable(kind, key).map(|()| found).map_err(|unreadable| unreadable.fault())
    }

    /// The readable items of a listing, and the others.
    pub(super) fn listed<T, K: Display>(
        &self,
        kind: ItemKind,
        found: Vec<T>,
        key: impl Fn(&T) -> K,
    ) -> Listing<T> {
        found.into_iter().map(|item| self.readable(kind, key(&item)).map(|()| item)).collect()
    }

    /// The same for one page.
    pub(super) fn paged<T, K: Display>(
        &self,
        kind: ItemKind,
        found: Page<T>,
        key: impl Fn(&T) -> K,
    ) -> Page<T> {
        Page::of(self.listed(kind, found.items, key), found.next)
    }

    /// Makes an item one of another version, or readable again. Its revision rises.
    pub(super) fn write_as(&mut self, now: Timestamp, kind: ItemKind, key: &str, newer: bool) {
        let item = (kind, key.to_owned());
        let _ = if newer { self.foreign.insert(item) } else { self.foreign.remove(&item) };
        let record = self.read(&InstanceId::new(key)).filter(|_| kind == ItemKind::Record);
        if let Some(record) = record {
            self.unobserved(|state| drop(state.store(now, record)));
        }
    }

    /// Rewrites the version in a row's body; false if there is no such row.
    pub(super) fn reword_row(&mut self, now: Timestamp, job: &JobId, newer: bool) -> bool {
        let Some(row) = self.row(job) else { return false };
        let next = JobRow { body: reworded(&row.body, newer), ..row };
        self.unobserved(|state| drop(state.store_row(now, next)));
        true
    }

    /// Rewrites the version in a document's body; false if there is no such document.
    pub(super) fn reword(&mut self, now: Timestamp, place: (&str, &str), newer: bool) -> bool {
        let Some(document) = self.document(place.0, place.1) else { return false };
        let seen = Some(document.revision);
        let next = Document { body: reworded(&document.body, newer), ..document };
        self.unobserved(|state| drop(state.write_document(now, seen, next)));
        true
    }
}

fn reworded(body: &str, newer: bool) -> String {
    let [ours, theirs] = BODY_VERSIONS;
    if newer { body.replacen(ours, theirs, 1) } else { body.replacen(theirs, ours, 1) }
}
