//! Tests of the deadlines that an agent keeps by itself: register-by, idle deadline, hard cap.

use bullpen_agent::SelfEndReason;
use bullpen_core::mailbox::{Assignment, Order, SYSTEMIC, SignalKind, WithdrawalMode};
use bullpen_sim::clock::pass;
use bullpen_sim::wire::Weather;

use crate::stage::{Stage, secs};

#[tokio::test(start_paused = true)]
async fn d17_a_registration_that_takes_too_long_is_given_up() {
    let stage = Stage::new();
    stage.runner().script().register_takes = secs(60);
    stage
        .during(async {
            let by = stage.assignment(1).register_by.unwrap();
            stage.assign(1).await;
            let failed = stage.signal(SignalKind::RegistrationFailed, 1).await;
            assert!(!failed.detail.starts_with(SYSTEMIC));
            assert!(failed.at.distance(by) < secs(1), "reported at the deadline: {failed:?}");
        })
        .await;
    assert_eq!(stage.runner().did(), ["ended"]);
}

#[tokio::test(start_paused = true)]
async fn d17_a_listener_that_does_not_listen_in_time_is_ended() {
    let stage = Stage::new();
    stage.runner().script().listens = false;
    stage
        .during(async {
            stage.assign(1).await;
            stage.signal(SignalKind::RegistrationFailed, 1).await;
            assert!(!stage.has(SignalKind::Registered, 1));
        })
        .await;
    assert_eq!(stage.runner().did(), ["registered 1", "listens 1", "ended"]);
}

#[tokio::test(start_paused = true)]
async fn d17_an_assignment_past_its_time_starts_nothing() {
    let stage = Stage::new();
    let late = Assignment { register_by: Some(stage.now()), ..stage.assignment(1) };
    stage.post(Order::Assigned(late)).await;
    stage.during(pass(secs(60))).await;
    assert_eq!(stage.runner().did(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn idleness_ends_the_machine_after_a_consistent_read_and_not_in_an_outage() {
    let stage = Stage::new();
    stage.withdraw(2, WithdrawalMode::Stop).await;
    let deadline = stage.now().after(secs(7 * 60));
    let (agent, _interrupter) = stage.agent();
    tokio::pin!(agent);
    let outage = async {
        stage.signal(SignalKind::Removed, 2).await;
        stage.wire.set_weather(Weather { refuse: 1_000, ..Weather::default() });
        pass(secs(20 * 60)).await;
        stage.wire.set_weather(Weather::default());
    };
    tokio::select! {
        biased;
        ending = &mut agent => panic!("the agent ended in an outage: {ending:?}"),
        () = outage => {}
    }
    assert!(stage.now() > deadline);
    assert_eq!(agent.await, SelfEndReason::Idle);
    assert!(stage.machine.shortened.lock().unwrap().last().unwrap() <= &stage.now());
}

#[tokio::test(start_paused = true)]
async fn an_assignment_before_the_idle_deadline_keeps_the_machine() {
    let stage = Stage::new();
    stage.withdraw(2, WithdrawalMode::Stop).await;
    stage
        .during(async {
            stage.signal(SignalKind::Removed, 2).await;
            pass(secs(6 * 60)).await;
            stage.assign(3).await;
            pass(secs(3_600)).await;
        })
        .await;
    assert_eq!(*stage.machine.shortened.lock().unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn the_hard_cap_ends_the_machine_even_during_a_job() {
    let stage = Stage::new();
    let hard_cap = stage.now().after(secs(3_600));
    stage.post(Order::Assigned(Assignment { hard_cap, ..stage.assignment(1) })).await;
    let (agent, _interrupter) = stage.agent();
    tokio::pin!(agent);
    let job = async {
        stage.signal(SignalKind::Registered, 1).await;
        stage.runner().starts_job("endless");
        pass(secs(3_600)).await;
    };
    tokio::select! {
        biased;
        ending = &mut agent => panic!("the agent ended early: {ending:?}"),
        () = job => {}
    }
    assert_eq!(agent.await, SelfEndReason::HardCap);
    assert_eq!(stage.runner().did().last().unwrap(), "ended");
}

/// By the machine's clock, `register_by` comes minutes after the control plane gave the machine up.
#[tokio::test(start_paused = true)]
async fn a_clock_that_is_minutes_behind_is_said_and_registers_nothing() {
    let stage = Stage { skew: -300_000, ..Stage::new() };
    stage.assign(1).await;
    let failed = stage.during(stage.signal(SignalKind::RegistrationFailed, 1)).await;
    assert!(failed.detail.contains("the machine's clock is wrong"), "{failed:?}");
    // The next agent knows what the first learnt, also if it reads the next order late.
    stage.assign(2).await;
    pass(secs(310)).await;
    stage.during(stage.signal(SignalKind::RegistrationFailed, 2)).await;
    assert_eq!(stage.runner().did(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_ahead_ends_no_machine_before_its_time() {
    let stage = Stage { skew: 600_000, ..Stage::new() };
    let hard_cap = stage.now().after(secs(3_600));
    let order = Assignment { hard_cap, register_by: None, ..stage.assignment(1) };
    stage.post(Order::Assigned(order)).await;
    stage
        .during(async {
            stage.signal(SignalKind::Registered, 1).await;
            stage.runner().starts_job("long");
            pass(secs(1_800)).await;
        })
        .await;
    // The next agent knows what the first learnt.
    let (agent, _interrupter) = stage.agent();
    tokio::pin!(agent);
    tokio::select! {
        biased;
        ending = &mut agent => panic!("the agent ended early: {ending:?}"),
        () = pass(secs(1_795)) => {}
    }
    assert_eq!(agent.await, SelfEndReason::HardCap);
    assert!(stage.now().since(hard_cap) < secs(60), "the machine must end soon after");
}
