//! Starts of one process go together, and nobody waits for one who went away.
//!
//! Not here: what becomes of jobs whose machines do not start ([`super::pools`]).

use std::time::Duration;

use bullpen_core::class::Usage;
use bullpen_core::instance::Record;
use bullpen_core::ports::{Ports, Started};
use bullpen_core::rates::FleetCall;
use bullpen_sim::clock::{on_virtual_time, pass};
use bullpen_sim::stage::{self, Furniture};
use bullpen_sim::world::World;
use futures_util::future::{join, join_all};

/// This many stopped machines.
async fn stopped(world: &World, count: u32) -> Vec<Record> {
    let plain = Furniture::plain("stopped", Usage::OnDemand, count);
    stage::furnish(world, &Furniture { stopped: true, ..plain }).await.expect("calm")
}

#[test]
fn as_many_as_fit_go_with_one_call_and_each_gets_its_answer() {
    on_virtual_time(async {
        let world = stage::calm(7, 100).await;
        let machines = stopped(&world, 60).await;
        let fleet = world.outside.fleet();
        fleet.lose(&machines[3].id);
        let (_, stack) = world.process("starts");
        let all = machines.iter().map(|record| stack.starts().start(&stack, &record.id));
        let answers = join_all(all).await;
        for (number, answer) in answers.into_iter().enumerate() {
            let answer = answer.expect("calm");
            assert_eq!(answer != Started::Starting, number == 3, "{number}: {answer:?}");
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
            stack.starts().start(&stack, &record.id).await.expect("calm")
        });
        assert!(join_all(late).await.iter().all(|answer| *answer == Started::Starting));
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
        let first = async {
            tokio::select! {
                biased;
                _ = stack.starts().start(&stack, &machines[0].id) => panic!("it was not waited for"),
                () = pass(Duration::from_millis(millis)) => {}
            }
        };
        let second = stack.starts().start(&stack, &machines[1].id);
        let ((), answer) = join(first, second).await;
        assert_eq!(answer, Ok(Started::Starting));
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
        let start = |number: usize| stack.starts().start(&stack, &machines[number].id);
        tokio::select! {
            biased;
            _ = start(0) => panic!("it was not waited for"),
            () = pass(Duration::from_millis(10)) => {}
        }
        pass(Duration::from_secs(60)).await;
        let (one, other) = join(start(1), start(2)).await;
        assert_eq!((one, other), (Ok(Started::Starting), Ok(Started::Starting)));
        assert_eq!(world.outside.fleet().asked(FleetCall::Start), [2]);
    });
}
