//! Replicas: a process of a service says that it lives, and counts those that do.
//!
//! Every round is one listing and one write, of an entry that nobody else writes. A round that fails
//! is followed by the next; whoever fails for too long is no longer counted, and knows that by its own
//! clock. An entry is removed by whoever wrote it when it ends well, and is forgotten otherwise.
//!
//! Not here: what follows from the count (`core::replicas`), or keeping to it ([`crate::pace`]).

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use bullpen_core::ids::{HolderId, Revision};
use bullpen_core::ports::{Clock, Document, Fault, Fleet, Ids, Ledger, Ports, Written};
use bullpen_core::replicas::{COLLECTION, ReplicaList};
use bullpen_core::time::Timestamp;

use crate::Stack;

/// An entry may be forgotten after so many leases without a word. Many more than one, so that clocks
/// that differ lose nobody.
const FORGOTTEN_AFTER: u32 = 10;
/// What an entry says: nothing but its version. Its name and its revision are what counts.
const BODY: &str = r#"{"v":1}"#;

/// Is one of the replicas for as long as it is polled. Where the fleet may be asked as often as one
/// likes there is nothing to share, and nothing is done.
pub async fn run<P: Ports>(stack: &Stack<P>) -> Infallible {
    if stack.ports.fleet().rates().is_unlimited() {
        return pending().await;
    }
    loop {
        if let Err(fault) = round(stack).await {
            tracing::info!(%fault, "could not count the replicas");
        }
        stack.ports.clock().sleep(stack.limits.pool_lease_renew).await;
    }
}

/// Counts the others, and announces this one.
async fn round<P: Ports>(stack: &Stack<P>) -> Result<(), Fault> {
    let own = stack.ports.ids().holder();
    let listed = count(stack, &own).await?;
    let sent = stack.ports.clock().monotonic();
    let forget_at = stack.now().after(stack.limits.pool_lease * FORGOTTEN_AFTER);
    // Without an answer, or overtaken by a write that had none, it is not certain that anybody sees it:
    // the next round's listing shows what is stored.
    if let Written::Won(_) = write(stack, own, listed, forget_at).await? {
        let answered = stack.ports.clock().monotonic();
        stack.with_replicas(|roll| roll.announced((sent, answered)));
    }
    Ok(())
}

/// Counts the others; returns the revision of this one's entry.
async fn count<P: Ports>(stack: &Stack<P>, own: &HolderId) -> Result<Option<Revision>, Fault> {
    let clock = stack.ports.clock();
    let asked = clock.monotonic();
    let listed = stack.ports.ledger().documents(COLLECTION).await?;
    let (came, now) = (clock.monotonic(), stack.now());
    let is_own = |entry: &&Document| entry.name == own.as_str();
    let others = listed.iter().filter(|entry| !is_own(entry) && !is_forgotten(entry, now));
    let others = others.map(|entry| (entry.name.as_str(), entry.revision));
    stack.with_replicas(|roll| roll.counted(others, (asked, came)));
    Ok(listed.iter().find(is_own).map(|entry| entry.revision))
}

/// The store may take its time with forgetting.
fn is_forgotten(entry: &Document, now: Timestamp) -> bool {
    entry.forget_at.is_some_and(|at| at <= now)
}

async fn write<P: Ports>(
    stack: &Stack<P>,
    own: HolderId,
    listed: Option<Revision>,
    forget_at: Timestamp,
) -> Result<Written<Document>, Fault> {
    let entry = Document {
        collection: COLLECTION.to_owned(),
        name: own.to_string(),
        revision: Revision(0),
        body: BODY.to_owned(),
        forget_at: Some(forget_at),
    };
    stack.ports.ledger().write_document(listed, &entry).await
}

/// This process is not one of the replicas any more: the others need not wait until it is forgotten.
/// If this does not land, they do.
pub async fn leave<P: Ports>(stack: &Stack<P>) {
    if stack.ports.fleet().rates().is_unlimited() {
        return;
    }
    stack.with_replicas(ReplicaList::withdrawn);
    let own = stack.ports.ids().holder();
    if let Ok(Some(listed)) = count(stack, &own).await {
        let long_ago = stack.now().before(Duration::from_secs(1));
        let _ = write(stack, own, Some(listed), long_ago).await;
    }
}
