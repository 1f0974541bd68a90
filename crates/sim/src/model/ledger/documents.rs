//! Documents by collection and name.
//!
//! Not here: the content of a document.

use std::collections::BTreeMap;
use std::sync::Arc;

use bullpen_core::ids::Revision;
use bullpen_core::ports::{Document, Written};
use bullpen_core::time::Timestamp;

use super::state::{LedgerState, LedgerWrite};

/// All documents, by collection and then by name.
pub(super) type Documents = BTreeMap<String, BTreeMap<String, Document>>;

impl LedgerState {
    /// One document.
    pub fn document(&self, collection: &str, name: &str) -> Option<Document> {
        self.documents.get(collection)?.get(name).cloned()
    }

    /// All documents of a collection.
    pub fn documents(&self, collection: &str) -> Vec<Document> {
        let found = self.documents.get(collection).into_iter();
        found.flat_map(BTreeMap::values).cloned().collect()
    }

    /// Stores a document unless another write came after `seen`. Forgets the expired documents of
    /// the same collection.
    pub fn write_document(
        &mut self,
        now: Timestamp,
        seen: Option<Revision>,
        next: Document,
    ) -> Written<Document> {
        let collection = self.documents.entry(next.collection.clone()).or_default();
        if collection.get(&next.name).map(|stored| stored.revision) != seen {
            return Written::Lost;
        }
        collection.retain(|_, stored| stored.forget_at.is_none_or(|at| at > now));
        let revision = seen.map_or(Revision(1), Revision::next);
        let stored = Document { revision, ..next };
        collection.insert(stored.name.clone(), stored.clone());
        let by = Arc::clone(&self.caller);
        self.tell(&LedgerWrite::Document { at: now, after: &stored, by: &by });
        Written::Won(stored)
    }
}
