//! `refresh` and what it must not do; state of a newer version; inputs that are wrong.
//!
//! Not here: what it sets right after a kill (`killed`).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use rusqlite::types::Value as Cell;
use rusqlite::{Connection, OpenFlags};

use crate::call::until;
use crate::stage::Stage;

/// Every row of every table.
fn rows(database: &Path) -> BTreeMap<String, Vec<String>> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
    let db = Connection::open_with_flags(database, flags).expect("it is there");
    let mut names = db.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'").unwrap();
    let names: Vec<String> =
        names.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let table = |name: String| {
        let mut all = db.prepare(&format!("SELECT * FROM {name}")).unwrap();
        let columns = all.column_count();
        let cells = |row: &rusqlite::Row<'_>| {
            (0..columns).map(|at| row.get::<_, Cell>(at)).collect::<Result<Vec<_>, _>>()
        };
        let all = all.query_map([], |row| cells(row).map(|cells| format!("{cells:?}"))).unwrap();
        (name, all.map(Result::unwrap).collect())
    };
    names.into_iter().map(table).collect()
}

/// What refresh would have to do: machines that are past their time, settings that are new.
async fn untidy() -> Stage {
    let hasty = [
        ("idle-released", "2s"),
        ("not-claimable-before-deadline", "1s"),
        ("clock-skew", "1s"),
        ("reconcile-grace", "1s"),
    ];
    let stage = Stage::with(&hasty).await;
    stage.provision(2, "one").await;
    stage.release("one").await;
    stage
}

/// D41: every step is told apart. A dry run is told in the same words, and writes nothing.
#[tokio::test]
async fn a_dry_run_writes_nothing_and_says_what_it_would_do() {
    let stage = untidy().await;
    let ledger = stage.state().join("ledger.db");
    let dry = until("something to do", async || {
        let before = rows(&ledger);
        let dry = stage.bullpen("refresh --dry-run --idle-time-sec 60").run().await;
        assert_eq!(rows(&ledger), before, "{dry:#?}");
        dry.data.contains("2 past their time, ending").then_some(dry)
    })
    .await;
    dry.exits(0);
    assert!(dry.data.contains("parameters   would: stored the parameters"), "{dry:#?}");
    assert!(dry.data.contains("reaping      would: 2 past their time, ending"), "{dry:#?}");
    assert!(dry.talk.contains("would write "), "{dry:#?}");
    assert_eq!(stage.states().await.len(), 2, "they are still there");
}

#[tokio::test]
async fn two_refreshes_at_once_are_harmless() {
    let stage = untidy().await;
    let owned = stage.provision(2, "owned").await;
    until("end of what was idle", async || {
        let both = [(); 2].map(|()| stage.bullpen("refresh --json").start());
        for one in both {
            one.ends().await.exits(0);
        }
        let states = stage.states().await;
        (states.len() == 2).then_some(states)
    })
    .await;
    assert_eq!(
        stage.states().await.keys().cloned().collect::<std::collections::BTreeSet<_>>(),
        owned.ids()
    );
    stage.runs_job(owned.label(), "true").await;
    stage.verify().await;
}

/// Every file of a directory, but not what running machines write.
fn bytes(state: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(state).expect("it is there").map(|entry| entry.expect("an entry"));
    let files = entries.filter(|entry| entry.path().is_file());
    files
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, fs::read(entry.path()).expect("it can be read"))
        })
        .collect()
}

#[tokio::test]
async fn a_state_of_a_newer_version_is_refused_and_left_as_it_is() {
    let stage = Stage::new().await;
    stage.refresh().await;
    for name in ["ledger.db", "mailbox.db"] {
        let version = |change: &dyn Fn(u32) -> u32| {
            let db = Connection::open(stage.state().join(name)).expect("it is there");
            let now: u32 = db.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
            db.pragma_update(None, "user_version", change(now)).unwrap();
            db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        };
        version(&|now| now + 1);
        let before = bytes(&stage.state());
        for line in ["provision --count 1", "release", "refresh", "status", "ledger verify"] {
            let refused = stage.bullpen(line).run().await;
            refused.exits(1).says(name);
            assert!(refused.talk.contains("\n\nhint: "), "{refused:#?}");
            assert_eq!(bytes(&stage.state()), before, "{line}");
        }
        version(&|now| now - 1);
    }
    stage.verify().await;
}

/// D34: what makes no sense is refused in one line, before anything is touched.
#[tokio::test]
async fn wrong_inputs_are_refused_in_one_line() {
    let stage = Stage::new().await;
    for (line, about) in [
        ("provision --count 0", "--count"),
        ("provision --count three", "--count"),
        ("provision --deadline 0s", "--deadline"),
        ("provision --usage-class cheap", "--usage-class"),
        ("provision --resource-class enormous", "--resource-class"),
        ("provision --request nonsense", "--request"),
        ("refresh --idle-time-sec 0", "--idle-time-sec"),
        ("refresh --max-runtime-min 0", "--max-runtime-min"),
        ("destroy", "--yes"),
    ] {
        let refused = stage.bullpen(line).run().await;
        refused.exits(64).says(about);
        assert_eq!(refused.talk.lines().count(), 1, "{refused:#?}");
    }
}
