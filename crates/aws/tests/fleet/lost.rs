//! Launches whose answers are lost: made once, whoever asks again and however.
//!
//! Not here: other answers that are lost (`weather`).

use std::time::Duration;

use bullpen_core::ports::{Fault, Fleet as _, MachineState};
use bullpen_faulty::Fault as OnTheWire;
use bullpen_faulty::ec2::{Delays, Refusal, Rule};

use crate::stage::{Fleet, HOUR, World, alive, ids, real, request, set};

/// A launch of two that landed, and nobody was told.
async fn unheard(world: &World, fleet: &Fleet, how: OnTheWire) {
    world.proxy.fail_next("CreateFleet", how);
    let answer = fleet.launch(&request("n-1", 2)).await;
    assert!(matches!(answer, Err(Fault::Unavailable(_))), "{answer:?}");
    assert_eq!(world.instances().await.len(), 2, "it landed");
}

/// The launch again, as this process has it.
async fn again(world: &World, fleet: &Fleet) {
    let machines = fleet.launch(&request("n-1", 2)).await.expect("it was made before").machines;
    assert_eq!(set(&ids(&machines)), world.instances().await.into_keys().collect());
    assert_eq!(alive(fleet.list().await.expect("an answer")), set(&ids(&machines)));
}

#[test]
fn a_launch_is_found_by_the_process_that_made_it() {
    real(async {
        for how in [OnTheWire::AnswerLost, OnTheWire::AnswerReset] {
            let world = World::new().await;
            let fleet = world.fleet();
            unheard(&world, &fleet, how).await;
            assert_eq!(world.made("CreateFleet"), 1, "nothing is asked again behind our back");
            again(&world, &fleet).await;
        }
    });
}

#[test]
fn a_launch_is_found_by_another_process() {
    real(async {
        let world = World::new().await;
        unheard(&world, &world.fleet(), OnTheWire::AnswerLost).await;
        again(&world, &world.fleet()).await;
    });
}

#[test]
fn a_launch_that_never_landed_is_made() {
    real(async {
        let world = World::new().await;
        let fleet = world.fleet();
        for how in [OnTheWire::ResetBefore, OnTheWire::Unavailable] {
            world.proxy.fail_next("CreateFleet", how);
            let answer = fleet.launch(&request("n-1", 2)).await;
            assert!(matches!(answer, Err(Fault::Unavailable(_))), "{answer:?}");
        }
        assert_eq!(world.made("CreateFleet"), 2);
        assert!(world.instances().await.is_empty());
        again(&world, &fleet).await;
    });
}

#[test]
fn a_launch_is_found_by_a_process_that_would_launch_otherwise() {
    real(async {
        let world = World::new().await;
        unheard(&world, &world.fleet(), OnTheWire::AnswerLost).await;
        // Another template, and other terms in the call itself.
        let mut other = world.settings.clone();
        other.watchdog += HOUR;
        other.price_protection = 50;
        again(&world, &world.fleet_with(other.clone())).await;
        // What ended since is not brought back, and not shown as if it were there.
        let one = world.instances().await.into_keys().next().expect("there are two");
        world.fleet().terminate(std::slice::from_ref(&one)).await.expect("it is ours");
        world.pass(HOUR);
        let answer = world.fleet_with(other).launch(&request("n-1", 2)).await.expect("an answer");
        assert_eq!(answer.machines.len(), 1);
        assert_ne!(answer.machines[0].id, one);
        assert_eq!(world.instances().await.len(), 2);
    });
}

#[test]
fn a_launch_that_is_not_visible_yet_is_not_made_again_under_other_terms() {
    real(async {
        let world = World::new().await;
        let minute = Duration::from_secs(60);
        world.admin().set_delays(Delays { visible: minute, ..Delays::default() });
        world.proxy.fail_next("CreateFleet", OnTheWire::AnswerLost);
        world.fleet().launch(&request("n-1", 2)).await.expect_err("the answer is lost");
        let mut other = world.settings.clone();
        other.watchdog += HOUR;
        let fleet = world.fleet_with(other);
        // Nobody may take it that nothing came.
        let answer = fleet.launch(&request("n-1", 2)).await;
        assert!(matches!(answer, Err(Fault::Unavailable(_))), "{answer:?}");
        world.pass(minute);
        assert_eq!(world.instances().await.len(), 2, "none was launched anew");
        again(&world, &fleet).await;
    });
}

/// Of a launch that was made under other terms, all that came came: fewer than were wanted.
#[test]
fn what_is_not_seen_for_long_did_not_come() {
    real(async {
        let world = World::new().await;
        world.admin().set_capacity(&[Rule::of_all(1)]);
        world.proxy.fail_next("CreateFleet", OnTheWire::AnswerLost);
        world.fleet().launch(&request("n-1", 2)).await.expect_err("the answer is lost");
        let mut other = world.settings.clone();
        other.watchdog += HOUR;
        let fleet = world.fleet_with(other);
        fleet.launch(&request("n-1", 2)).await.expect_err("one more may come to be seen");
        world.pass(Duration::from_secs(61));
        let machines = fleet.launch(&request("n-1", 2)).await.expect("one came").machines;
        assert_eq!((machines.len(), world.instances().await.len()), (1, 1));
    });
}

#[test]
fn a_template_whose_answer_is_lost_is_made_once() {
    real(async {
        let mut world = World::bare().await;
        let fleet = world.fleet();
        world.settings.ground = fleet.learn("2026-01-05", None).await.expect("all is there");
        world.proxy.fail_next("CreateLaunchTemplate", OnTheWire::AnswerLost);
        fleet.launch(&request("n-1", 2)).await.expect_err("the answer is lost");
        assert!(world.instances().await.is_empty());
        again(&world, &fleet).await;
        // And a launch that had to make its template, and was not answered then.
        let mut other = world.settings.clone();
        other.watchdog += HOUR;
        let fleet = world.fleet_with(other);
        world.proxy.pass_next("CreateFleet");
        world.proxy.fail_next("CreateFleet", OnTheWire::AnswerLost);
        fleet.launch(&request("n-2", 2)).await.expect_err("the answer is lost");
        let machines = fleet.launch(&request("n-2", 2)).await.expect("it was made").machines;
        assert_eq!((machines.len(), world.instances().await.len()), (2, 4));
        let templates = world.client.describe_launch_templates().send().await.expect("an answer");
        assert_eq!(templates.launch_templates().len(), 2);
    });
}

#[test]
fn what_a_failed_call_leaves_behind_is_listed_with_its_intent() {
    real(async {
        let world = World::new().await;
        let fleet = world.fleet();
        world.admin().refuse(Refusal::carried_out("CreateFleet"));
        let answer = fleet.launch(&request("n-1", 2)).await;
        assert!(matches!(answer, Err(Fault::Unavailable(_))), "{answer:?}");
        let left = world.fleet().list().await.expect("an answer");
        assert_eq!(left.len(), 2);
        for machine in &left {
            assert_eq!(machine.intent, "n-1".into());
            assert_eq!((&machine.class, &machine.pool), (&"large".into(), &None));
            assert_ne!(machine.state, MachineState::Gone);
        }
        again(&world, &fleet).await;
    });
}
