//! Tests of writes that fail alone, fail together, lose their caller, or have no file any more.

use std::fs;
use std::future::Future as _;
use std::pin::pin;
use std::task::{Context, Waker};

use rusqlite::params;
use tempfile::TempDir;

use super::*;
use crate::open::{LEDGER, beside};
use crate::write_gate::PATIENCE_MAX;

struct World {
    store: Store,
    path: PathBuf,
    _directory: TempDir,
}

fn world() -> World {
    patient(PATIENCE_MAX)
}

fn patient(patience: Duration) -> World {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("ledger.db");
    let store = Store::open(&path, &LEDGER, patience).unwrap();
    World { store, path, _directory: directory }
}

fn put(writing: &mut Writing<'_>, name: &str) -> Result<(), StatementFault> {
    let sql = "INSERT INTO leases (name, revision, body) VALUES (?1, 1, '')";
    writing.db.prepare_cached(sql)?.execute(params![name])?;
    Ok(())
}

async fn names(store: &Store) -> Vec<String> {
    store
        .read(|db| {
            let mut statement = db.prepare_cached("SELECT name FROM leases ORDER BY name")?;
            let names = statement.query_map([], |row| row.get(0))?;
            Ok(names.collect::<rusqlite::Result<_>>()?)
        })
        .await
        .unwrap()
}

