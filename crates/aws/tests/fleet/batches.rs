//! Batches in which one machine is in another state than the others.
//!
//! Not here: machines that EC2 does not show (`visibility`).

use std::time::Duration;

use bullpen_core::creation::LaunchRequest;
use bullpen_core::ids::InstanceId;
use bullpen_core::ports::{Fault, Fleet as _, StartOutcome, Tag};
use bullpen_core::request::TypePattern;
use bullpen_faulty::ec2::{Delays, Refusal, Rule};

use crate::world::{HOUR, World, block_on, ids, request, set};

fn unknown() -> InstanceId {
    InstanceId::new("i-00000000000000000")
}

#[test]
fn a_machine_without_capacity_does_not_keep_the_others_from_starting() {
    block_on(async {
        let world = World::new().await;
        let fleet = world.fleet();
        let of = |intent, pattern, count| LaunchRequest {
            allowed_types: vec![TypePattern::new(pattern)],
            ..request(intent, count)
        };
        let short =
            ids(&fleet.launch(&of("n-1", "c5.large", 1)).await.expect("EC2 has capacity").machines);
        let plenty =
            ids(&fleet.launch(&of("n-2", "m5.large", 6)).await.expect("EC2 has capacity").machines);
        world.advance(HOUR);
        let all = [&plenty[..2], &short, &plenty[2..]].concat();
        fleet.stop(&world.orders(&all)).await.expect("the machines run");
        world.advance(HOUR);
        world.admin().set_capacity(&[Rule { instance_type: "c5.large", ..Rule::of_all(0) }]);
        let started = fleet.start(&all).await.expect("an answer for each");
        let asked: Vec<InstanceId> = started.iter().map(|(id, _)| id.clone()).collect();
        assert_eq!((asked.len(), set(&asked)), (all.len(), set(&all)), "one answer for each");
        for (id, answer) in &started {
            let wanted =
                if short.contains(id) { StartOutcome::NoCapacity } else { StartOutcome::Starting };
            assert_eq!(*answer, wanted, "{id}");
        }
        assert_eq!(world.count_in_state(&plenty, "running").await, 6);
        assert_eq!(world.count_in_state(&short, "stopped").await, 1);
    });
}

#[test]
fn a_terminated_machine_does_not_keep_the_others_from_starting() {
    block_on(async {
        let world = World::new().await;
        let fleet = world.fleet();
        let all = world.stopped(&fleet, "n-1", 50).await;
        let gone = all[17].clone();
        fleet.terminate(std::slice::from_ref(&gone)).await.expect("the machine is ours");
        world.advance(HOUR);
        let started = fleet.start(&all).await.expect("an answer for each");
        assert_eq!(started.len(), 50);
        for (id, answer) in &started {
            assert_eq!(*id == gone, matches!(answer, StartOutcome::Failed(_)), "{id}: {answer:?}");
        }
        assert_eq!(world.calls("StartInstances"), 2, "once more without it");
        assert_eq!(world.count_in_state(&all, "running").await, 49);
    });
}

#[test]
fn a_late_stop_is_refused_and_not_sent() {
    block_on(async {
        let world = World::new().await;
        let fleet = world.fleet();
        let all = world.running(&fleet, "n-1", 2).await;
        let orders = world.orders(&all);
        // From exactly this moment on, the machine may have an owner.
        world.advance(HOUR);
        let answer = fleet.stop(&orders).await;
        assert!(matches!(answer, Err(Fault::Denied(_))), "{answer:?}");
        assert_eq!(world.calls("StopInstances"), 0);
        // A late order does not keep a valid one from being sent.
        let mut mixed = world.orders(&all);
        mixed[0].until = orders[0].until;
        let answer = fleet.stop(&mixed).await;
        assert!(matches!(answer, Err(Fault::Denied(_))), "{answer:?}");
        assert_eq!(world.calls("StopInstances"), 1);
        assert_eq!(world.count_in_state(&all[..1], "running").await, 1);
        assert_eq!(world.count_in_state(&all[1..], "stopped").await, 1);
    });
}

#[test]
fn a_terminated_machine_does_not_keep_the_others_from_stopping() {
    block_on(async {
        let world = World::new().await;
        let fleet = world.fleet();
        let all = world.running(&fleet, "n-1", 3).await;
        fleet.terminate(&all[1..2]).await.expect("the machine is ours");
        world.advance(HOUR);
        let asked = [&all[..], &[unknown()]].concat();
        // The answer for the terminated machine is free.
        drop(fleet.stop(&world.orders(&asked)).await);
        world.advance(HOUR);
        assert_eq!(world.count_in_state(&all, "stopped").await, 2);
        assert_eq!(world.count_in_state(&all[1..2], "terminated").await, 1);
    });
}

#[test]
fn a_pending_machine_does_not_keep_the_others_from_stopping() {
    block_on(async {
        let world = World::new().await;
        let fleet = world.fleet();
        let running = world.running(&fleet, "n-1", 2).await;
        let minute = Duration::from_secs(60);
        world.admin().set_delays(Delays { running: minute, ..Delays::default() });
        let pending =
            ids(&fleet.launch(&request("n-2", 1)).await.expect("EC2 has capacity").machines);
        let asked = [&running[..1], &pending, &running[1..]].concat();
        let answer = fleet.stop(&world.orders(&asked)).await;
        assert!(answer.is_err(), "the pending machine does not stop");
        assert_eq!(world.count_in_state(&running, "stopped").await, 2);
        assert_eq!(world.count_in_state(&pending, "pending").await, 1);
    });
}

