//! Machines without a control plane end by themselves.
//!
//! Not here: machines whose supervisor is dead (`killed`).

use std::fs;
use std::path::Path;
use std::time::Duration;

use bullpen_agent::machine::{RunnerProgram, UserData};
use bullpen_core::ports::Fleet as _;
use bullpen_sim::contract::fleet::any_machines;
use rusqlite::Connection;
use serde_json::Value;

use crate::call::pass;
use crate::fleet::fleet;
use crate::waiting::until;
use crate::world::{HASTY, Provisioned, World};

const BULLPEN: &str = env!("CARGO_BIN_EXE_bullpen");

/// Launches a machine without a record, like a provision that dies right after its launch. The
/// limits do not allow so short a watchdog, so the test calls the fleet directly.
async fn launch_unrecorded(world: &World, mailbox: &Path, watchdog: Duration) {
    let command = vec![BULLPEN.to_owned(), "stand-in-runner".to_owned()];
    let url = format!("{}/acme/app", world.github.url());
    let data = UserData::new(mailbox.to_owned(), url, RunnerProgram::StandIn { command });
    let fleet = fleet(world.state().join("machines"), data.to_text(), watchdog);
    let request = any_machines("local.1.lost.1.1", 1);
    assert_eq!(fleet.launch(&request).await.expect("there is room").machines.len(), 1);
    until("agent", async || (world.processes().len() >= 2).then_some(())).await;
}

fn ended_by(world: &World) -> Option<String> {
    let boot = fs::read(world.machines().pop()?.join("boot.json")).ok()?;
    let boot: Value = serde_json::from_slice(&boot).expect("it is JSON");
    Some(boot["phase"]["ended"]["by"].as_str()?.to_owned())
}

/// D21: a machine that was launched and never recorded ends by its watchdog alone.
#[tokio::test]
async fn a_machine_without_a_record_ends_by_its_watchdog() {
    let world = World::new().await;
    world.refresh().await;
    launch_unrecorded(&world, &world.state().join("mailbox.db"), Duration::from_secs(3)).await;
    let status = world.status().await;
    assert_eq!(status["unrecorded"].as_array().map(Vec::len), Some(1), "{status}");
    until("end of the machine", async || world.processes().is_empty().then_some(())).await;
    assert_eq!(ended_by(&world).as_deref(), Some("watchdog"));
}

/// D21: a machine whose agent never reaches its store ends, too.
#[tokio::test]
async fn a_machine_whose_store_never_comes_back_ends_by_its_watchdog() {
    let world = World::new().await;
    world.refresh().await;
    launch_unrecorded(&world, &world.path("gone/mailbox.db"), Duration::from_secs(3)).await;
    until("end of the machine", async || world.processes().is_empty().then_some(())).await;
    assert_eq!(ended_by(&world).as_deref(), Some("watchdog"));
}

/// D2, D19, D43: a store that accepts no writes for seconds costs no machine, not even during a
/// claim.
#[tokio::test]
async fn a_short_outage_of_the_stores_ends_nothing() {
    let world = World::new().await;
    let one = world.provision(2, "one").await;
    world.release("one").await;
    for (store, seconds) in [("mailbox.db", 7), ("ledger.db", 3)] {
        let db = Connection::open(world.state().join(store)).expect("it is there");
        db.execute_batch("BEGIN IMMEDIATE").expect("other writers are quick");
        let provision = world.bullpen("provision --count 2 --name more --json").start();
        pass(Duration::from_secs(seconds)).await;
        db.execute_batch("ROLLBACK").expect("it was begun");
        let more = Provisioned(provision.ends().await.json());
        assert_eq!((more.counts(), more.ids()), ((2, 0), one.ids()), "{store}");
        world.runs_job(more.label(), "true").await;
        world.release("more").await;
    }
}

/// D22, D59: a script that fails ends its machine at once, and the request says why at once: not
/// after the time for validation, and not after tries until its deadline.
#[tokio::test]
async fn a_machine_whose_script_fails_ends_at_once_and_its_request_says_why() {
    let world = World::new().await;
    // The first failing command ends the script, and the script's text is not the outer shell's.
    let script = "cat <<THAT\nEOF\nTHAT\necho preparing\nfalse\necho done\n";
    world.bullpen("refresh --pre-runner-script").argument(script).run().await.exits(0);
    for how in ["--on-partial fail", ""] {
        let failed = world.bullpen(&format!("provision --count 2 --name one {how}")).run().await;
        failed
            .exits(1)
            .says("missing 2 of 2")
            .says("its warm-up failed: pre-runner")
            .says("preparing");
        assert!(failed.took < Duration::from_secs(60), "{failed:#?}");
    }
    until("end of the machines", async || world.processes().is_empty().then_some(())).await;
    world.settles().await;
    assert_eq!(world.states().await.len(), 0);
}

/// D22, D29: a script that never ends is killed with its machine, and the request says so.
#[tokio::test]
async fn a_machine_whose_script_hangs_ends_and_its_request_says_why() {
    let hasty = [("fleet-validation", "6s"), ("warm-up", "7s"), ("clock-skew", "1s")];
    let world = World::with(&hasty).await;
    world.bullpen("refresh --pre-runner-script").argument("sleep 1000").run().await.exits(0);
    let failed = world.bullpen("provision --count 1 --name one --on-partial fail").run().await;
    failed.exits(1).says("missing 1 of 1").says("its warm-up was not completed in time");
    until("end of the machine", async || world.processes().is_empty().then_some(())).await;
    world.settles().await;
    assert_eq!(world.states().await.len(), 0);
}

/// D22: the agent of a machine whose request is dead ends the machine if its script hangs.
#[tokio::test]
async fn a_script_that_hangs_is_ended_without_a_refresh() {
    let hasty = [("fleet-validation", "2s"), ("warm-up", "3s")];
    let world = World::with(&hasty).await;
    let store = world.bullpen("refresh --pre-runner-script").argument("sleep 1000");
    store.run().await.exits(0);
    let provision = world.bullpen("provision --count 1 --name one").start();
    until("agent", async || (world.processes().len() >= 2).then_some(())).await;
    provision.signal(rustix::process::Signal::KILL);
    provision.ends().await;
    until("end of the machine", async || world.processes().is_empty().then_some(())).await;
    assert_eq!(ended_by(&world).as_deref(), Some("agent"));
}

/// `ledger verify` names a machine without a record and says what to do. It reads only: the machine
/// goes on.
#[tokio::test]
async fn verify_names_what_is_broken_and_changes_nothing() {
    let world = World::on_files(HASTY).await;
    world.refresh().await;
    launch_unrecorded(&world, &world.state().join("mailbox.db"), Duration::from_secs(60)).await;
    let processes = world.processes().len();
    let found = until("finding", async || {
        let ran = world.bullpen("ledger verify --json").run().await;
        (ran.code == Some(1)).then_some(ran.data)
    })
    .await;
    let found: Value = serde_json::from_str(&found).expect("it is JSON");
    assert_eq!(found["runners"], 0, "GitHub was asked: {found}");
    assert_eq!(found["violations"][0]["invariant"], 2, "{found}");
    let ran = world.bullpen("ledger verify").run().await;
    ran.exits(1);
    assert!(ran.data.contains("has no record; run `bullpen refresh`"), "{ran:?}");
    assert_eq!(world.processes().len(), processes);
    world.refresh().await;
    world.verify().await;
}
