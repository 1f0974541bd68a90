//! `refresh` and its limits; state of a newer version; wrong inputs.
//!
//! Not here: cleaning up after a kill (`killed`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use rusqlite::types::Value as Cell;
use rusqlite::{Connection, OpenFlags};

use crate::waiting::until;
use crate::world::World;

/// Every row of every table.
fn rows(database: &Path) -> BTreeMap<String, Vec<String>> {
    read(database).expect("it is a database of ours")
}

fn read(database: &Path) -> rusqlite::Result<BTreeMap<String, Vec<String>>> {
    let db = Connection::open_with_flags(database, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let mut names = db.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'")?;
    let names: Vec<String> = names.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let mut tables = BTreeMap::new();
    for name in names {
        let mut all = db.prepare(&format!("SELECT * FROM {name}"))?;
        let columns = all.column_count();
        let text = |row: &rusqlite::Row<'_>| {
            let cells: Result<Vec<Cell>, _> = (0..columns).map(|at| row.get(at)).collect();
            cells.map(|cells| format!("{cells:?}"))
        };
        let all = all.query_map([], text)?.collect::<Result<_, _>>()?;
        tables.insert(name, all);
    }
    Ok(tables)
}

/// A world with work for a refresh: machines past their time, new settings.
async fn untidy() -> World {
    let hasty = [
        ("idle-released", "2s"),
        ("not-claimable-before-deadline", "1s"),
        ("clock-skew", "1s"),
        ("reconcile-grace", "1s"),
    ];
    let world = World::with(&hasty).await;
    world.provision(2, "one").await;
    world.release("one").await;
    world
}

/// Every step has a line of its own. A dry run reports in the same words, and writes nothing.
#[tokio::test]
async fn a_dry_run_writes_nothing_and_says_what_it_would_do() {
    let world = untidy().await;
    let (ledger, mailbox) = (world.state().join("ledger.db"), world.state().join("mailbox.db"));
    // Agents still send heartbeats; only the inboxes have the orders.
    let all = || (rows(&ledger), rows(&mailbox).remove("inboxes").expect("it is there"));
    let dry = until("something to do", async || {
        let before = all();
        let dry = world.bullpen("refresh --dry-run --idle-time-sec 60").run().await;
        assert_eq!(all(), before, "{dry:#?}");
        dry.data.contains("2 past their time, ending").then_some(dry)
    })
    .await;
    dry.exits(0);
    assert!(dry.data.contains("parameters   would: stored the parameters"), "{dry:#?}");
    assert!(dry.data.contains("reaping      would: 2 past their time, ending"), "{dry:#?}");
    assert!(dry.talk.contains("would write "), "{dry:#?}");
    assert_eq!(world.states().await.len(), 2, "they are still there");
}

/// D41: a failing step stops no other.
#[tokio::test]
async fn a_refresh_that_github_refuses_reaps_all_the_same() {
    let world = untidy().await;
    world.github.pull(|levers| levers.refuse_credentials = true);
    until("end of what was idle", async || {
        let refreshed = world.bullpen("refresh").run().await;
        refreshed.exits(1);
        assert!(refreshed.data.contains("tokens       FAILED: denied"), "{refreshed:#?}");
        world.states().await.is_empty().then_some(())
    })
    .await;
}

#[tokio::test]
async fn two_refreshes_at_once_are_harmless() {
    let world = untidy().await;
    let owned = world.provision(2, "owned").await;
    until("end of what was idle", async || {
        let both = [(); 2].map(|()| world.bullpen("refresh --json").start());
        for one in both {
            one.ends().await.exits(0);
        }
        let states = world.states().await;
        (states.len() == 2).then_some(states)
    })
    .await;
    let left: BTreeSet<String> = world.states().await.into_keys().collect();
    assert_eq!(left, owned.ids());
    world.runs_job(owned.label(), "true").await;
    world.verify().await;
}

/// The databases, and all files beside the database of this name. SQLite's files beside the other
/// database come and go with each process that opens it.
fn bytes(state: &Path, refused: &str) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(state).expect("it is there").map(|entry| entry.expect("an entry"));
    let files = entries.filter(|entry| entry.path().is_file());
    let named = files.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()));
    named
        .filter(|(name, _)| {
            ["ledger.db", "mailbox.db"].contains(&name.as_str()) || name.starts_with(refused)
        })
        .map(|(name, path)| (name, fs::read(path).expect("it can be read")))
        .collect()
}

fn raise_version(database: &Path, by: i32) -> rusqlite::Result<()> {
    let db = Connection::open(database)?;
    let now: i32 = db.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    db.pragma_update(None, "user_version", now + by)?;
    // Moves all pages from the write-ahead log into the file itself.
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
}

#[tokio::test]
async fn a_state_of_a_newer_version_is_refused_and_left_as_it_is() {
    let world = World::new().await;
    world.refresh().await;
    for name in ["ledger.db", "mailbox.db"] {
        let path = world.state().join(name);
        raise_version(&path, 1).expect("it is a database of ours");
        let before = bytes(&world.state(), name);
        for line in ["provision --count 1", "release", "refresh", "status", "ledger verify"] {
            let refused = world.bullpen(line).run().await;
            refused.exits(1).says(name);
            assert!(refused.talk.contains("\n\nhint: "), "{refused:#?}");
            assert!(bytes(&world.state(), name) == before, "{line} wrote to {name}");
        }
        raise_version(&path, -1).expect("it is a database of ours");
    }
    world.verify().await;
}

/// D34: a wrong input is refused in one line, before any change.
#[tokio::test]
async fn wrong_inputs_are_refused_in_one_line() {
    let world = World::new().await;
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
        let refused = world.bullpen(line).run().await;
        refused.exits(64).says(about);
        assert_eq!(refused.talk.lines().count(), 1, "{refused:#?}");
    }
}
