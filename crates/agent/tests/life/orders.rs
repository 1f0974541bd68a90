//! Tests of every phase after the warm-up, and of the defects of the proof of concept's agent.

use crate::stage::{Stage, secs};
use bullpen_agent::runner::{LeftListener, ListenerRefusal, Observed};
use bullpen_core::ids::RunnerName;
use bullpen_core::mailbox::{
    AgentPhase, Assignment, Order, SYSTEMIC, Secret, SignalKind, WithdrawalMode,
};
use bullpen_core::ports::{Fault, Mailbox};
use bullpen_sim::clock::pass;
use bullpen_sim::wire::{Weather, Wire};

#[tokio::test(start_paused = true)]
async fn a_whole_life_from_warm_up_to_an_acknowledged_removal() {
    let stage = Stage::new();
    stage
        .during(async {
            stage.signal(SignalKind::WarmUpOk, 0).await;
            stage.phase(AgentPhase::Waiting).await;
            stage.assign(1).await;
            stage.signal(SignalKind::Acknowledged, 1).await;
            assert_eq!(stage.signal(SignalKind::Registered, 1).await.detail, "17");
            stage.phase(AgentPhase::Listening).await;
            stage.runner().starts_job("build");
            assert_eq!(stage.signal(SignalKind::JobStarted, 1).await.detail, "build");
            stage.phase(AgentPhase::Busy).await;
            stage.runner().finishes_job("build");
            stage.phase(AgentPhase::Listening).await;
            stage.withdraw(2, WithdrawalMode::Drain).await;
            pass(secs(5)).await;
            stage.withdraw(2, WithdrawalMode::Stop).await;
            stage.signal(SignalKind::Removed, 2).await;
            stage.phase(AgentPhase::Waiting).await;
            stage.assign(3).await;
            stage.signal(SignalKind::Registered, 3).await;
        })
        .await;
    let did = ["registered 1", "listens 1", "ended", "cleaned", "registered 3", "listens 3"];
    assert_eq!(stage.runner().did(), did);
    assert_eq!(*stage.machine.shortened.lock().unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn d16_a_withdrawal_that_overtakes_the_registration_leaves_no_listener() {
    let stage = Stage::new();
    stage.runner().script().register_takes = secs(3);
    stage
        .during(async {
            stage.assign(1).await;
            stage.signal(SignalKind::Acknowledged, 1).await;
            pass(secs(1)).await;
            stage.withdraw(2, WithdrawalMode::Drain).await;
            stage.signal(SignalKind::Removed, 2).await;
            assert!(!stage.has(SignalKind::Registered, 1));
        })
        .await;
    assert!(!stage.runner().did().contains(&String::from("listens 1")));
    assert_eq!(stage.runner().did().last().unwrap(), "cleaned");
}

#[tokio::test(start_paused = true)]
async fn d33_a_drain_leaves_the_listener_and_a_stop_waits_for_its_job() {
    let stage = Stage::new();
    stage
        .during(async {
            stage.assign(1).await;
            stage.signal(SignalKind::Registered, 1).await;
            stage.withdraw(2, WithdrawalMode::Drain).await;
            pass(secs(30)).await;
            stage.runner().starts_job("late");
            stage.phase(AgentPhase::Busy).await;
            stage.withdraw(2, WithdrawalMode::Stop).await;
            pass(secs(300)).await;
            assert_eq!(stage.runner().did(), ["registered 1", "listens 1"]);
            assert!(!stage.has(SignalKind::Removed, 2));
            stage.runner().finishes_job("late");
            stage.signal(SignalKind::Removed, 2).await;
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn d33_a_stop_spares_a_job_that_the_agent_had_not_seen_yet() {
    let stage = Stage::new();
    stage
        .during(async {
            stage.assign(1).await;
            stage.signal(SignalKind::Registered, 1).await;
            stage.runner().script().busy = true;
            stage.withdraw(2, WithdrawalMode::Stop).await;
            stage.phase(AgentPhase::Busy).await;
            stage.runner().starts_job("unseen");
            pass(secs(60)).await;
            assert!(!stage.runner().did().contains(&String::from("ended")));
            stage.runner().finishes_job("unseen");
            stage.signal(SignalKind::Removed, 2).await;
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn d43_signals_survive_an_outage_of_minutes_and_nothing_dies_of_it() {
    let stage = Stage::new();
    stage
        .during(async {
            stage.assign(1).await;
            stage.signal(SignalKind::Registered, 1).await;
            stage.wire.set_weather(Weather { refuse: 1_000, ..Weather::default() });
            stage.runner().starts_job("build");
            pass(secs(300)).await;
            stage.runner().finishes_job("build");
            stage.runner().sees(Observed::Ended { code: Some(0) });
            pass(secs(300)).await;
            assert!(!stage.has(SignalKind::JobStarted, 1));
            stage.wire.set_weather(Weather::default());
            stage.signal(SignalKind::JobStarted, 1).await;
            let ended = stage.signal(SignalKind::ListenerEnded, 1).await;
            assert_eq!(ended.detail, "exit 0 after 1 jobs");
        })
        .await;
    assert_eq!(stage.runner().did(), ["registered 1", "listens 1"]);
}

#[tokio::test(start_paused = true)]
async fn d44_a_dead_agent_does_not_beat_and_the_next_ones_beats_follow() {
    let stage = Stage::new();
    stage.during(pass(secs(120))).await;
    let last = stage.beat().unwrap();
    pass(secs(60)).await;
    assert_eq!(stage.beat().unwrap(), last);
    stage.during(pass(secs(10))).await;
    let next = stage.beat().unwrap();
    assert!(next.follows(&last) && next.at > last.at, "{last:?} {next:?}");
}

#[tokio::test(start_paused = true)]
async fn a_withdrawal_is_acknowledged_although_no_assignment_was_seen() {
    let stage = Stage::new();
    stage.withdraw(4, WithdrawalMode::Drain).await;
    stage.during(stage.signal(SignalKind::Removed, 4)).await;
    assert_eq!(stage.runner().did(), ["ended", "cleaned"]);
}

#[tokio::test(start_paused = true)]
async fn the_first_read_of_a_process_is_consistent() {
    let stage = Stage::new();
    stage.wire.set_weather(Weather { lag_max: secs(600), ..Weather::default() });
    stage.assign(1).await;
    pass(secs(1)).await;
    stage.withdraw(2, WithdrawalMode::Stop).await;
    stage.during(stage.signal(SignalKind::Removed, 2)).await;
    stage.during(pass(secs(60))).await;
    assert!(!stage.runner().did().contains(&String::from("listens 1")));
}

#[tokio::test(start_paused = true)]
async fn d16_an_assignment_seen_late_is_not_acted_on_after_its_withdrawal() {
    for seed in 0..50 {
        let mut stage = Stage::new();
        stage.wire = Wire::new(seed, "agent", Weather::default());
        stage
            .during(async {
                stage.phase(AgentPhase::Waiting).await;
                stage.wire.set_weather(Weather { refuse: 1_000, ..Weather::default() });
                stage.assign(1).await;
                pass(secs(5)).await;
                stage.withdraw(2, WithdrawalMode::Stop).await;
                stage.wire.set_weather(Weather { lag_max: secs(10), ..Weather::default() });
                stage.signal(SignalKind::Removed, 2).await;
            })
            .await;
        let did = stage.runner().did();
        assert!(!did.contains(&String::from("registered 1")), "seed {seed}: {did:?}");
    }
}

fn alive(stage: &Stage, generation: u64, job: Option<&str>) -> LeftListener {
    let assignment = Assignment { credential: None, ..stage.assignment(generation) };
    LeftListener::Alive { assignment, listening: true, job: job.map(String::from) }
}

#[tokio::test(start_paused = true)]
async fn a_restarted_agent_adopts_the_listener_and_its_job() {
    let stage = Stage::new();
    stage.assign(1).await;
    stage.mailbox.redact(&Stage::key(), stage.assignment(1).generation).await.unwrap();
    stage.runner().script().found = alive(&stage, 1, Some("build"));
    stage.runner().script().busy = true;
    stage
        .during(async {
            stage.signal(SignalKind::Registered, 1).await;
            stage.signal(SignalKind::JobStarted, 1).await;
            assert_eq!(stage.beat().unwrap().phase, AgentPhase::Busy);
            stage.withdraw(2, WithdrawalMode::Stop).await;
            pass(secs(60)).await;
            assert_eq!(stage.runner().did(), ["adopted 1"]);
            stage.runner().finishes_job("build");
            stage.signal(SignalKind::Removed, 2).await;
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_old_order_that_shows_up_again_changes_nothing() {
    for seed in 0..20 {
        let mut stage = Stage::new();
        stage.assign(1).await;
        pass(secs(1)).await;
        stage.withdraw(2, WithdrawalMode::Stop).await;
        stage.runner().script().found = alive(&stage, 1, Some("build"));
        stage.runner().script().busy = true;
        let lag = Weather { lag_max: secs(60), ..Weather::default() };
        stage.wire = Wire::new(seed, "agent", lag);
        stage
            .during(async {
                pass(secs(30)).await;
                assert!(!stage.has(SignalKind::Acknowledged, 1), "seed {seed}");
                stage.runner().finishes_job("build");
                stage.signal(SignalKind::Removed, 2).await;
            })
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_restarted_agent_reports_a_listener_that_is_gone() {
    let stage = Stage::new();
    stage.assign(1).await;
    stage.runner().script().found = LeftListener::Dead { assignment: stage.assignment(1) };
    stage.during(stage.signal(SignalKind::ListenerEnded, 1)).await;
    assert_eq!(stage.runner().did(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn the_same_owners_next_generation_takes_the_listener_over() {
    let stage = Stage::new();
    stage
        .during(async {
            let first = Assignment { register_by: None, ..stage.assignment(1) };
            stage.post(Order::Assigned(first.clone())).await;
            stage.signal(SignalKind::Registered, 1).await;
            let second = Assignment { generation: first.generation.next(), ..first };
            stage.post(Order::Assigned(second)).await;
            stage.signal(SignalKind::Registered, 2).await;
        })
        .await;
    assert_eq!(stage.runner().did(), ["registered 1", "listens 1", "adopted 2"]);
}

#[tokio::test(start_paused = true)]
async fn another_owners_listener_is_ended_and_cleaned_before_the_next_one_starts() {
    let stage = Stage::new();
    stage
        .during(async {
            stage.assign(1).await;
            stage.signal(SignalKind::Registered, 1).await;
            let next = Assignment { runner: RunnerName::new("other"), ..stage.assignment(3) };
            stage.post(Order::Assigned(next)).await;
            stage.signal(SignalKind::Registered, 3).await;
        })
        .await;
    let did = ["registered 1", "listens 1", "ended", "cleaned", "registered 3", "listens 3"];
    assert_eq!(stage.runner().did(), did);
}

#[tokio::test(start_paused = true)]
async fn what_github_refuses_is_reported_as_systemic() {
    let stage = Stage::new();
    let refused = ListenerRefusal { detail: String::from("Unauthorized"), systemic: true };
    stage.runner().script().register = Err(refused);
    stage
        .during(async {
            stage.assign(1).await;
            let failed = stage.signal(SignalKind::RegistrationFailed, 1).await;
            assert_eq!(failed.detail, format!("{SYSTEMIC} Unauthorized"));
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_ends_before_it_listened_says_why() {
    let stage = Stage::new();
    stage.runner().script().listens = false;
    stage
        .during(async {
            stage.assign(1).await;
            stage.phase(AgentPhase::Registering).await;
            let refused = ListenerRefusal { detail: String::from("503"), systemic: true };
            stage.runner().sees(Observed::Trouble(refused));
            stage.runner().sees(Observed::Ended { code: Some(1) });
            let failed = stage.signal(SignalKind::RegistrationFailed, 1).await;
            assert_eq!(failed.detail, format!("{SYSTEMIC} 503"));
            stage.withdraw(2, WithdrawalMode::Stop).await;
            stage.signal(SignalKind::Removed, 2).await;
        })
        .await;
}

/// GitHub has the program update itself before it gives it a job.
#[tokio::test(start_paused = true)]
async fn a_program_that_updates_itself_is_started_again_once() {
    let stage = Stage::new();
    stage
        .during(async {
            stage.assign(1).await;
            stage.signal(SignalKind::Registered, 1).await;
            // Its time to register is long over.
            pass(secs(300)).await;
            stage.runner().sees(Observed::Ended { code: Some(4) });
            pass(secs(5)).await;
            assert!(!stage.has(SignalKind::ListenerEnded, 1));
            stage.phase(AgentPhase::Listening).await;
            stage.runner().sees(Observed::Ended { code: Some(4) });
            let ended = stage.signal(SignalKind::ListenerEnded, 1).await;
            assert_eq!(ended.detail, "exit 4 after 0 jobs");
        })
        .await;
    assert_eq!(stage.runner().did(), ["registered 1", "listens 1", "listens 1"]);
}

#[tokio::test(start_paused = true)]
async fn an_updated_program_that_does_not_listen_is_an_ended_listener() {
    let stage = Stage::new();
    stage
        .during(async {
            stage.assign(1).await;
            stage.signal(SignalKind::Registered, 1).await;
            stage.runner().script().listens = false;
            stage.runner().sees(Observed::Ended { code: Some(4) });
            stage.signal(SignalKind::ListenerEnded, 1).await;
        })
        .await;
    assert!(!stage.has(SignalKind::RegistrationFailed, 1));
}

#[tokio::test(start_paused = true)]
async fn with_a_removal_token_the_agent_removes_the_runner_itself() {
    let stage = Stage::new();
    stage
        .during(async {
            stage.assign(1).await;
            stage.signal(SignalKind::Registered, 1).await;
            let mut order = stage.withdrawal(2, WithdrawalMode::Stop);
            order.removal_token = Some(Secret::new("removal"));
            stage.post(Order::Withdrawn(order)).await;
            stage.signal(SignalKind::Removed, 2).await;
        })
        .await;
    assert_eq!(stage.runner().did()[2..], ["ended", "deregistered with removal", "cleaned"]);
}

#[tokio::test(start_paused = true)]
async fn an_interruption_is_reported_at_once() {
    let stage = Stage::new();
    let (agent, interrupter) = stage.agent();
    let play = async {
        stage.assign(1).await;
        stage.signal(SignalKind::Registered, 1).await;
        let before = stage.now();
        interrupter.interrupted("spot: terminate");
        let signal = stage.signal(SignalKind::Interrupted, 1).await;
        assert_eq!((signal.at, signal.detail.as_str()), (before, "spot: terminate"));
    };
    tokio::select! {
        biased;
        ending = agent => panic!("the agent ended: {ending:?}"),
        () = play => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_loses_and_delays_everything_now_and_then_is_survived() {
    let stage = Stage::new();
    let weather = Weather {
        latency_max: secs(1),
        throttle: 100,
        refuse: 100,
        lose_answer: 100,
        land_late: 50,
        late_max: secs(5),
        lag_max: secs(3),
        ..Weather::default()
    };
    stage.wire.set_weather(weather);
    stage
        .during(async {
            for round in 0..20 {
                let assigned = Assignment { register_by: None, ..stage.assignment(2 * round + 1) };
                stage.post(Order::Assigned(assigned)).await;
                stage.signal(SignalKind::Registered, 2 * round + 1).await;
                stage.withdraw(2 * round + 2, WithdrawalMode::Stop).await;
                stage.signal(SignalKind::Removed, 2 * round + 2).await;
            }
        })
        .await;
    let listened = stage.runner().did().iter().filter(|did| did.starts_with("listens")).count();
    assert_eq!(listened, 20);
}

#[tokio::test(start_paused = true)]
async fn a_refused_signal_is_sent_again() {
    let stage = Stage::new();
    stage.wire.refuse_next(Fault::Throttled);
    stage.wire.refuse_next(Fault::Denied(String::from("not yet")));
    stage.wire.refuse_next(Fault::unavailable("a test says so"));
    stage.during(stage.signal(SignalKind::WarmUpOk, 0)).await;
}
