//! Items that this program cannot read: a listing names them and returns all others.
//!
//! Not here: what callers do about them.

use std::future::Future;

use bullpen_core::creation::Scope;
use bullpen_core::ids::{IntentId, JobId, Repository, Revision};
use bullpen_core::instance::Record;
use bullpen_core::ports::{Document, Fault, ItemKind, JobRow, Ledger, Listing, WaitingAt, Written};

use super::fixtures::{
    HOUR, claim, class, every_page, idle, intent, job, pool, reserve, row, running,
};
use crate::contract::{Harness, answered, lost, won};

/// How many items of each kind there are: more than a page of the model has.
const MANY: usize = 9;
/// Which of them becomes unreadable.
const BAD: usize = 4;

/// A ledger whose items can be made unreadable.
pub trait LedgerHarness: Harness<Port: Ledger> {
    /// Writes an item as a newer program would: with its next revision, and in a shape that this
    /// program cannot read. A document's key is `collection/name`.
    fn make_unreadable(&self, kind: ItemKind, key: &str) -> impl Future<Output = ()>;
}

/// The keys of a listing's items must be all but the unreadable one, which it must name.
#[track_caller]
fn names_one<T>(what: &str, kind: ItemKind, found: &Listing<T>, key: impl Fn(&T) -> String) {
    let bad = name(BAD);
    let mut others: Vec<String> = found.items.iter().map(key).collect();
    others.sort();
    let expected: Vec<String> = (0..MANY).map(name).filter(|name| *name != bad).collect();
    assert_eq!(others, expected, "{what}");
    let named: Vec<(ItemKind, &str)> =
        found.unreadable.iter().map(|item| (item.kind, item.key.as_str())).collect();
    let key = if kind == ItemKind::Document { format!("many/{bad}") } else { bad };
    assert_eq!(named, [(kind, key.as_str())], "{what}");
    assert!(!found.unreadable[0].why.is_empty(), "{what} does not say why");
}

fn name(number: usize) -> String {
    format!("i-{number}")
}

#[track_caller]
fn unreadable<T>(what: &str, read: &Result<T, Fault>) {
    assert!(matches!(read, Err(Fault::Unreadable(_))), "{what} was read");
}

/// An unreadable record hides no other from any listing, and no write changes it.
pub async fn an_unreadable_record_hides_no_other<H: LedgerHarness>(harness: H) {
    let (ledger, now) = (harness.port(), harness.now());
    let mut records = Vec::new();
    for number in 0..MANY {
        records.push(idle(&harness, &name(number)).await);
    }
    let used = answered(ledger.used(&[Scope::Stack]).await);
    harness.make_unreadable(ItemKind::Record, &name(BAD)).await;
    harness.settle().await;
    let key = |record: &Record| record.id.to_string();
    let live = every_page(async |after: Option<String>| ledger.live(after.as_deref()).await);
    names_one("live", ItemKind::Record, &live.await, key);
    let before = now.after(HOUR * 2);
    let due = every_page(async |after: Option<String>| ledger.due(before, after.as_deref()).await);
    names_one("due", ItemKind::Record, &due.await, key);
    let standing = answered(ledger.standing_by(&pool()).await);
    names_one("standing_by", ItemKind::Record, &standing, key);
    let idle = answered(ledger.idle_in(&class()).await);
    names_one("idle_in", ItemKind::Record, &idle, |advert| advert.id.to_string());

    let seen = &records[BAD];
    unreadable("the record", &ledger.read(&seen.id).await);
    let claimed = ledger.claim(&claim(seen, &job("j-1"), "n-1", now)).await;
    assert!(!matches!(claimed, Ok(Written::Won(_))), "an unreadable record was claimed");
    lost(ledger.replace(seen, seen).await);
    unreadable("the record after writes", &ledger.read(&seen.id).await);
    for other in records.iter().filter(|record| record.id != seen.id) {
        assert_eq!(answered(ledger.read(&other.id).await).as_ref(), Some(other));
    }
    let still = answered(ledger.used(&[Scope::Stack]).await);
    assert_eq!(still, used, "an unreadable record counts");
}

/// An unreadable record hides no other of its owner.
pub async fn an_unreadable_record_hides_no_other_of_its_owner<H: LedgerHarness>(harness: H) {
    let owner = job("j-1");
    for number in 0..MANY {
        running(&harness, &name(number), &owner).await;
    }
    harness.make_unreadable(ItemKind::Record, &name(BAD)).await;
    let held = answered(harness.port().owned_by(&owner).await);
    names_one("owned_by", ItemKind::Record, &held, |record| record.id.to_string());
}

/// An unreadable intent hides no other from the sweep.
pub async fn an_unreadable_intent_hides_no_other<H: LedgerHarness>(harness: H) {
    let (ledger, now) = (harness.port(), harness.now());
    for number in 0..MANY {
        reserve(ledger, &intent(&name(number), 1, now.after(HOUR))).await;
    }
    harness.make_unreadable(ItemKind::Intent, &name(BAD)).await;
    harness.settle().await;
    let open = every_page(async |after: Option<String>| ledger.intents(after.as_deref()).await);
    names_one("intents", ItemKind::Intent, &open.await, |intent| intent.id.to_string());
    unreadable("the intent", &ledger.intent(&IntentId::new(name(BAD))).await);
}

/// An unreadable row hides no other of its lane, and none that is due.
pub async fn an_unreadable_row_hides_no_other<H: LedgerHarness>(harness: H) {
    let (ledger, now) = (harness.port(), harness.now());
    let at = WaitingAt { lane: "pool/linux".into(), repository: Repository::new("octo/repo") };
    for number in 0..MANY {
        let row = row(&name(number), now);
        let row = JobRow { waiting: Some(at.clone()), next_look: Some(now), ..row };
        won(ledger.write_row(None, &row).await);
    }
    harness.make_unreadable(ItemKind::Row, &name(BAD)).await;
    harness.settle().await;
    let key = |row: &JobRow| row.job.to_string();
    let waiting =
        every_page(async |after: Option<String>| ledger.waiting(&at, after.as_deref()).await);
    names_one("waiting", ItemKind::Row, &waiting.await, key);
    let due =
        every_page(async |after: Option<String>| ledger.rows_due(now, after.as_deref()).await);
    names_one("rows_due", ItemKind::Row, &due.await, key);
    let repositories = answered(ledger.waiting_repositories("pool/linux").await);
    assert_eq!(repositories, std::slice::from_ref(&at.repository));
    assert!(ledger.row(&JobId::new(name(BAD))).await.is_err(), "the row was read");
}

/// An unreadable document hides no other of its collection.
pub async fn an_unreadable_document_hides_no_other<H: LedgerHarness>(harness: H) {
    let ledger = harness.port();
    for number in 0..MANY {
        let document = Document {
            collection: "many".to_owned(),
            name: name(number),
            revision: Revision(0),
            body: "{}".to_owned(),
            forget_at: None,
        };
        won(ledger.write_document(None, &document).await);
    }
    harness.make_unreadable(ItemKind::Document, &format!("many/{}", name(BAD))).await;
    harness.settle().await;
    let found = answered(ledger.documents("many").await);
    names_one("documents", ItemKind::Document, &found, |document| document.name.clone());
    assert!(ledger.document("many", &name(BAD)).await.is_err(), "the document was read");
}
