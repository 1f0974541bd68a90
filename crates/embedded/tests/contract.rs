//! The contract suites for SQLite on real files; a second handle on the file stands for a second
//! process.
//!
//! Not here: real processes (`processes`), and behaviour beyond the ports (tests beside the code).

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bullpen_core::ids::MailboxKey;
use bullpen_core::ports::{Clock, ItemKind};
use bullpen_core::time::Timestamp;
use bullpen_embedded::{SqliteLedger, SqliteMailbox, SqliteQueues};
use bullpen_sim::clock::ManualClock;
use bullpen_sim::contract::Harness;
use bullpen_sim::contract::ledger::LedgerHarness;
use bullpen_sim::contract::mailbox::MailboxHarness;
use bullpen_sim::model::mailbox::Forgery;
use tempfile::TempDir;

/// A temporary directory and a clock, for one harness.
struct Fixture {
    directory: TempDir,
    clock: Arc<ManualClock>,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory can be made");
        Self { directory, clock: ManualClock::new() }
    }

    /// Advances the clock, and gives the database's threads time to run.
    async fn pass(&self, wait: Duration) {
        const REAL_TIME: Duration = Duration::from_millis(5);
        self.clock.advance(wait);
        #[expect(clippy::disallowed_methods, reason = "the database's threads run on real time")]
        tokio::time::sleep(REAL_TIME).await;
    }
}

fn real<F: Future>(case: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .expect("the system allows two threads");
    runtime.block_on(case)
}

macro_rules! sqlite {
    ($harness:ident, $adapter:ident, $file:literal) => {
        struct $harness {
            port: $adapter<ManualClock>,
            fixture: Fixture,
        }

        impl $harness {
            fn open(fixture: &Fixture) -> $adapter<ManualClock> {
                let path = fixture.directory.path().join($file);
                $adapter::open(&path, Arc::clone(&fixture.clock)).expect("the file is ours alone")
            }
        }

        impl Harness for $harness {
            type Port = $adapter<ManualClock>;

            fn block_on<F: Future>(case: F) -> F::Output {
                real(case)
            }

            async fn fresh() -> Self {
                let fixture = Fixture::new();
                Self { port: Self::open(&fixture), fixture }
            }

            fn port(&self) -> &Self::Port {
                &self.port
            }

            fn another_process(&self) -> Self::Port {
                Self::open(&self.fixture)
            }

            fn now(&self) -> Timestamp {
                self.fixture.clock.now()
            }

            async fn pass(&self, wait: Duration) {
                self.fixture.pass(wait).await;
            }
        }
    };
}

sqlite!(LedgerOnDisk, SqliteLedger, "ledger.db");
sqlite!(QueuesOnDisk, SqliteQueues, "ledger.db");
sqlite!(MailboxOnDisk, SqliteMailbox, "mailbox.db");

impl LedgerHarness for LedgerOnDisk {
    async fn make_unreadable(&self, kind: ItemKind, key: &str) {
        let path = self.fixture.directory.path().join("ledger.db");
        let db = rusqlite::Connection::open(path).expect("the file exists");
        let newer = "revision = revision + 1, body = json_set(body, '$.v', 9)";
        // The ledger does not read these bodies, so the worst possible value is a text of invalid
        // bytes.
        let damaged = "revision = revision + 1, body = CAST(x'fffe00' AS TEXT)";
        let sql = match kind {
            ItemKind::Record => format!("UPDATE records SET {newer} WHERE id = ?1"),
            ItemKind::Intent => format!("UPDATE intents SET {newer} WHERE id = ?1"),
            ItemKind::Row => format!("UPDATE job_rows SET {damaged} WHERE job = ?1"),
            ItemKind::Document => {
                format!("UPDATE documents SET {damaged} WHERE collection || '/' || name = ?1")
            }
            other => panic!("the suite has no case for a {other}"),
        };
        assert_eq!(db.execute(&sql, [key]).expect("the file is writable"), 1);
    }
}

impl MailboxHarness for MailboxOnDisk {
    async fn forge_report(&self, key: &MailboxKey, forged: &Forgery) {
        let path = self.fixture.directory.path().join("mailbox.db");
        let db = rusqlite::Connection::open(path).expect("the file exists");
        let key = key.as_str();
        let put = "INSERT INTO reports (key, change) VALUES (?1, 1) \
                   ON CONFLICT DO UPDATE SET change = change + 1";
        db.execute(put, [key]).expect("the file is writable");
        if let Some(beat) = &forged.beat {
            let sql = "UPDATE reports SET beat = ?2, boot = 'b', seq = 0 WHERE key = ?1";
            db.execute(sql, [key, beat]).expect("the file is writable");
        }
        for (kind, body) in &forged.signals {
            let sql = "INSERT OR REPLACE INTO signals (key, kind, generation, body) \
                       VALUES (?1, ?2, 0, ?3)";
            db.execute(sql, [key, &format!("\"{kind}\""), body]).expect("the file is writable");
        }
        if forged.ill_typed {
            // The tables are strict, so the worst possible value is a text of invalid bytes.
            let sql = "UPDATE reports SET beat = CAST(x'fffe00' AS TEXT) WHERE key = ?1";
            db.execute(sql, [key]).expect("the file is writable");
        }
    }
}

mod ledger {
    bullpen_sim::ledger_contract!(super::LedgerOnDisk);
}

mod queues {
    bullpen_sim::queues_contract!(super::QueuesOnDisk);
}

mod mailbox {
    bullpen_sim::mailbox_contract!(super::MailboxOnDisk);
}
