//! The fleet batcher of one process sends the workers' calls to the cloud together, and a worker
//! that is gone delays no other.
//!
//! Not here: jobs whose machines do not start ([`super::pools`]).

use std::time::Duration;

use bullpen_core::class::Usage;
use bullpen_core::ids::InstanceId;
use bullpen_core::instance::Record;
use bullpen_core::ports::{Clock, Fault, MachineState, Ports, StartOutcome};
use bullpen_core::rates::FleetCall;
use bullpen_sim::calm_world::{self, IdleMachines};
use bullpen_sim::clock::{on_virtual_time, pass};
use bullpen_sim::world::World;
use futures_util::future::{join, join_all};

/// Adds this many stopped machines.
async fn stopped(world: &World, count: u32) -> Vec<Record> {
    let plain = IdleMachines::plain("stopped", Usage::OnDemand, count);
    calm_world::add_machines(world, &IdleMachines { stopped: true, ..plain }).await.expect("calm")
}

#[test]
fn a_batch_fills_one_call_and_each_worker_gets_its_answer() {
    on_virtual_time(async {
        let world = calm_world::new(7, 100).await;
        let machines = stopped(&world, 60).await;
        let fleet = world.outside.fleet();
        fleet.lose(&machines[3].id);
        let (_, stack) = world.process("starts");
        let all = machines.iter().map(async |record| stack.fleet().start_one(&record.id).await);
        let answers = join_all(all).await;
        for (number, answer) in answers.into_iter().enumerate() {
            let answer = answer.expect("calm");
            assert_eq!(answer != StartOutcome::Starting, number == 3, "{number}: {answer:?}");
        }
        assert_eq!(fleet.asked(FleetCall::Start), [50, 10]);
    });
}

#[test]
fn a_batch_that_workers_keep_joining_is_sent_in_time() {
    on_virtual_time(async {
        let world = calm_world::new(7, 100).await;
        let machines = stopped(&world, 40).await;
        let (_, stack) = world.process("starts");
        let late = machines.iter().zip(0_u32..).map(async |(record, number)| {
            pass(Duration::from_millis(30) * number).await;
            stack.fleet().start_one(&record.id).await.expect("calm")
        });
        assert!(join_all(late).await.iter().all(|answer| *answer == StartOutcome::Starting));
        let asked = world.outside.fleet().asked(FleetCall::Start);
        assert!(asked.len() == 2 && (30..=35).contains(&asked[0]), "{asked:?}");
    });
}

/// The first of two workers stops waiting after this time; returns the machines of each call.
fn first_leaves_after(millis: u64) -> Vec<u32> {
    on_virtual_time(async {
        let world = calm_world::new(7, 5).await;
        let machines = stopped(&world, 2).await;
        let (_, stack) = world.process("starts");
        let fleet = stack.fleet();
        let first = async {
            tokio::select! {
                biased;
                _ = fleet.start_one(&machines[0].id) => panic!("the worker waited for its answer"),
                () = pass(Duration::from_millis(millis)) => {}
            }
        };
        let second = fleet.start_one(&machines[1].id);
        let ((), answer) = join(first, second).await;
        assert_eq!(answer, Ok(StartOutcome::Starting));
        world.outside.fleet().asked(FleetCall::Start)
    })
}

#[test]
fn the_second_worker_makes_the_call_if_the_first_leaves_before_it() {
    assert_eq!(first_leaves_after(10), [1], "no worker waits for the first machine");
}

#[test]
fn the_second_worker_repeats_a_call_if_the_first_leaves_before_its_answer() {
    assert_eq!(first_leaves_after(36), [2, 1]);
}

/// The next workers do not join a batch that all its workers left.
#[test]
fn a_batch_that_all_workers_left_is_dropped() {
    on_virtual_time(async {
        let world = calm_world::new(7, 5).await;
        let machines = stopped(&world, 3).await;
        let (_, stack) = world.process("starts");
        let start = async |number: usize| stack.fleet().start_one(&machines[number].id).await;
        tokio::select! {
            biased;
            _ = start(0) => panic!("the worker waited for its answer"),
            () = pass(Duration::from_millis(10)) => {}
        }
        pass(Duration::from_secs(60)).await;
        let (one, other) = join(start(1), start(2)).await;
        assert_eq!((one, other), (Ok(StartOutcome::Starting), Ok(StartOutcome::Starting)));
        assert_eq!(world.outside.fleet().asked(FleetCall::Start), [2]);
    });
}

#[test]
fn descriptions_and_terminations_are_batched_and_terminations_answered_once_made() {
    on_virtual_time(async {
        let world = calm_world::new(7, 100).await;
        let machines = stopped(&world, 60).await;
        let (_, stack) = world.process("ends");
        let unknown = InstanceId::new("m-unknown");
        let mut ids: Vec<&InstanceId> = machines.iter().map(|record| &record.id).collect();
        ids.push(&unknown);
        let looks = ids.iter().map(async |id| stack.fleet().describe_one(id).await.expect("calm"));
        for (id, seen) in ids.iter().zip(join_all(looks).await) {
            let expected = (**id != unknown).then_some((*id, MachineState::Stopped));
            assert_eq!(seen.as_ref().map(|machine| (&machine.id, machine.state)), expected);
        }
        let fleet = world.outside.fleet();
        assert_eq!(fleet.asked(FleetCall::Describe).len(), 2, "fifty and eleven");
        let ends = ids.iter().map(async |id| {
            stack.fleet().terminate_one(id).await.expect("calm");
            let now = fleet.snapshot();
            now.iter().all(|machine| machine.id != **id || machine.state == MachineState::Gone)
        });
        assert!(join_all(ends).await.iter().all(|gone| *gone), "a worker was answered too early");
        assert_eq!(fleet.asked(FleetCall::Terminate), [50, 11]);
    });
}

#[test]
fn a_lone_worker_waits_only_for_the_idle_window() {
    on_virtual_time(async {
        let world = calm_world::new(7, 5).await;
        let machines = stopped(&world, 1).await;
        let (wire, stack) = world.process("alone");
        let began = stack.ports.clock().monotonic();
        stack.fleet().terminate_one(&machines[0].id).await.expect("calm");
        let took = stack.ports.clock().monotonic().saturating_sub(began);
        assert!(took <= stack.limits.coalesce_idle + 2 * wire.weather().latency_max, "{took:?}");
    });
}

/// All workers of the batch get the fault, and the call of the next batch answers none of them.
#[test]
fn a_fault_goes_to_every_worker_of_its_batch() {
    on_virtual_time(async {
        let world = calm_world::new(7, 5).await;
        let machines = stopped(&world, 3).await;
        let (wire, stack) = world.process("ends");
        wire.refuse_next(Fault::unavailable("no answer"));
        let end = async |record: &Record| stack.fleet().terminate_one(&record.id).await;
        let answers = join_all(machines.iter().map(end)).await;
        assert!(answers.iter().all(Result::is_err), "{answers:?}");
        let answers = join_all(machines.iter().map(end)).await;
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        assert_eq!(world.outside.fleet().asked(FleetCall::Terminate), [3, 3]);
    });
}
