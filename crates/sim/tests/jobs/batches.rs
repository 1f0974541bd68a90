//! What workers of one process ask of the cloud goes together, and nobody waits for one who went away.
//!
//! Not here: what becomes of jobs whose machines do not start ([`super::pools`]).

use std::time::Duration;

use bullpen_core::class::Usage;
use bullpen_core::ids::InstanceId;
use bullpen_core::instance::Record;
use bullpen_core::ports::{Clock, Fault, MachineState, Ports, StartOutcome};
use bullpen_core::rates::FleetCall;
use bullpen_sim::clock::{on_virtual_time, pass};
use bullpen_sim::stage::{self, IdleMachines};
use bullpen_sim::world::World;
use futures_util::future::{join, join_all};

/// This many stopped machines.
async fn stopped(world: &World, count: u32) -> Vec<Record> {
    let plain = IdleMachines::plain("stopped", Usage::OnDemand, count);
    stage::furnish(world, &IdleMachines { stopped: true, ..plain }).await.expect("calm")
}

#[test]
fn as_many_as_fit_go_with_one_call_and_each_gets_its_answer() {
    on_virtual_time(async {
        let world = stage::calm(7, 100).await;
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
fn a_batch_that_is_joined_again_and_again_is_sent_all_the_same() {
    on_virtual_time(async {
        let world = stage::calm(7, 100).await;
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

/// The first of two is gone after so long; returns how many machines each call was about.
fn first_is_gone_after(millis: u64) -> Vec<u32> {
    on_virtual_time(async {
        let world = stage::calm(7, 5).await;
        let machines = stopped(&world, 2).await;
        let (_, stack) = world.process("starts");
        let fleet = stack.fleet();
        let first = async {
            tokio::select! {
                biased;
                _ = fleet.start_one(&machines[0].id) => panic!("it was not waited for"),
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
fn whoever_is_left_makes_the_call_that_the_first_did_not_make() {
    assert_eq!(first_is_gone_after(10), [1], "nobody wants the first machine any more");
}

#[test]
fn whoever_is_left_makes_a_call_again_whose_answer_nobody_heard() {
    assert_eq!(first_is_gone_after(36), [2, 1]);
}

/// One that everybody left is not what the next ones join.
#[test]
fn a_batch_that_everybody_left_is_forgotten() {
    on_virtual_time(async {
        let world = stage::calm(7, 5).await;
        let machines = stopped(&world, 3).await;
        let (_, stack) = world.process("starts");
        let start = async |number: usize| stack.fleet().start_one(&machines[number].id).await;
        tokio::select! {
            biased;
            _ = start(0) => panic!("it was not waited for"),
            () = pass(Duration::from_millis(10)) => {}
        }
        pass(Duration::from_secs(60)).await;
        let (one, other) = join(start(1), start(2)).await;
        assert_eq!((one, other), (Ok(StartOutcome::Starting), Ok(StartOutcome::Starting)));
        assert_eq!(world.outside.fleet().asked(FleetCall::Start), [2]);
    });
}

#[test]
fn looks_and_ends_go_together_too_and_ends_are_answered_when_they_are_made() {
    on_virtual_time(async {
        let world = stage::calm(7, 100).await;
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
        assert!(join_all(ends).await.iter().all(|gone| *gone), "nobody is told too early");
        assert_eq!(fleet.asked(FleetCall::Terminate), [50, 11]);
    });
}

#[test]
fn whoever_is_alone_waits_no_longer_than_for_company() {
    on_virtual_time(async {
        let world = stage::calm(7, 5).await;
        let machines = stopped(&world, 1).await;
        let (wire, stack) = world.process("alone");
        let began = stack.ports.clock().monotonic();
        stack.fleet().terminate_one(&machines[0].id).await.expect("calm");
        let took = stack.ports.clock().monotonic().saturating_sub(began);
        assert!(took <= stack.limits.coalesce_idle + 2 * wire.weather().latency_max, "{took:?}");
    });
}

/// All of a batch are told, and none of them is answered by the next one's call.
#[test]
fn a_fault_is_everybodys() {
    on_virtual_time(async {
        let world = stage::calm(7, 5).await;
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