#[tokio::test]
async fn a_failed_write_undoes_no_other_write_of_its_batch() {
    let World { store, path, .. } = &world();
    // Hold the lock, so that the three writes go into one transaction.
    let other = Connection::open(path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let release = async { other.execute_batch("COMMIT").unwrap() };
    let (first, failed, second, ()) = tokio::join!(
        store.write(|writing| put(writing, "a")),
        store.write(|writing| {
            put(writing, "b")?;
            Err::<(), _>(Fault::NotFound.into())
        }),
        store.write(|writing| put(writing, "c")),
        release,
    );
    assert!(matches!(first, WriteOutcome::Done(())));
    assert!(matches!(failed, WriteOutcome::Refused(Fault::NotFound)));
    assert!(matches!(second, WriteOutcome::Done(())));
    assert_eq!(names(store).await, ["a", "c"]);
}

#[tokio::test]
async fn a_write_happens_whole_although_its_future_is_dropped() {
    let World { store, .. } = &world();
    {
        let mut write = pin!(store.write(|writing| {
            put(writing, "a")?;
            put(writing, "b")
        }));
        let mut context = Context::from_waker(Waker::noop());
        assert!(write.as_mut().poll(&mut context).is_pending());
    }
    drop(store.write(|writing| put(writing, "never polled")));
    assert!(matches!(store.write(|writing| put(writing, "c")).await, WriteOutcome::Done(())));
    assert_eq!(names(store).await, ["a", "b", "c"]);
}

#[tokio::test]
async fn a_commit_that_fails_leaves_open_whether_it_landed() {
    let World { store, .. } = &world();
    // SQLite refuses this commit: a deferred reference to a missing row.
    let outcome = store
        .write(|writing| {
            writing.db.execute_batch(
                "CREATE TABLE a (x PRIMARY KEY); \
                 CREATE TABLE b (x REFERENCES a DEFERRABLE INITIALLY DEFERRED); \
                 INSERT INTO b VALUES (1)",
            )?;
            Ok(())
        })
        .await;
    assert!(matches!(outcome, WriteOutcome::Unknown));
    assert!(matches!(store.write(|writing| put(writing, "a")).await, WriteOutcome::Done(())));
}

#[tokio::test]
async fn a_transaction_that_sqlite_gave_up_did_not_land() {
    let World { store, .. } = &world();
    let outcome = store
        .write(|writing| {
            put(writing, "a")?;
            writing.db.execute_batch("ROLLBACK")?;
            Ok(())
        })
        .await;
    assert!(matches!(outcome, WriteOutcome::Refused(_)), "{outcome:?}");
    assert!(names(store).await.is_empty());
    assert!(matches!(store.write(|writing| put(writing, "b")).await, WriteOutcome::Done(())));
}

#[tokio::test]
async fn nothing_is_written_into_a_file_that_a_newer_program_migrated() {
    let World { store, path, .. } = &world();
    let newer = Connection::open(path).unwrap();
    newer.pragma_update(None, "user_version", 99).unwrap();
    let outcome = store.write(|writing| put(writing, "a")).await;
    let WriteOutcome::Refused(Fault::Denied(text)) = outcome else { panic!("{outcome:?}") };
    assert!(text.contains("version 99"), "{text}");
    assert!(names(store).await.is_empty());
}

#[tokio::test]
async fn a_lock_that_is_never_released_costs_an_error_and_nothing_else() {
    let World { store, path, .. } = &patient(Duration::from_millis(5));
    let other = Connection::open(path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let outcome = store.write(|writing| put(writing, "a")).await;
    assert!(matches!(outcome, WriteOutcome::Refused(Fault::Throttled)), "{outcome:?}");
    assert!(names(store).await.is_empty(), "reading needs no lock");
    other.execute_batch("COMMIT").unwrap();
    assert!(matches!(store.write(|writing| put(writing, "b")).await, WriteOutcome::Done(())));
    assert_eq!(names(store).await, ["b"]);
}

#[tokio::test]
async fn queued_writes_are_stored_before_the_store_closes() {
    let World { store, path, _directory } = world();
    {
        let mut write = pin!(store.write(|writing| put(writing, "a")));
        assert!(write.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    drop(store);
    let again = Store::open(&path, &LEDGER, PATIENCE_MAX).unwrap();
    assert_eq!(names(&again).await, ["a"]);
}

/// Asserts that a write is refused with this word, and that the store tells it.
async fn is_lost(store: &Store, word: &str) {
    let outcome = store.write(|writing| put(writing, "never")).await;
    let WriteOutcome::Refused(Fault::Denied(text)) = outcome else { panic!("{outcome:?}") };
    assert!(text.contains(word), "{text}");
    let lost = store.watch().lost().await;
    assert_eq!(lost.to_string(), text);
    assert!(!lost.hint().is_empty());
}

#[tokio::test]
async fn nothing_is_written_into_a_file_that_was_deleted() {
    let World { store, path, .. } = &world();
    assert!(matches!(store.write(|writing| put(writing, "a")).await, WriteOutcome::Done(())));
    fs::remove_file(path).unwrap();
    is_lost(store, "was deleted").await;
}

#[tokio::test]
async fn nothing_is_written_into_a_file_that_was_replaced() {
    let World { store, path, .. } = &world();
    let copy = path.with_extension("copy");
    fs::copy(path, &copy).unwrap();
    fs::rename(&copy, path).unwrap();
    is_lost(store, "was replaced").await;
}

#[tokio::test]
async fn nothing_is_written_into_a_log_that_was_deleted() {
    let World { store, path, .. } = &world();
    assert!(matches!(store.write(|writing| put(writing, "a")).await, WriteOutcome::Done(())));
    fs::remove_file(beside(path, "-wal")).unwrap();
    is_lost(store, "was deleted").await;
}

#[tokio::test]
async fn a_file_that_a_newer_program_migrated_is_lost() {
    let World { store, path, .. } = &world();
    let newer = Connection::open(path).unwrap();
    newer.pragma_update(None, "user_version", 99).unwrap();
    is_lost(store, "version 99").await;
}

#[tokio::test]
async fn on_a_full_disk_a_write_is_refused_and_the_next_one_may_land() {
    let World { store, .. } = &world();
    let set_pages_max = |pages: &'static str| {
        store.write(move |writing| {
            writing
                .db
                .execute_batch(&format!("PRAGMA max_page_count = {pages}"))
                .map_err(Into::into)
        })
    };
    // No fewer than the file has now.
    assert!(matches!(set_pages_max("1").await, WriteOutcome::Done(())));
    let large = |writing: &mut Writing<'_>| put(writing, &"x".repeat(100_000));
    let outcome = store.write(large).await;
    assert!(matches!(outcome, WriteOutcome::Refused(Fault::Unavailable(_))), "{outcome:?}");
    assert!(names(store).await.is_empty());
    assert!(matches!(set_pages_max("1000000").await, WriteOutcome::Done(())));
    assert!(matches!(store.write(large).await, WriteOutcome::Done(())));
}

#[tokio::test]
async fn a_panic_costs_its_own_caller_alone() {
    let World { store, .. } = &world();
    let write = store.write(|writing| {
        put(writing, "half")?;
        panic!("a defect in a write")
    });
    let outcome: WriteOutcome<()> = write.await;
    assert!(matches!(outcome, WriteOutcome::Refused(Fault::Unclassified(_))), "{outcome:?}");
    let read: Result<(), Fault> = store.read(|_| panic!("a defect in a read")).await;
    assert!(matches!(read, Err(Fault::Unclassified(_))), "{read:?}");
    assert!(matches!(store.write(|writing| put(writing, "a")).await, WriteOutcome::Done(())));
    assert_eq!(names(store).await, ["a"]);
}

/// A job that panics where nothing catches it.
struct Deadly;

impl Job for Deadly {
    fn run(&mut self, _writing: &mut Writing<'_>) -> bool {
        true
    }

    fn answer(self: Box<Self>, _fate: &Fate) {
        panic!("a defect in the thread itself")
    }
}

#[tokio::test]
async fn a_thread_that_dies_is_told() {
    let World { store, .. } = &world();
    store.writes.as_ref().unwrap().try_send(Box::new(Deadly)).unwrap();
    let lost = store.watch().lost().await;
    assert!(lost.to_string().contains("a defect ended the writer"), "{lost}");
    let outcome = store.write(|writing| put(writing, "a")).await;
    assert!(!matches!(outcome, WriteOutcome::Done(())), "{outcome:?}");
}
