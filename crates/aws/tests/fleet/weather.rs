//! Throttling, and answers that do not come: told as they are, and never tried again behind the
//! engine's back.
//!
//! Not here: launches whose answers are lost (`lost`).

use std::future::Future;

use bullpen_core::ids::InstanceId;
use bullpen_core::ports::{Fault, Fleet as _, Tag};
use bullpen_faulty::Fault as OnTheWire;
use bullpen_faulty::ec2::Refusal;

use crate::stage::{Fleet, HOUR, World, ids, real, request, set};

/// A call that EC2 throttles.
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
    assert_eq!(world.admin().calls()[action], before + 1, "{action} is asked once");
}

/// A fleet that has heard of its types, and its running machines.
async fn seasoned(world: &World) -> (Fleet, Vec<InstanceId>) {
    let fleet = world.fleet();
    let all = world.running(&fleet, "n-0", 3).await;
    (fleet, all)
}

#[test]
fn throttling_is_told_and_nothing_is_asked_twice() {
    real(async {
        let world = World::new().await;
        let (fleet, all) = seasoned(&world).await;
        let orders = world.orders(&all);
        throttled(&world, "CreateFleet", fleet.launch(&request("n-1", 2))).await;
        throttled(&world, "DescribeInstances", fleet.list()).await;
        throttled(&world, "DescribeInstances", fleet.describe(&all)).await;
        throttled(&world, "CreateTags", fleet.tag(&all, Tag::JobStarted)).await;
        throttled(&world, "StopInstances", fleet.stop(&orders)).await;
        throttled(&world, "TerminateInstances", fleet.terminate(&all)).await;
        assert_eq!(world.are(&all, "running").await, 3, "nothing was done");
        assert_eq!(world.instances().await.len(), 3);
        let stopped = world.stopped(&fleet, "n-2", 2).await;
        throttled(&world, "StartInstances", fleet.start(&stopped)).await;
        assert_eq!(world.are(&stopped, "stopped").await, 2);
    });
}

#[test]
fn a_launch_that_needs_its_template_first_is_throttled_at_every_step() {
    real(async {
        let world = World::new().await;
        let mut other = world.settings.clone();
        other.watchdog += HOUR;
        let fleet = world.fleet_with(other);
        for action in ["CreateFleet", "DescribeImages", "CreateLaunchTemplate"] {
            throttled(&world, action, fleet.launch(&request("n-1", 2))).await;
        }
        assert!(world.instances().await.is_empty());
        let launched = fleet.launch(&request("n-1", 2)).await.expect("there is room");
        assert_eq!(launched.machines.len(), 2);
    });
}

#[test]
fn a_launch_whose_types_are_not_told_is_found_by_asking_again() {
    real(async {
        let world = World::new().await;
        let fleet = world.fleet();
        let refusal = Refusal::throttled("DescribeInstanceTypes");
        world.admin().refuse(Refusal { times: 2, ..refusal });
        let answer = fleet.launch(&request("n-1", 2)).await;
        assert_eq!(answer, Err(Fault::Throttled));
        let machines = fleet.launch(&request("n-1", 2)).await.expect("it is told now").machines;
        assert_eq!(set(&ids(&machines)), world.instances().await.into_keys().collect());
        assert_eq!(machines.len(), 2);
    });
}

#[test]
fn a_stop_is_sent_once_whatever_becomes_of_it() {
    real(async {
        let world = World::new().await;
        let (fleet, all) = seasoned(&world).await;
        let fates = [
            (OnTheWire::Throttled, false),
            (OnTheWire::InternalError, false),
            (OnTheWire::Unavailable, false),
            (OnTheWire::ResetBefore, false),
            (OnTheWire::AnswerLost, true),
            (OnTheWire::AnswerReset, true),
        ];
        for (round, (fate, lands)) in (1..).zip(fates) {
            world.proxy.fail_next("StopInstances", fate);
            let answer = fleet.stop(&world.orders(&all)).await;
            let unheard = matches!(answer, Err(Fault::Unavailable(_)));
            assert_eq!(unheard, fate != OnTheWire::Throttled, "{fate:?}: {answer:?}");
            assert_eq!(world.made("StopInstances"), round, "{fate:?}");
            let stopped = world.are(&all, "stopped").await;
            assert_eq!(stopped, if lands { all.len() } else { 0 }, "{fate:?}");
        }
    });
}

#[test]
fn what_is_asked_again_after_a_lost_answer_is_done_once() {
    real(async {
        let world = World::new().await;
        let (fleet, all) = seasoned(&world).await;
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
        assert_eq!(world.are(&all, "terminated").await, 3);
        assert_eq!(world.instances().await.len(), 3);
    });
}
