//! Changes behind the service's back: machines that die, and machines that another program starts.
//!
//! Not here: machines that never came up (`boots`).

use std::collections::BTreeSet;
use std::time::Duration;

use bullpen_core::creation::LaunchRequest;
use bullpen_core::ids::{InstanceId, PoolName};
use bullpen_core::ports::{Fleet as _, StartOutcome};
use bullpen_embedded::fleet::ProcessFleet;
use bullpen_embedded::system::SystemClock;
use bullpen_sim::contract::fleet::any_machines;

use crate::shared::processes_under;
use crate::standby::{QUICK, file, pool};
use crate::waiting::until;
use crate::world::World;

/// The fleet of a world, as another program uses it.
fn fleet(world: &World) -> ProcessFleet<SystemClock> {
    crate::fleet::fleet(world.state().join("machines"), String::new(), Duration::from_secs(3_600))
}

fn one(of: &BTreeSet<String>) -> String {
    of.first().cloned().expect("there is one")
}

/// A machine whose processes all died, and a stopped machine that is gone: the service replaces
/// both, and the others stay.
#[tokio::test]
async fn terminated_machines_are_replaced() {
    let world = World::keeping(&file("", &[pool("ci", 2, 2)])).await;
    let _served = world.serve().await;
    let before = world.reaches("ci", 2, 2).await;
    let (died, gone) = (one(&before.hot), one(&before.stopped));
    for process in processes_under(&world.state().join("machines").join(&died)) {
        let _ = process.kill();
    }
    fleet(&world).terminate(&[InstanceId::new(&gone)]).await.expect("it is there");
    let after = until("replacements", async || {
        let after = world.standing("ci").await.ready();
        (!after.contains(&died) && !after.contains(&gone)).then_some(())?;
        Some(world.reaches("ci", 2, 2).await)
    });
    let after = after.await;
    assert_eq!(after.hot.intersection(&before.hot).count(), 1, "{before:?} {after:?}");
    assert_eq!(after.stopped.intersection(&before.stopped).count(), 1, "{before:?} {after:?}");
    assert_eq!(world.quiet().await, after.ready());
}

/// The service stops a stopped machine again that another program starts; a job can have it
/// afterwards.
#[tokio::test]
async fn a_stopped_machine_that_another_program_starts_is_stopped_again_and_of_use() {
    let world = World::keeping(&file("", &[pool("ci", 0, 1)])).await;
    let served = world.serve().await;
    let before = world.reaches("ci", 0, 1).await;
    let machine = one(&before.stopped);
    let id = InstanceId::new(&machine);
    let started = fleet(&world).start(std::slice::from_ref(&id)).await;
    assert_eq!(started, Ok(vec![(id, StartOutcome::Starting)]));
    let again = "bullpen_pool_actions_total{pool=\"ci\",action=\"stop\",reason=\"found-running\"}";
    served.shows(again, 1).await;
    assert_eq!(world.reaches("ci", 0, 1).await, before);
    let (job, picked) = world.busy("ci", "go").await;
    assert_eq!(picked, machine);
    world.open("go");
    world.over(job).await;
    world.settled(job).await;
    world.reaches("ci", 0, 1).await;
    world.quiet().await;
}

/// The service ends an unrecorded machine with our tags after its grace, and no other machine.
#[tokio::test]
async fn a_machine_that_another_program_launched_with_our_tags_is_ended() {
    let limits: Vec<_> = QUICK.iter().copied().chain([("reconcile-grace", "2s")]).collect();
    let world = World::configured(&file("", &[pool("ci", 1, 1)]), &limits).await;
    let served = world.serve().await;
    let before = world.reaches("ci", 1, 1).await;
    let request = LaunchRequest { pool: Some(PoolName::new("ci")), ..any_machines("intent", 1) };
    let fleet = fleet(&world);
    let launched = fleet.launch(&request).await.expect("there is room").machines.remove(0);
    let foreign = launched.id.to_string();
    assert!(world.fleet_records().contains_key(&foreign));
    until("end of it", async || (!world.fleet_records().contains_key(&foreign)).then_some(()))
        .await;
    assert_eq!(world.reaches("ci", 1, 1).await, before);
    let ended = served.metrics("bullpen_pool_actions_total{pool=\"ci\",action=\"terminate\"").await;
    assert_eq!(ended, [""; 0], "no pool has ended a machine");
    assert_eq!(world.quiet().await, before.ready());
}
