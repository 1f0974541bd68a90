//! Tests of the ledger's rules, and of this adapter's own: expiry, pages, unreadable rows.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use bullpen_core::creation::Scope;
use bullpen_core::ids::{ClaimId, Generation, HolderId, TrustGroup};
use bullpen_core::instance::State;
use tempfile::TempDir;

use super::*;
use crate::testing::*;

struct World {
    clock: Arc<ManualClock>,
    ledger: SqliteLedger<ManualClock>,
    path: PathBuf,
    _directory: TempDir,
}

fn world() -> World {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("ledger.db");
    let clock = clock();
    let ledger = SqliteLedger::open(&path, Arc::clone(&clock)).unwrap();
    World { clock, ledger, path, _directory: directory }
}

fn claim(id: &str, seen: u64, nonce: &str) -> ClaimWrite {
    ClaimWrite {
        id: InstanceId::new(id),
        seen: Generation(seen),
        owner: owner("claimer"),
        claim: ClaimId::new(nonce),
        trust: TrustGroup::new("o/r"),
        at: START,
        margin: secs(30),
        lease: START.after(secs(300)),
    }
}

fn row(job: &str) -> JobRow {
    JobRow {
        job: JobId::new(job),
        revision: Revision(0),
        body: format!("{{\"job\":\"{job}\"}}"),
        waiting: Some(WaitingAt { lane: "pool/p".into(), repository: Repository::new("o/r") }),
        next_look: Some(START.after(secs(15))),
        forget_at: START.after(secs(1000)),
    }
}

#[tokio::test]
async fn of_two_claims_on_one_generation_one_wins() {
    let World { ledger, .. } = &world();
    let stored = store_all(ledger, &["i-1"]).await.remove(0);
    let idle = won(ledger.replace(&stored, &idle(&stored, START)).await);
    assert_eq!(idle.revision, Revision(2));
    let (one, two) = (claim("i-1", 1, "a"), claim("i-1", 1, "b"));
    let answers = tokio::join!(ledger.claim(&one), ledger.claim(&two));
    let claimed = won(answers.0);
    assert_eq!(answers.1, Ok(Written::Lost));
    assert_eq!((claimed.generation, claimed.revision), (Generation(2), Revision(3)));
    assert_eq!(ledger.read(&claimed.id).await, Ok(Some(claimed.clone())));
    assert_eq!(ledger.owned_by(&owner("claimer")).await, Ok(vec![claimed].into()));
    assert_eq!(ledger.idle_in(&ClassName::new("small")).await, Ok(vec![].into()));
}

#[tokio::test]
async fn a_claim_on_a_missing_busy_or_expiring_record_is_lost() {
    let World { ledger, .. } = &world();
    assert_eq!(ledger.claim(&claim("i-0", 1, "a")).await, Ok(Written::Lost));
    let stored = store_all(ledger, &["i-1"]).await.remove(0);
    assert_eq!(ledger.claim(&claim("i-1", 1, "a")).await, Ok(Written::Lost), "not idle");
    won(ledger.replace(&stored, &idle(&stored, START)).await);
    assert_eq!(ledger.claim(&claim("i-1", 2, "a")).await, Ok(Written::Lost), "fenced");
    let late = ClaimWrite { at: START.after(secs(400)), ..claim("i-1", 1, "a") };
    assert_eq!(ledger.claim(&late).await, Ok(Written::Lost), "expiring");
    won(ledger.claim(&claim("i-1", 1, "a")).await);
}

#[tokio::test]
async fn replacing_compares_revisions() {
    let World { ledger, .. } = &world();
    let stored = store_all(ledger, &["i-1"]).await.remove(0);
    let next = running(&stored, owner("x"));
    let second = won(ledger.replace(&stored, &next).await);
    assert_eq!(ledger.replace(&stored, &next).await, Ok(Written::Lost));
    assert_eq!(ledger.read(&stored.id).await, Ok(Some(second)));
}

