//! Commands, agents and supervisors killed at sampled moments. `refresh`, or the same command
//! again, cleans up what they left.
//!
//! Not here: cancelled commands (`cancelled`).

use std::time::Duration;

use bullpen_agent::runner::tree;
use rusqlite::Connection;
use rustix::process::Signal;
use serde_json::Value;

use crate::call::pass;
use crate::waiting::until;
use crate::world::{HASTY, Provisioned, World};

/// The moments of the kills, in milliseconds: dense at a command's beginning, up to its end.
const MOMENTS: [u64; 12] = [0, 2, 5, 10, 20, 40, 80, 160, 240, 320, 480, 960];

const SHORT_RUNTIME: &[(&str, &str)] =
    &[("max-runtime-workflow", "20s"), ("reconcile-grace", "1s"), ("clock-skew", "1s")];

fn moment(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// D1, D16, D21, D22, D23, D25, D28: a provision that dies at any moment leaves nothing for good.
#[tokio::test]
async fn a_killed_provision_leaves_no_orphan_and_loses_no_machine() {
    let world = World::with(HASTY).await;
    world.provision(6, "warm").await;
    world.release("warm").await;
    for millis in MOMENTS {
        let line = format!("provision --count 3 --name at{millis} --deadline 15s");
        let provision = world.bullpen(&line).start();
        pass(moment(millis)).await;
        provision.signal(Signal::KILL);
        provision.ends().await;
    }
    let idle = world.settles().await;
    assert!(!idle.is_empty(), "at least the machines that were warm before the first kill");
    world.reuses(&idle).await;
}

/// D24, D38: the reaper does the rest of a killed release, and every machine is warm.
#[tokio::test]
async fn a_killed_release_loses_no_machine() {
    let world = World::with(SHORT_RUNTIME).await;
    let provision = |millis| {
        let line = format!("provision --count 2 --name at{millis} --json");
        world.bullpen(&line).start()
    };
    let calls: Vec<_> = MOMENTS.map(provision).into();
    let mut all = std::collections::BTreeSet::new();
    for call in calls {
        all.extend(Provisioned(call.ends().await.json()).ids());
    }
    for millis in MOMENTS {
        let release = world.bullpen(&format!("release --name at{millis}")).start();
        pass(moment(millis)).await;
        release.signal(Signal::KILL);
        release.ends().await;
    }
    let idle = world.settles().await;
    assert_eq!(idle, all);
    world.reuses(&idle).await;
}

/// D43, D44: an agent that dies comes back and continues; its request notices nothing.
#[tokio::test]
async fn a_killed_agent_comes_back_and_goes_on() {
    let world = World::new().await;
    let mut ids = std::collections::BTreeSet::new();
    for millis in MOMENTS {
        let name = format!("at{millis}");
        let line = format!("provision --count 1 --name {name} --json");
        let provision = world.bullpen(&line).start();
        let agent = until("agent", async || {
            let machine = world.launched_for(&name).pop()?;
            let mark = machine.canonicalize().ok()?.join("agent").display().to_string();
            tree::marked(&mark).expect("this is Linux").pop()
        })
        .await;
        pass(moment(millis)).await;
        agent.kill().expect("it is ours");
        let provisioned = Provisioned(provision.ends().await.json());
        world.runs_job(provisioned.label(), "true").await;
        ids.extend(provisioned.ids());
    }
    assert_eq!(ids.len(), MOMENTS.len());
    let released = world.bullpen("release --json").run().await.json();
    assert_eq!(released["returned"].as_array().map(Vec::len), Some(ids.len()), "{released}");
    let idle = world.settles().await;
    assert_eq!(idle, ids);
    world.reuses(&idle).await;
}

/// D39, D44: a machine whose supervisor dies is gone, even if some of its processes still run.
#[tokio::test]
async fn a_killed_supervisor_takes_its_whole_machine_along() {
    let world = World::with(HASTY).await;
    let mut calls = Vec::new();
    for millis in MOMENTS {
        let name = format!("at{millis}");
        let line = format!("provision --count 1 --name {name} --deadline 15s");
        let provision = world.bullpen(&line).start();
        let supervisor = until("supervisor", async || {
            let machine = world.launched_for(&name).pop()?;
            let mark = machine.canonicalize().ok()?.join("supervisor").display().to_string();
            tree::marked(&mark).expect("this is Linux").pop()
        })
        .await;
        pass(moment(millis)).await;
        supervisor.kill().expect("it is ours");
        calls.push(provision);
    }
    for call in calls {
        // Fulfilled with another machine, or with this one before its end was noticed, or not at
        // all.
        let ran = call.ends().await;
        assert!(matches!(ran.code, Some(0 | 1)), "{ran:#?}");
    }
    world.bullpen("release").run().await.exits(0);
    let idle = world.settles().await;
    world.reuses(&idle).await;
}

/// D27: the same request again is the same request: it continues and never doubles.
#[tokio::test]
async fn a_killed_provision_is_resumed_and_never_doubles() {
    let world = World::new().await;
    for millis in MOMENTS {
        let call = |count: u32| {
            let line = format!("provision --count {count} --request 9.1.at{millis} --json");
            world.bullpen(&line)
        };
        let first = call(3).start();
        pass(moment(millis)).await;
        first.signal(Signal::KILL);
        first.ends().await;
        let resumed = Provisioned(call(3).run().await.json());
        assert_eq!(resumed.ids().len(), 3, "{resumed:?}");
        call(2).run().await.exits(64).says("differs in its count");
        let again = Provisioned(call(3).run().await.json());
        assert_eq!(again.ids(), resumed.ids());
        let status = world.status().await;
        let all = status["instances"].as_array().expect("a list").iter();
        let request = format!("9.1.at{millis}");
        assert_eq!(all.filter(|one| one["owner"] == request.as_str()).count(), 3, "{status}");
        world.bullpen(&format!("release --request {request}")).run().await.exits(0);
    }
    world.verify().await;
}

/// D21: resume, release and refresh find unrecorded machines by their launch.
#[tokio::test]
async fn machines_that_were_never_recorded_are_adopted_or_ended() {
    for next in ["resume", "release", "refresh"] {
        let world = World::with(HASTY).await;
        world.refresh().await;
        let line = "provision --count 6 --request 9.1.lost --deadline 15s --json";
        let provision = world.bullpen(line).start();
        let ledger = Connection::open(world.state().join("ledger.db")).expect("it is there");
        until("launch", async || (!world.machines().is_empty()).then_some(())).await;
        // From here on no process can record a machine.
        ledger.execute_batch("BEGIN IMMEDIATE").expect("other writers are quick");
        provision.signal(Signal::KILL);
        provision.ends().await;
        ledger.execute_batch("ROLLBACK").expect("it was begun");
        let status = world.status().await;
        let lost = status["unrecorded"].as_array().expect("a list").len();
        assert!(lost > 0, "{status}");
        match next {
            "resume" => {
                let resumed = Provisioned(world.bullpen(line).run().await.json());
                assert_eq!((resumed.counts(), world.machines().len()), ((0, 6), 6));
                world.verify().await;
            }
            "release" => {
                world.bullpen("release --request 9.1.lost").run().await.exits(0);
                assert_eq!(world.status().await["unrecorded"], Value::Array(Vec::new()));
                // A machine that is warm by now returns to the pool like any other.
                world.settles().await;
                world.verify().await;
            }
            _ => assert_eq!(world.settles().await.len(), 0),
        }
    }
}
