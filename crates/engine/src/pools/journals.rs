//! Journals in the ledger: one document per pool, written only over the revision that was read.
//!
//! Not here: the contents of a journal (`core::pool::journal`).

use std::collections::BTreeMap;

use bullpen_core::ids::{PoolName, Revision};
use bullpen_core::parameters::{decode, encode};
use bullpen_core::pool::Journal;
use bullpen_core::pool::journal::COLLECTION;
use bullpen_core::ports::{Document, Fault, ItemKind, Ledger, Ports, Unreadable, Written};
use bullpen_core::sabotage;
use bullpen_core::time::Timestamp;

use crate::Stack;
use crate::retry::retry_until;

/// A journal as it was read; an absent one has no revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StoredJournal {
    pub(super) journal: Journal,
    pub(super) revision: Option<Revision>,
    /// When the store may forget it, if its pool is gone.
    pub(super) forget_at: Option<Timestamp>,
}

/// Every stored journal.
#[derive(Debug, Default)]
pub(super) struct Journals {
    pub(super) readable: BTreeMap<PoolName, StoredJournal>,
    /// Those that this program cannot read.
    pub(super) unreadable: BTreeMap<PoolName, Unreadable>,
}

/// Reads every stored journal, also those past their time: the next write must name their revision.
pub(super) async fn all<P: Ports>(stack: &Stack<P>) -> Result<Journals, Fault> {
    let until = stack.now().after(stack.limits.release_retry);
    let ledger = stack.ports.ledger();
    let listed = retry_until(stack, until, || ledger.documents(COLLECTION)).await?;
    let mut journals = Journals::default();
    let mut unreadable: Vec<Unreadable> = listed.unreadable.into_iter().map(of_journal).collect();
    for document in &listed.items {
        match read(document) {
            Ok(read) => drop(journals.readable.insert(PoolName::new(&document.name), read)),
            Err(bad) if sabotage!("one-bad-journal-stops-all-pools") => return Err(bad.into()),
            Err(bad) => unreadable.push(bad),
        }
    }
    for bad in unreadable {
        stack.unreadable_items.note(&bad);
        journals.unreadable.insert(PoolName::new(&bad.key), bad);
    }
    Ok(journals)
}

/// An unreadable document of this collection, under its pool's name.
fn of_journal(document: Unreadable) -> Unreadable {
    let name = document.key.strip_prefix(COLLECTION).unwrap_or(&document.key);
    let key = name.trim_start_matches('/').to_owned();
    Unreadable { kind: ItemKind::Journal, key, ..document }
}

fn read(document: &Document) -> Result<StoredJournal, Unreadable> {
    let (name, body) = (&document.name, &document.body);
    let journal =
        decode(body).map_err(|error| Unreadable::of(ItemKind::Journal, name, body, error))?;
    Ok(StoredJournal { journal, revision: Some(document.revision), forget_at: document.forget_at })
}

/// Stores a journal over the revision that was read. `None`: another process wrote meanwhile, or
/// the answer was lost.
pub(super) async fn write<P: Ports>(
    stack: &Stack<P>,
    pool: &PoolName,
    seen: Option<Revision>,
    journal: &Journal,
    forget_at: Option<Timestamp>,
) -> Result<Option<Revision>, Fault> {
    let document = Document {
        collection: COLLECTION.to_owned(),
        name: pool.to_string(),
        revision: Revision(0),
        body: encode(journal),
        forget_at,
    };
    match stack.ports.ledger().write_document(seen, &document).await? {
        Written::Won(stored) => Ok(Some(stored.revision)),
        Written::Lost | Written::Unknown => Ok(None),
    }
}
