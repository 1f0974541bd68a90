//! Launches whose answers are lost: EC2 performs them once, also if another process repeats them
//! with other settings.
//!
//! Not here: other lost answers (`faults`).

use std::time::Duration;

use bullpen_core::ports::{Fault, Fleet as _, MachineState};
use bullpen_faulty::Fault as OnTheWire;
use bullpen_faulty::ec2::{Delays, Refusal, Rule};

use crate::world::{Fleet, HOUR, World, alive, block_on, ids, request, set};

/// Launches two machines and loses EC2's answer.
async fn lose_answer_of_launch(world: &World, fleet: &Fleet, how: OnTheWire) {
    world.proxy.fail_next("CreateFleet", how);
    let answer = fleet.launch(&request("n-1", 2)).await;
    assert!(matches!(answer, Err(Fault::Unavailable(_))), "{answer:?}");
    assert_eq!(world.instances().await.len(), 2, "the launch landed");
}

/// Repeats the launch, and asserts that the fleet finds exactly the existing machines.
async fn launch_again(world: &World, fleet: &Fleet) {
    let machines = fleet.launch(&request("n-1", 2)).await.expect("the earlier launch").machines;
    assert_eq!(set(&ids(&machines)), world.instances().await.into_keys().collect());
    assert_eq!(alive(fleet.list(None).await.expect("an answer").items), set(&ids(&machines)));
}

#[test]
fn a_launch_is_found_by_the_process_that_made_it() {
    block_on(async {
        for how in [OnTheWire::AnswerLost, OnTheWire::AnswerReset] {
            let world = World::new().await;
            let fleet = world.fleet();
            lose_answer_of_launch(&world, &fleet, how).await;
            assert_eq!(world.calls("CreateFleet"), 1, "the SDK does not retry");
            launch_again(&world, &fleet).await;
        }
    });
}

#[test]
fn a_launch_is_found_by_another_process() {
    block_on(async {
        let world = World::new().await;
        lose_answer_of_launch(&world, &world.fleet(), OnTheWire::AnswerLost).await;
        launch_again(&world, &world.fleet()).await;
    });
}

#[test]
fn a_launch_that_never_landed_is_made() {
    block_on(async {
        let world = World::new().await;
        let fleet = world.fleet();
        for how in [OnTheWire::ResetBefore, OnTheWire::Unavailable] {
            world.proxy.fail_next("CreateFleet", how);
            let answer = fleet.launch(&request("n-1", 2)).await;
            assert!(matches!(answer, Err(Fault::Unavailable(_))), "{answer:?}");
        }
        assert_eq!(world.calls("CreateFleet"), 2);
        assert!(world.instances().await.is_empty());
        launch_again(&world, &fleet).await;
    });
}

#[test]
fn a_launch_is_found_by_a_process_with_other_settings() {
    block_on(async {
        let world = World::new().await;
        lose_answer_of_launch(&world, &world.fleet(), OnTheWire::AnswerLost).await;
        // Another template, and other parameters in the call itself.
        let mut other = world.settings.clone();
        other.watchdog += HOUR;
        other.price_protection = 50;
        launch_again(&world, &world.fleet_with(other.clone())).await;
        // The launch neither replaces nor returns a machine that has been terminated since.
        let ended = world.instances().await.into_keys().next().expect("two machines");
        world.fleet().terminate(std::slice::from_ref(&ended)).await.expect("the machine is ours");
        world.advance(HOUR);
        let answer = world.fleet_with(other).launch(&request("n-1", 2)).await.expect("an answer");
        assert_eq!(answer.machines.len(), 1);
        assert_ne!(answer.machines[0].id, ended);
        assert_eq!(world.instances().await.len(), 2);
    });
}

#[test]
fn a_launch_that_ec2_does_not_show_yet_is_not_repeated_with_other_settings() {
    block_on(async {
        let world = World::new().await;
        let minute = Duration::from_secs(60);
        world.admin().set_delays(Delays { visible: minute, ..Delays::default() });
        world.proxy.fail_next("CreateFleet", OnTheWire::AnswerLost);
        world.fleet().launch(&request("n-1", 2)).await.expect_err("the answer is lost");
        let mut other = world.settings.clone();
        other.watchdog += HOUR;
        let fleet = world.fleet_with(other);
        // The fleet must not report that the launch brought no machine.
        let answer = fleet.launch(&request("n-1", 2)).await;
        assert!(matches!(answer, Err(Fault::Unavailable(_))), "{answer:?}");
        world.advance(minute);
        assert_eq!(world.instances().await.len(), 2, "the fleet launched no other machine");
        launch_again(&world, &fleet).await;
    });
}

/// An earlier launch with other parameters brought fewer machines than requested; after a while the
/// fleet reports those that EC2 shows.
#[test]
fn a_machine_that_ec2_does_not_show_for_long_was_never_launched() {
    block_on(async {
        let world = World::new().await;
        world.admin().set_capacity(&[Rule::of_all(1)]);
        world.proxy.fail_next("CreateFleet", OnTheWire::AnswerLost);
        world.fleet().launch(&request("n-1", 2)).await.expect_err("the answer is lost");
        let mut other = world.settings.clone();
        other.watchdog += HOUR;
        let fleet = world.fleet_with(other);
        fleet.launch(&request("n-1", 2)).await.expect_err("EC2 may still show another machine");
        world.advance(Duration::from_secs(61));
        let machines = fleet.launch(&request("n-1", 2)).await.expect("one machine").machines;
        assert_eq!((machines.len(), world.instances().await.len()), (1, 1));
    });
}

#[test]
fn a_template_whose_answer_is_lost_is_created_once() {
    block_on(async {
        let mut world = World::bare().await;
        let fleet = world.learned().await;
        world.proxy.fail_next("CreateLaunchTemplate", OnTheWire::AnswerLost);
        fleet.launch(&request("n-1", 2)).await.expect_err("the answer is lost");
        assert!(world.instances().await.is_empty());
        launch_again(&world, &fleet).await;
        // A launch that first creates its template and then loses its answer.
        let mut other = world.settings.clone();
        other.watchdog += HOUR;
        let fleet = world.fleet_with(other);
        world.proxy.pass_next("CreateFleet");
        world.proxy.fail_next("CreateFleet", OnTheWire::AnswerLost);
        fleet.launch(&request("n-2", 2)).await.expect_err("the answer is lost");
        let machines = fleet.launch(&request("n-2", 2)).await.expect("the earlier launch").machines;
        assert_eq!((machines.len(), world.instances().await.len()), (2, 4));
        let templates = world.client.describe_launch_templates().send().await.expect("an answer");
        assert_eq!(templates.launch_templates().len(), 2);
    });
}

#[test]
fn machines_of_a_failed_launch_are_listed_with_their_intent() {
    block_on(async {
        let world = World::new().await;
        let fleet = world.fleet();
        world.admin().refuse(Refusal::carried_out("CreateFleet"));
        let answer = fleet.launch(&request("n-1", 2)).await;
        assert!(matches!(answer, Err(Fault::Unavailable(_))), "{answer:?}");
        let left = world.fleet().list(None).await.expect("an answer").items;
        assert_eq!(left.len(), 2);
        for machine in &left {
            assert_eq!(machine.intent, "n-1".into());
            assert_eq!((&machine.class, &machine.pool), (&"large".into(), &None));
            assert_ne!(machine.state, MachineState::Gone);
        }
        launch_again(&world, &fleet).await;
    });
}