#[tokio::test]
async fn directories_follow_the_state() {
    let World { ledger, .. } = &world();
    let stored = store_all(ledger, &["i-1", "i-2", "i-3"]).await;
    let class = ClassName::new("small");
    won(ledger.replace(&stored[0], &idle(&stored[0], START.after(secs(9)))).await);
    won(ledger.replace(&stored[1], &idle(&stored[1], START.after(secs(3)))).await);
    let adverts = ledger.idle_in(&class).await.unwrap().items;
    let ids: Vec<_> = adverts.iter().map(|advert| advert.id.as_str()).collect();
    assert_eq!(ids, ["i-2", "i-1"], "oldest first");
    let pool = PoolName::new("p");
    assert_eq!(ledger.standing_by(&pool).await.unwrap().items.len(), 3);

    let releasing = State::Releasing {
        owner: owner("first"),
        tier: bullpen_core::instance::Tier::Hot,
        trusted_before: None,
        since: START,
        cap: START.after(secs(120)),
    };
    let third = Record { state: releasing, ..stored[2].clone() };
    let third = won(ledger.replace(&stored[2], &third).await);
    assert_eq!(
        ledger.owned_by(&owner("first")).await,
        Ok(vec![third.clone()].into()),
        "while releasing"
    );

    won(ledger.bury(&third, &tombstone(&third, START.after(secs(100)))).await);
    assert_eq!(ledger.owned_by(&owner("first")).await, Ok(vec![].into()));
    assert_eq!(ledger.standing_by(&pool).await.unwrap().items.len(), 2);
    assert_eq!(ledger.live(None).await.unwrap().items.len(), 2);
    assert!(ledger.read(&third.id).await.unwrap().is_some(), "a tombstone is still read");
}

#[tokio::test]
async fn reservations_move_and_come_back() {
    let World { ledger, .. } = &world();
    let pool = Scope::Pool(PoolName::new("p"));
    let ceilings = [
        Ceiling { scope: Scope::Stack, max: 9 },
        Ceiling { scope: Scope::Class(ClassName::new("small")), max: 8 },
        Ceiling { scope: pool.clone(), max: 3 },
        Ceiling { scope: Scope::Pool(PoolName::new("another")), max: 0 },
    ];
    let two = intent("intent", 2);
    assert_eq!(won(ledger.reserve(&two, &ceilings).await), Reserved::Granted);
    let known = won(ledger.reserve(&two, &ceilings).await);
    assert_eq!(known, Reserved::Known(two.clone()), "counted once");
    let short = won(ledger.reserve(&intent("more", 2), &ceilings).await);
    let Reserved::Short(reached) = short else { panic!("{short:?}") };
    assert_eq!((reached.scope, reached.used, reached.wanted), (pool, 2, 2));

    let Recorded::Stored(first) = won(ledger.record(&born("i-1")).await) else { panic!() };
    assert_eq!(won(ledger.record(&born("i-1")).await), Recorded::Known(first.clone()));
    let left = ledger.intent(&two.id).await.unwrap().unwrap();
    assert_eq!((left.outstanding, left.revision), (1, Revision(2)));
    let full = won(ledger.reserve(&intent("more", 2), &ceilings).await);
    assert!(matches!(full, Reserved::Short(_)), "a record counts as its reservation did");

    assert_eq!(ledger.give_back(&two).await, Ok(Written::Lost), "as it was before the record");
    won(ledger.give_back(&left).await);
    assert_eq!(won(ledger.record(&born("i-2")).await), Recorded::Refused);
    assert_eq!(won(ledger.reserve(&intent("more", 2), &ceilings).await), Reserved::Granted);
    assert_eq!(ledger.intents(None).await.unwrap().items.len(), 1, "spent ones are not swept");

    let one = intent("one", 1);
    assert!(matches!(won(ledger.reserve(&one, &ceilings).await), Reserved::Short(_)));
    won(ledger.bury(&first, &tombstone(&first, START.after(secs(100)))).await);
    assert_eq!(won(ledger.reserve(&one, &ceilings).await), Reserved::Granted);
}

