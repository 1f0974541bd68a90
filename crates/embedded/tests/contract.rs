//! SQLite passes the same contract suites as the models, on real files, with a second handle on the
//! file in the place of a second process.
//!
//! Not here: real processes (`processes`), or what SQLite does beyond the ports.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bullpen_core::ids::MailboxKey;
use bullpen_core::ports::Clock;
use bullpen_core::time::Timestamp;
use bullpen_embedded::{SqliteLedger, SqliteMailbox, SqliteQueues};
use bullpen_sim::clock::ManualClock;
use bullpen_sim::contract::Harness;
use bullpen_sim::contract::mailbox::MailboxHarness;
use bullpen_sim::model::mailbox::Forgery;
use tempfile::TempDir;

/// What every harness here has: a directory of its own and a clock.
struct Ground {
    directory: TempDir,
    clock: Arc<ManualClock>,
}

impl Ground {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("the system has room for temporary files");
        Self { directory, clock: ManualClock::new() }
    }

    /// Moves the clock, and lets the database's threads get their turn at what that woke.
    async fn pass(&self, wait: Duration) {
        const TURN: Duration = Duration::from_millis(5);
        self.clock.advance(wait);
        #[expect(clippy::disallowed_methods, reason = "the threads below run on real time")]
        tokio::time::sleep(TURN).await;
    }
}

fn real<F: Future>(case: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .expect("the system has room for two threads");
    runtime.block_on(case)
}

macro_rules! sqlite {
    ($harness:ident, $adapter:ident, $file:literal) => {
        struct $harness {
            port: $adapter<ManualClock>,
            ground: Ground,
        }

        impl $harness {
            fn open(ground: &Ground) -> $adapter<ManualClock> {
                let path = ground.directory.path().join($file);
                $adapter::open(&path, Arc::clone(&ground.clock)).expect("the file is ours alone")
            }
        }

        impl Harness for $harness {
            type Port = $adapter<ManualClock>;

            fn block_on<F: Future>(case: F) -> F::Output {
                real(case)
            }

            async fn fresh() -> Self {
                let ground = Ground::new();
                Self { port: Self::open(&ground), ground }
            }

            fn port(&self) -> &Self::Port {
                &self.port
            }

            fn another_process(&self) -> Self::Port {
                Self::open(&self.ground)
            }

            fn now(&self) -> Timestamp {
                self.ground.clock.now()
            }

            async fn pass(&self, wait: Duration) {
                self.ground.pass(wait).await;
            }
        }
    };
}

sqlite!(LedgerOnDisk, SqliteLedger, "ledger.db");
sqlite!(QueuesOnDisk, SqliteQueues, "ledger.db");
sqlite!(MailboxOnDisk, SqliteMailbox, "mailbox.db");

impl MailboxHarness for MailboxOnDisk {
    async fn forge_report(&self, key: &MailboxKey, forged: &Forgery) {
        let path = self.ground.directory.path().join("mailbox.db");
        let db = rusqlite::Connection::open(path).expect("the file is there");
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
            // The tables are strict: bytes that are no text are the worst that goes in.
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
