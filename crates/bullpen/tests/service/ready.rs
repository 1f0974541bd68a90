//! A service that can store nothing says so: it is not ready, acknowledges no webhook, and ends if
//! only a new process can help. So does a service whose clock is wrong.
//!
//! Not here: what the admin listener answers otherwise (`answers`).

use std::collections::BTreeSet;
use std::fs;

use bullpen_agent::runner::tree;
use bullpen_core::job::{Conclusion as Concluded, End};
use rusqlite::Connection;
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::waiting::until;
use crate::world::{HASTY, Served, World};

/// A world with one idle machine.
async fn with_a_machine() -> (World, Served) {
    let world = World::with(HASTY).await;
    let served = world.serve().await;
    let job = world.job("bullpen/runner=small", "true");
    world.over(job).await;
    world.settled(job).await;
    world.quiet().await;
    (world, served)
}

/// GitHub announces another job; asserts that its webhook is not acknowledged.
async fn a_webhook_is_not_acknowledged(world: &World) {
    world.job("bullpen/runner=small", "true");
    world.github.webhooks_sent().await;
    assert_ne!(world.github.webhook_answers().last(), Some(&204), "its row is stored nowhere");
}

/// The service ends by itself, with an error that says this.
async fn ends_saying(served: Served, words: &[&str]) {
    let ran = served.process.ends().await;
    ran.exits(1);
    for word in words {
        assert!(ran.talk.contains(word), "{word}: {ran:#?}");
    }
}

#[tokio::test]
async fn without_its_state_directory_a_service_ends_and_so_do_its_machines() {
    let (world, served) = with_a_machine().await;
    let machines = world.state().join("machines").canonicalize().expect("it is there");
    let mark = BTreeSet::from([machines.display().to_string()]);
    assert!(!tree::under(&mark).expect("this is Linux").is_empty(), "a machine is up");
    // Agents write meanwhile.
    until("deleted directory", async || fs::remove_dir_all(world.state()).ok()).await;
    a_webhook_is_not_acknowledged(&world).await;
    ends_saying(served, &["ledger.db was deleted", "hint: "]).await;
    until("end of all machines", async || {
        tree::under(&mark).expect("this is Linux").is_empty().then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_service_does_not_write_into_a_ledger_that_was_replaced() {
    let (world, served) = with_a_machine().await;
    let (ledger, copy) = (world.state().join("ledger.db"), world.state().join("copy.db"));
    fs::copy(&ledger, &copy).expect("it can be copied");
    fs::rename(&copy, &ledger).expect("it can be replaced");
    a_webhook_is_not_acknowledged(&world).await;
    ends_saying(served, &["ledger.db was replaced", "hint: "]).await;
}

#[tokio::test]
async fn a_service_ends_when_a_newer_program_has_migrated_its_ledger() {
    let (world, served) = with_a_machine().await;
    let set_version = |version: i64| {
        let db = Connection::open(world.state().join("ledger.db")).expect("it is there");
        let before = db.pragma_query_value(None, "user_version", |row| row.get(0));
        db.pragma_update(None, "user_version", version).expect("it can be written");
        before.expect("it has one")
    };
    let own: i64 = set_version(99);
    a_webhook_is_not_acknowledged(&world).await;
    ends_saying(served, &["version 99", "hint: "]).await;
    set_version(own);
}

/// No file of the service may grow, as on a full disk: it stays, says so, and goes on afterwards.
#[tokio::test]
async fn on_a_full_disk_a_service_is_not_ready_and_goes_on_when_there_is_room() {
    let (world, mut served) = with_a_machine().await;
    assert_eq!(served.ask("/readyz").await.status, 200);
    let pid = i32::try_from(served.process.child.id()).ok().and_then(Pid::from_raw);
    let limit = |bytes: Option<u64>| {
        let limit = Rlimit { current: bytes, maximum: None };
        prlimit(pid, Resource::Fsize, limit).expect("it is ours");
    };
    limit(Some(0));
    a_webhook_is_not_acknowledged(&world).await;
    until("red light", async || {
        let answer = served.ask("/readyz").await;
        (answer.status == 503 && answer.body.contains("ledger")).then_some(())
    })
    .await;
    assert!(!served.process.is_over());
    limit(None);
    until("green light", async || (served.ask("/readyz").await.status == 200).then_some(())).await;
    let job = world.job("bullpen/runner=small", "true");
    world.over(job).await;
    assert_eq!(world.settled(job).await, End::Completed(Concluded::new("success")));
}

/// GitHub's answers are dated, and tell a service by how much its clock is off.
#[tokio::test]
async fn a_service_whose_clock_is_wrong_says_so() {
    let world = World::with(&[("configuration", "1s")]).await;
    let served = world.serve().await;
    let answers = async |dated_earlier_s: i64, status: u16, words: &str| {
        world.github.pull(|levers| levers.dated_earlier_s = dated_earlier_s);
        until(words, async || {
            let answer = served.ask("/readyz").await;
            (answer.status == status && answer.body.contains(words)).then_some(())
        })
        .await;
    };
    answers(0, 200, "ready\n").await;
    answers(20, 200, "ready, and judges no ages: this machine's clock is at least").await;
    answers(75, 503, "ahead of GitHub's, more than clocks may differ").await;
    until("word of it", async || served.process.talk().contains("judges no ages").then_some(()))
        .await;
    let metrics = served.ask("/metrics").await.body;
    let ahead = metrics.lines().find_map(|line| line.strip_prefix("bullpen_clock_ahead_seconds "));
    let ahead: f64 = ahead.and_then(|text| text.parse().ok()).expect("it is counted");
    assert!((70.0..76.0).contains(&ahead), "{ahead}");
    answers(-75, 503, "behind GitHub's").await;
    answers(0, 200, "ready\n").await;
    let job = world.job("bullpen/runner=small", "true");
    world.over(job).await;
    assert_eq!(world.settled(job).await, End::Completed(Concluded::new("success")));
}