#[tokio::test]
async fn a_machine_of_an_unknown_intent_is_refused() {
    let World { ledger, .. } = &world();
    assert_eq!(won(ledger.record(&born("i-1")).await), Recorded::Refused);
    assert_eq!(ledger.read(&InstanceId::new("i-1")).await, Ok(None));
}

#[tokio::test]
async fn expired_entries_are_removed_a_few_at_a_time() {
    let World { ledger, clock, .. } = &world();
    let ids = ["i-1", "i-2", "i-3", "i-4", "i-5", "i-6"];
    for record in store_all(ledger, &ids).await {
        won(ledger.bury(&record, &tombstone(&record, START.after(secs(100)))).await);
    }
    assert!(matches!(won(ledger.write_row(None, &row("1")).await), JobRow { .. }));
    clock.advance(Duration::from_secs(30 * 24 * 3600));
    won(ledger.reserve(&intent("later", 2), &[]).await);
    assert_eq!(ledger.intent(&intent("intent", 0).id).await, Ok(None), "spent and old");
    let mut remaining = Vec::new();
    for id in ["j-1", "j-2"] {
        let mut record = born(id);
        record.facts.intent = IntentId::new("later");
        won(ledger.record(&record).await);
        let mut left = 0;
        for id in ids {
            left += usize::from(ledger.read(&InstanceId::new(id)).await.unwrap().is_some());
        }
        remaining.push(left);
    }
    assert_eq!(remaining, [2, 0]);
    let late = JobRow { forget_at: clock.now().after(secs(1)), ..row("2") };
    won(ledger.write_row(None, &late).await);
    assert_eq!(ledger.row(&JobId::new("1")).await, Ok(None));
    assert!(ledger.row(&JobId::new("2")).await.unwrap().is_some());
}

#[tokio::test]
async fn leases_are_compared_by_revision() {
    let World { ledger, .. } = &world();
    let name = LeaseName::new("pool/p");
    let first = Lease::first(name.clone(), HolderId::new("a"));
    won(ledger.write_lease(None, &first).await);
    let other = Lease::first(name.clone(), HolderId::new("b"));
    assert_eq!(ledger.write_lease(None, &other).await, Ok(Written::Lost));
    let renewed = won(ledger.write_lease(Some(&first), &first.renewed()).await);
    let taken = first.taken_by(HolderId::new("b"));
    assert_eq!(ledger.write_lease(Some(&first), &taken).await, Ok(Written::Lost));
    assert_eq!(ledger.lease(&name).await, Ok(Some(renewed)));
}

#[tokio::test]
async fn rows_are_compared_by_revision_and_listed_while_they_wait() {
    let World { ledger, .. } = &world();
    let first = won(ledger.write_row(None, &row("7")).await);
    assert_eq!(first.revision, Revision(1));
    assert_eq!(ledger.write_row(None, &row("7")).await, Ok(Written::Lost));
    let lane =
        |name: &str| Some(WaitingAt { lane: "pool/p".into(), repository: Repository::new(name) });
    for (job, repository) in [("8", "o/r"), ("9", "o/a"), ("5", "o/z")] {
        won(ledger.write_row(None, &JobRow { waiting: lane(repository), ..row(job) }).await);
    }
    let repositories = ledger.waiting_repositories("pool/p").await.unwrap();
    assert_eq!(repositories, ["o/a", "o/r", "o/z"].map(Repository::new));
    assert_eq!(ledger.waiting_repositories("class/p").await, Ok(vec![]));

    let done = JobRow { waiting: None, next_look: None, ..first.clone() };
    let second = won(ledger.write_row(Some(first.revision), &done).await);
    assert_eq!(ledger.write_row(Some(first.revision), &done).await, Ok(Written::Lost));
    assert_eq!(ledger.row(&second.job).await, Ok(Some(second)));
    let waiting = ledger.waiting(&lane("o/r").unwrap(), None).await.unwrap();
    assert_eq!(waiting.items.iter().map(|row| row.job.as_str()).collect::<Vec<_>>(), ["8"]);
    let due = ledger.rows_due(START.after(secs(15)), None).await.unwrap();
    assert_eq!(due.items.iter().map(|row| row.job.as_str()).collect::<Vec<_>>(), ["5", "8", "9"]);
    assert_eq!(ledger.rows_due(START, None).await.unwrap().items, []);
}

