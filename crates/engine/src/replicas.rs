//! Replicas: each process of a service announces that it lives, and counts the others.
//!
//! Each round is one listing and one write of the replica's own entry. A replica whose rounds fail
//! for too long is no longer counted, and knows that by its own clock. A replica that ends in order
//! removes its entry; otherwise the store forgets the entry.
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

/// After so many leases without a write the store may forget an entry. Many more than one, so that
/// differing clocks lose no replica.
const FORGOTTEN_AFTER: u32 = 10;
/// An entry's body: only its version. The name and the revision of the entry are enough.
const BODY: &str = r#"{"v":1}"#;

/// Keeps this process among the replicas for as long as it is polled. If the fleet has no rate
/// limits, there is nothing to share, and it does nothing.
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

/// Counts the other replicas, and announces this one.
async fn round<P: Ports>(stack: &Stack<P>) -> Result<(), Fault> {
    let own = stack.ports.ids().holder();
    let listed = count(stack, &own).await?;
    let sent = stack.ports.clock().monotonic();
    let forget_at = stack.now().after(stack.limits.pool_lease * FORGOTTEN_AFTER);
    // If the write has no answer, or an earlier one without an answer overtook it, the other
    // replicas may not see the entry: the next round's listing shows what is stored.
    if let Written::Won(_) = write(stack, own, listed, forget_at).await? {
        let answered = stack.ports.clock().monotonic();
        stack.with_replicas(|replicas| replicas.announced((sent, answered)));
    }
    Ok(())
}

/// Counts the other replicas; returns the revision of this one's entry.
async fn count<P: Ports>(stack: &Stack<P>, own: &HolderId) -> Result<Option<Revision>, Fault> {
    let clock = stack.ports.clock();
    let asked = clock.monotonic();
    let listed = stack.readable(stack.ports.ledger().documents(COLLECTION).await?);
    let (came, now) = (clock.monotonic(), stack.now());
    let is_own = |entry: &&Document| entry.name == own.as_str();
    let others = listed.iter().filter(|entry| !is_own(entry) && !is_forgotten(entry, now));
    let others = others.map(|entry| (entry.name.as_str(), entry.revision));
    stack.with_replicas(|replicas| replicas.counted(others, (asked, came)));
    Ok(listed.iter().find(is_own).map(|entry| entry.revision))
}

/// Whether an entry is past its time: the store may delete it late.
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

/// Removes this process from the replicas, so that the others need not wait until the store forgets
/// its entry. If this fails, they wait.
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