#[test]
fn an_unknown_machine_does_not_keep_the_others_from_ending() {
    block_on(async {
        let world = World::new().await;
        let fleet = world.fleet();
        let all = world.running(&fleet, "n-1", 3).await;
        fleet.terminate(&all[..1]).await.expect("the machine is ours");
        let asked = [&all[..2], &[unknown()], &all[2..]].concat();
        for _ in 0..2 {
            fleet.terminate(&asked).await.expect("no error");
            assert_eq!(world.count_in_state(&all, "terminated").await, 3);
        }
        assert_eq!(world.calls("TerminateInstances"), 1 + 2 * 2, "once more without it");
    });
}

#[test]
fn a_refusal_without_a_machine_does_not_apply_to_the_whole_batch() {
    block_on(async {
        let world = World::new().await;
        let fleet = world.fleet();
        let all = world.running(&fleet, "n-1", 3).await;
        let unnamed = |action| Refusal {
            code: "InvalidInstanceID.NotFound",
            status: 400,
            ..Refusal::throttled(action)
        };
        world.admin().refuse(unnamed("CreateTags"));
        fleet.tag(&all, Tag::JobStarted).await.expect("no error");
        let tagged = fleet.describe(&all).await.expect("an answer").items;
        assert!(tagged.iter().all(|machine| machine.tags.job_started), "{tagged:?}");
        world.admin().refuse(unnamed("StopInstances"));
        fleet.stop(&world.orders(&all)).await.expect("no error");
        assert_eq!(world.count_in_state(&all, "stopped").await, 3);
        world.admin().refuse(unnamed("StartInstances"));
        let started = fleet.start(&all).await.expect("an answer for each");
        assert!(started.iter().all(|(_, answer)| *answer == StartOutcome::Starting), "{started:?}");
        world.admin().refuse(unnamed("TerminateInstances"));
        fleet.terminate(&all).await.expect("no error");
        assert_eq!(world.count_in_state(&all, "terminated").await, 3);
        assert_eq!(world.admin().refusals_left(), 0);
    });
}

#[test]
fn many_terminated_machines_do_not_keep_the_others_from_stopping() {
    block_on(async {
        let world = World::new().await;
        let fleet = world.fleet();
        let all = world.running(&fleet, "n-1", 12).await;
        fleet.terminate(&all[..10]).await.expect("the machines are ours");
        world.advance(HOUR);
        // EC2 names one terminated machine after the other.
        assert!(fleet.stop(&world.orders(&all)).await.is_err(), "ten machines are terminated");
        assert_eq!(world.count_in_state(&all, "stopped").await, 2);
    });
}

#[test]
fn an_unknown_machine_does_not_keep_the_others_from_being_tagged() {
    block_on(async {
        let world = World::new().await;
        let fleet = world.fleet();
        let all = world.running(&fleet, "n-1", 2).await;
        fleet
            .tag(&[&all[..1], &[unknown()], &all[1..]].concat(), Tag::JobStarted)
            .await
            .expect("no error");
        let tagged = fleet.describe(&all).await.expect("an answer").items;
        assert!(tagged.iter().all(|machine| machine.tags.job_started), "{tagged:?}");
        assert_eq!(world.calls("CreateTags"), 2);
    });
}

/// An operator may protect a machine in EC2 to examine it.
#[test]
fn a_protected_machine_does_not_keep_the_others_from_ending() {
    block_on(async {
        let world = World::new().await;
        let fleet = world.fleet();
        let all = world.running(&fleet, "n-1", 5).await;
        let protected = aws_sdk_ec2::types::AttributeBooleanValue::builder().value(true).build();
        let call = world.client.modify_instance_attribute().instance_id(all[2].as_str());
        call.disable_api_termination(protected).send().await.expect("protection");
        let answer = fleet.terminate(&all).await;
        let Err(Fault::Denied(why)) = answer else { panic!("not denied: {answer:?}") };
        assert!(why.contains(all[2].as_str()), "{why}");
        world.advance(HOUR);
        assert_eq!(world.count_in_state(&all, "running").await, 1);
        assert_eq!(world.count_in_state(&all, "terminated").await, 4);
    });
}

/// The policy may not allow the call for one machine, and EC2 does not say for which.
#[test]
fn a_denial_without_a_machine_does_not_apply_to_the_whole_batch() {
    block_on(async {
        let world = World::new().await;
        let fleet = world.fleet();
        let all = world.running(&fleet, "n-1", 4).await;
        let refusal = Refusal::throttled("TerminateInstances");
        let denied = Refusal { code: "UnauthorizedOperation", status: 403, ..refusal };
        world.admin().refuse(denied);
        fleet.terminate(&all).await.expect("each half is allowed");
        assert_eq!(world.calls("TerminateInstances"), 3);
        world.advance(HOUR);
        assert_eq!(world.count_in_state(&all, "terminated").await, 4);
        // Three calls are denied: both machines, and each of its halves.
        let all = world.running(&fleet, "n-2", 2).await;
        world.admin().refuse(Refusal { times: 3, ..denied });
        let answer = fleet.terminate(&all).await;
        assert!(matches!(answer, Err(Fault::Denied(_))), "{answer:?}");
        assert_eq!(world.count_in_state(&all, "running").await, 2);
    });
}