#[tokio::test]
async fn every_page_is_reached_when_all_share_one_deadline() {
    let World { ledger, .. } = &world();
    let ids: Vec<String> = (0..450).map(|index| format!("i-{index:03}")).collect();
    store_all(ledger, &ids.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let rows: Vec<JobRow> = ids.iter().map(|id| row(id)).collect();
    for row in &rows {
        won(ledger.write_row(None, row).await);
    }
    let mut found = [const { BTreeSet::<String>::new() }; 4];
    let mut cursors: [Option<String>; 4] = Default::default();
    for page in 0..3 {
        let before = START.after(secs(10_000));
        let due = ledger.due(before, cursors[0].as_deref()).await.unwrap();
        let live = ledger.live(cursors[1].as_deref()).await.unwrap();
        let rows_due = ledger.rows_due(before, cursors[2].as_deref()).await.unwrap();
        let at = rows[0].waiting.clone().unwrap();
        let waiting = ledger.waiting(&at, cursors[3].as_deref()).await.unwrap();
        found[0].extend(due.items.iter().map(|record| record.id.to_string()));
        found[1].extend(live.items.iter().map(|record| record.id.to_string()));
        found[2].extend(rows_due.items.iter().map(|row| row.job.to_string()));
        found[3].extend(waiting.items.iter().map(|row| row.job.to_string()));
        cursors = [due.next, live.next, rows_due.next, waiting.next];
        assert_eq!(cursors.iter().all(Option::is_none), page == 2);
    }
    for found in found {
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ids);
    }
    assert!(matches!(ledger.due(START, Some("odd")).await, Err(Fault::Unreadable(_))));
}

#[tokio::test]
async fn an_unreadable_row_names_itself_and_stays() {
    let World { ledger, path, .. } = &world();
    let stored = store_all(ledger, &["i-1"]).await.remove(0);
    let other = rusqlite::Connection::open(path).unwrap();
    other.execute("UPDATE records SET body = '{\"id\":1}'", []).unwrap();
    let Err(Fault::Unreadable(text)) = ledger.read(&stored.id).await else { panic!() };
    assert!(text.starts_with("record i-1: "), "{text}");
    assert!(matches!(ledger.claim(&claim("i-1", 1, "a")).await, Err(Fault::Unreadable(_))));
    let owned = ledger.owned_by(&owner("first")).await.unwrap();
    assert_eq!((owned.items.len(), owned.unreadable[0].key.as_str()), (0, "i-1"));
    let body: String = other.query_row("SELECT body FROM records", [], |row| row.get(0)).unwrap();
    assert_eq!(body, "{\"id\":1}");
}

/// The ledger keeps many tombstones for long, so no listing and no count may scan them.
#[tokio::test]
async fn no_statement_scans_a_table() {
    let World { path, .. } = &world();
    let db = rusqlite::Connection::open(path).unwrap();
    let sources = [
        include_str!("records.rs"),
        include_str!("creation.rs"),
        include_str!("rows.rs"),
        include_str!("../queues/messages.rs"),
        include_str!("../queues/receive.rs"),
    ];
    let literals = sources.iter().flat_map(|source| source.split('"').skip(1).step_by(2));
    let statements: Vec<_> = literals.filter(|text| text.contains(" WHERE ")).collect();
    assert!(statements.len() > 20, "found only {}", statements.len());
    for sql in statements {
        let sql = sql.replace("\\\n", " ");
        let mut explain = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let mut steps = explain.raw_query();
        while let Some(step) = steps.next().unwrap() {
            let step: String = step.get(3).unwrap();
            // A statement may read a whole index only if it needs every entry.
            let whole = ["COVERING INDEX records_", "COVERING INDEX intents_open", "CONSTANT ROW"];
            let fine = !step.starts_with("SCAN") || whole.iter().any(|it| step.contains(it));
            assert!(fine, "{step}: {sql}");
        }
    }
}
