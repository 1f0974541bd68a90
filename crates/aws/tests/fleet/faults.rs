//! Throttled calls and lost answers: the fleet reports each to the engine and never retries by
//! itself.
//!
//! Not here: launches whose answers are lost (`lost`).

use std::future::Future;

use bullpen_core::ids::InstanceId;
use bullpen_core::ports::{Fault, Fleet as _, Tag};
use bullpen_faulty::Fault as OnTheWire;
use bullpen_faulty::ec2::Refusal;

use crate::world::{Fleet, HOUR, World, block_on, ids, request, set};

/// Throttles one call and asserts that the fleet reports it and sends no other.
async fn throttled<T: std::fmt::Debug>(
    world: &World,
    action: &str,
    work: impl Future<Output = Result<T, Fault>>,
) {
    let before = world.admin().calls().get(action).copied().unwrap_or_default();
    world.admin().refuse(Refusal::throttled(action));
    let answer = work.await;
    assert!(matches!(answer, Err(Fault::Throttled)), "{action}: {answer:?}");
    assert_eq!(world.admin().refusals_left(), 0, "{action}");
    assert_eq!(world.admin().calls()[action], before + 1, "{action} is called once");
}

/// A fleet that has looked up its types, and three running machines.
async fn with_running_machines(world: &World) -> (Fleet, Vec<InstanceId>) {
    let fleet = world.fleet();
    let all = world.running(&fleet, "n-0", 3).await;
    (fleet, all)
}

#[test]
fn a_throttled_call_is_reported_and_not_repeated() {
    block_on(async {
        let world = World::new().await;
        let (fleet, all) = with_running_machines(&world).await;
        let orders = world.orders(&all);
        throttled(&world, "CreateFleet", fleet.launch(&request("n-1", 2))).await;
        throttled(&world, "DescribeInstances", fleet.list(None)).await;
        throttled(&world, "DescribeInstances", fleet.describe(&all)).await;
        throttled(&world, "CreateTags", fleet.tag(&all, Tag::JobStarted)).await;
        throttled(&world, "StopInstances", fleet.stop(&orders)).await;
        throttled(&world, "TerminateInstances", fleet.terminate(&all)).await;
        assert_eq!(world.count_in_state(&all, "running").await, 3, "no throttled call took effect");
        assert_eq!(world.instances().await.len(), 3);
        let stopped = world.stopped(&fleet, "n-2", 2).await;
        throttled(&world, "StartInstances", fleet.start(&stopped)).await;
        assert_eq!(world.count_in_state(&stopped, "stopped").await, 2);
    });
}

#[test]
fn a_launch_that_needs_its_template_first_is_throttled_at_every_step() {
    block_on(async {
        let world = World::new().await;
        let mut other = world.settings.clone();
        other.watchdog += HOUR;
        let fleet = world.fleet_with(other);
        for action in ["CreateFleet", "DescribeImages", "CreateLaunchTemplate"] {
            throttled(&world, action, fleet.launch(&request("n-1", 2))).await;
        }
        assert!(world.instances().await.is_empty());
        let launched = fleet.launch(&request("n-1", 2)).await.expect("EC2 has capacity");
        assert_eq!(launched.machines.len(), 2);
    });
}

#[test]
fn a_launch_whose_types_are_unknown_is_found_by_the_next_try() {
    block_on(async {
        let world = World::new().await;
        let fleet = world.fleet();
        let refusal = Refusal::throttled("DescribeInstanceTypes");
        world.admin().refuse(Refusal { times: 2, ..refusal });
        let answer = fleet.launch(&request("n-1", 2)).await;
        assert_eq!(answer, Err(Fault::Throttled));
        let machines = fleet.launch(&request("n-1", 2)).await.expect("the types").machines;
        assert_eq!(set(&ids(&machines)), world.instances().await.into_keys().collect());
        assert_eq!(machines.len(), 2);
    });
}

#[test]
fn a_stop_is_sent_once_under_every_fault() {
    block_on(async {
        let world = World::new().await;
        let (fleet, all) = with_running_machines(&world).await;
        let faults = [
            (OnTheWire::Throttled, false),
            (OnTheWire::InternalError, false),
            (OnTheWire::Unavailable, false),
            (OnTheWire::ResetBefore, false),
            (OnTheWire::AnswerLost, true),
            (OnTheWire::AnswerReset, true),
        ];
        for (round, (fault, lands)) in (1..).zip(faults) {
            world.proxy.fail_next("StopInstances", fault);
            let answer = fleet.stop(&world.orders(&all)).await;
            let is_unknown = matches!(answer, Err(Fault::Unavailable(_)));
            assert_eq!(is_unknown, fault != OnTheWire::Throttled, "{fault:?}: {answer:?}");
            assert_eq!(world.calls("StopInstances"), round, "{fault:?}");
            let stopped = world.count_in_state(&all, "stopped").await;
            assert_eq!(stopped, if lands { all.len() } else { 0 }, "{fault:?}");
        }
    });
}

#[test]
fn a_call_repeated_after_a_lost_answer_takes_effect_once() {
    block_on(async {
        let world = World::new().await;
        let (fleet, all) = with_running_machines(&world).await;
        for action in ["CreateTags", "StopInstances", "StartInstances", "TerminateInstances"] {
            world.proxy.fail_next(action, OnTheWire::AnswerLost);
            for is_lost in [true, false] {
                let answer = match action {
                    "CreateTags" => fleet.tag(&all, Tag::JobStarted).await,
                    "StopInstances" => fleet.stop(&world.orders(&all)).await,
                    "StartInstances" => fleet.start(&all).await.map(drop),
                    _ => fleet.terminate(&all).await,
                };
                assert_eq!(answer.is_err(), is_lost, "{action}: {answer:?}");
            }
        }
        assert_eq!(world.proxy.levers_left(), 0);
        assert_eq!(world.count_in_state(&all, "terminated").await, 3);
        assert_eq!(world.instances().await.len(), 3);
    });
}
