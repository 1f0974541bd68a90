//! Cancelled commands: they fence their machines within seconds, and lose no warm machine.
//!
//! Not here: commands that are killed (`killed`).

use std::time::Duration;

use bullpen_agent::runner::tree::{self, Identity};
use bullpen_core::ports::Clock as _;
use bullpen_embedded::system::SystemClock;
use rustix::process::{Pid, Signal, kill_process};

use crate::call::{Ran, Running, pass};
use crate::waiting::until;
use crate::world::{HASTY, World};

/// GitHub kills a cancelled step a few seconds later.
const WITHIN: Duration = Duration::from_secs(6);

const BOTH: [(Signal, i32); 2] = [(Signal::INT, 130), (Signal::TERM, 143)];

/// Cancels a command, and asserts that it ends in time.
async fn cancel(provision: Running, signal: Signal, code: i32) -> Ran {
    let clock = SystemClock::new();
    provision.signal(signal);
    let ran = provision.ends().await;
    let took = clock.monotonic();
    ran.exits(code).says("cancelled");
    assert!(took < WITHIN, "it took {took:?}: {ran:#?}");
    ran
}

/// D28: machines that were created and never warm end at once.
#[tokio::test]
async fn a_provision_that_is_cancelled_while_machines_boot_leaves_none() {
    for (signal, code) in BOTH {
        let world = World::new().await;
        let provision = world.bullpen("provision --count 3 --name boots");
        let provision = provision.with("BULLPEN_PROCESS_FLEET_BOOT_DELAY", "1h").start();
        until("created machines", async || {
            (world.state().exists() && world.states().await.len() == 3).then_some(())
        })
        .await;
        cancel(provision, signal, code).await.says("3 end");
        until("end of its processes", async || world.processes().is_empty().then_some(())).await;
        world.refresh().await;
        assert_eq!(world.states().await.len(), 0);
        world.verify().await;
    }
}

/// D14, D28: the command fences warm machines, and they are idle again after the handshake.
#[tokio::test]
async fn a_provision_that_is_cancelled_while_it_claims_gives_everything_back() {
    for (signal, code) in BOTH {
        let world = World::new().await;
        let warm = world.provision(3, "warm").await;
        world.release("warm").await;
        // Stopped agents acknowledge nothing, so the claims stay claims.
        let agents = agents(&world);
        assert_eq!(agents.len(), 3);
        tell_all(&agents, Signal::STOP);
        let provision = world.bullpen("provision --count 3 --name claims").start();
        until("claims", async || {
            world.states().await.values().all(|state| state == "claimed").then_some(())
        })
        .await;
        cancel(provision, signal, code).await.says("3 machines go back");
        assert!(world.states().await.values().all(|state| state == "releasing"));
        tell_all(&agents, Signal::CONT);
        // The next release or refresh of the workflow finishes it.
        if signal == Signal::INT {
            world.release("claims").await;
        }
        assert_eq!(world.settles().await, warm.ids());
        world.reuses(&warm.ids()).await;
    }
}

/// D28: a request that is released while `provision` works on it gets no more machines, and keeps
/// none.
#[tokio::test]
async fn a_release_is_the_end_of_a_request_that_is_still_worked_on() {
    let hasty = [("fleet-validation", "5s"), ("warm-up", "6s"), ("clock-skew", "1s")];
    let world = World::with(&hasty).await;
    let provision = world.bullpen("provision --count 3 --name boots");
    let provision = provision.with("BULLPEN_PROCESS_FLEET_BOOT_DELAY", "1h").start();
    until("created machines", async || {
        (world.state().exists() && world.states().await.len() == 3).then_some(())
    })
    .await;
    let released = world.release("boots").await;
    assert_eq!(released["returned"], serde_json::Value::Array(Vec::new()), "{released}");
    provision.ends().await.exits(1).says("has released it");
    assert_eq!(world.settles().await.len(), 0);
}

/// D1, D28: after a cancellation at any moment the next release or refresh cleans everything up.
#[tokio::test]
async fn a_provision_that_is_cancelled_at_any_moment_leaves_nothing_unowned() {
    let world = World::with(HASTY).await;
    world.provision(2, "warm").await;
    world.release("warm").await;
    for (number, millis) in [5, 20, 40, 60, 80, 120, 160, 240, 320, 640].into_iter().enumerate() {
        let (signal, code) = BOTH[number % 2];
        let line = format!("provision --count 4 --name at{millis} --deadline 15s");
        let provision = world.bullpen(&line).start();
        pass(Duration::from_millis(millis)).await;
        let clock = SystemClock::new();
        provision.signal(signal);
        let ran = provision.ends().await;
        assert!(clock.monotonic() < WITHIN, "{ran:#?}");
        // Before it handles signals it owns no machine; or it was done already.
        assert!([None, Some(code), Some(0)].contains(&ran.code), "{ran:#?}");
        if number % 2 == 0 {
            world.release(&format!("at{millis}")).await;
        }
    }
    let idle = world.settles().await;
    assert!(idle.len() >= 2, "the machines that were warm before are still warm");
    world.reuses(&idle).await;
}

fn agents(world: &World) -> Vec<Identity> {
    let machines = world.machines().into_iter();
    let marks = machines.map(|path| path.canonicalize().expect("it is there").join("agent"));
    marks
        .flat_map(|mark| tree::marked(&mark.display().to_string()).expect("this is Linux"))
        .collect()
}

fn tell_all(agents: &[Identity], signal: Signal) {
    for agent in agents {
        let pid = Pid::from_raw(agent.pid).expect("it is not zero");
        kill_process(pid, signal).expect("it is ours");
    }
}
