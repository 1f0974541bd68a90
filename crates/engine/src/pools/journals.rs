//! Journals in the ledger: one document per pool, written only over the revision that was read.
//!
//! Not here: the contents of a journal (`core::pool::journal`).

use std::collections::BTreeMap;

use bullpen_core::ids::{PoolName, Revision};
use bullpen_core::parameters::{decode, encode};
use bullpen_core::pool::Journal;
use bullpen_core::pool::journal::COLLECTION;
use bullpen_core::ports::{Document, Fault, Ledger, Ports, Written};
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

/// Reads every stored journal, also those past their time: the next write must name their revision.
pub(super) async fn all<P: Ports>(
    stack: &Stack<P>,
) -> Result<BTreeMap<PoolName, StoredJournal>, Fault> {
    let until = stack.now().after(stack.limits.release_retry);
    let ledger = stack.ports.ledger();
    let documents = retry_until(stack, until, || ledger.documents(COLLECTION)).await?;
    documents.iter().map(|one| Ok((PoolName::new(&one.name), read(one)?))).collect()
}

fn read(document: &Document) -> Result<StoredJournal, Fault> {
    let journal = decode(&document.body).map_err(|error| {
        Fault::Unreadable(format!("the journal of pool {}: {error}", document.name))
    })?;
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
