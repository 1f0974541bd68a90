//! Runners that GitHub gave to another job, and runners that went away: what is launched in their place,
//! and when.
//!
//! Not here: exchanging what both have already (`serving`).

use std::time::Duration;

use bullpen_core::instance::State;
use bullpen_core::job::{JobFact, ReportedStatus, Setback};
use bullpen_core::ports::{Ledger, Ports};
use bullpen_sim::clock::{on_virtual_time, pass};
use bullpen_sim::stage;

use super::town::{Town, about, about_in};

const LONG: Duration = Duration::from_secs(30 * 60);

/// Two jobs of one label. The later one's machine is first and is given the earlier job, whose own
/// machine is on its way: that one serves the later job, and no third is launched.
#[test]
fn a_machine_that_is_on_its_way_serves_whoever_was_robbed() {
    for seed in 0..4 {
        for late in [2, 5, 10, 15, 20] {
            on_virtual_time(two_of_one_label(seed, Duration::from_secs(late)));
        }
    }
}

async fn two_of_one_label(seed: u64, late: Duration) {
    let town = Town::in_world(stage::calm(seed, 5).await).await;
    let submit = |job| town.submit(job, about_in(job, "acme/app", "runs-on/runner=large"));
    let (first, second) = (submit("7"), submit("8"));
    town.say(&second).await;
    let never = async || false;
    assert!(!town.live("second", late, |_| true, never).await);
    town.say(&first).await;
    let done = async || town.is_settled("7").await && town.is_settled("8").await;
    assert!(town.live("serve", LONG, |_| true, done).await, "{:?}", town.row("8").await);
    assert_eq!(town.launched(), 2, "seed {seed}, {late:?} late: {:?}", town.row("8").await);
    assert!(town.github.told().is_empty());
    town.end().await;
}

/// A burst of one label, whose first job is the last to get its machine: each job runs on the machine
/// of the next, so the one that misses a runner is at the end of a chain. The machine on its way is
/// for that one, at once, and none is launched beside it.
#[test]
fn a_chain_of_robbed_jobs_costs_neither_a_machine_nor_a_wait() {
    for seed in 0..5 {
        for late in [0, 5, 10] {
            on_virtual_time(a_burst_of_one_label(seed, Duration::from_secs(late)));
        }
    }
}

async fn a_burst_of_one_label(seed: u64, late: Duration) {
    const LASTS: Duration = Duration::from_secs(300);
    const JOBS: [&str; 6] = ["11", "12", "13", "14", "15", "16"];
    let town = Town::in_world(stage::calm(seed, 10).await).await;
    let facts = JOBS.map(|job| {
        let now = town.world.outside.clock().true_now();
        town.github.queue(job, about_in(job, "acme/app", "runs-on/runner=large"), LASTS, now)
    });
    let [first, others @ ..] = &facts;
    let announce = async {
        for fact in others {
            town.say(fact).await;
        }
        pass(late).await;
        town.say(first).await;
    };
    let run = async || {
        JOBS.iter().all(|job| matches!(town.github.said(job), Some(ReportedStatus::Started { .. })))
    };
    // Long before any of them is over.
    let within = Duration::from_secs(150);
    let why = format!("seed {seed}, {late:?} late");
    let ((), all_run) = tokio::join!(announce, town.live("serve", within, |_| true, run));
    assert!(all_run, "{why}: {:?}", town.row("16").await);
    assert_eq!(town.launched(), JOBS.len(), "{why}");
    let done = async || {
        let settled = JOBS.map(|job| town.is_settled(job));
        futures_util::future::join_all(settled).await.into_iter().all(|is_settled| is_settled)
    };
    assert!(town.live("finish", LONG, |_| true, done).await, "{why}");
    assert_eq!(town.launched(), JOBS.len(), "{why}");
    town.end().await;
}

/// A runner was given to a job that nobody ever hears of: the one it was for does not wait until the
/// other is over.
#[test]
fn a_thief_that_nobody_knows_costs_no_wait() {
    on_virtual_time(async {
        let town = Town::new(5).await;
        let label = "runs-on/runner=large";
        let now = town.world.outside.clock().true_now();
        let thief = town.github.queue("7", about_in("7", "acme/app", label), LONG, now);
        let fact = town.submit("8", about_in("8", "acme/app", label));
        town.say(&fact).await;
        let hear = |fact: &JobFact| fact.job != thief.job;
        let within = Duration::from_secs(420);
        let done = async || town.is_over("8");
        assert!(town.live("serve", within, hear, done).await, "{:?}", town.row("8").await);
        assert!(!town.is_over("7"), "it runs on");
        let setbacks = town.row("8").await.setbacks;
        assert!(setbacks.iter().any(|at| at.setback == Setback::RunnerTaken), "{setbacks:?}");
        let over = async || town.is_over("7");
        assert!(town.live("thief", 2 * LONG, hear, over).await, "nobody ended its machine");
        assert_eq!(town.launched(), 2);
        town.end().await;
    });
}

/// Nobody waits for the patience of a runner that listens when it does not.
#[test]
fn a_runner_that_stops_listening_is_replaced_at_the_next_look() {
    on_virtual_time(async {
        let town = Town::new(5).await;
        let fact = town.submit("7", about("7"));
        // Its runner listens and is given nothing.
        town.world.outside.forge().cancel(&fact.about.labels.join(","));
        town.say(&fact).await;
        let deaf = |_: &JobFact| false;
        let runs = async || {
            let Some(held) = town.row("7").await.held().cloned() else { return false };
            let record = town.world.outside.ledger().read(&held.instance).await.expect("calm");
            record.is_some_and(|record| matches!(record.state, State::Running { .. }))
        };
        assert!(town.live("serve", LONG, deaf, runs).await);
        let held = town.row("7").await.held().expect("it has a machine").clone();
        assert!(town.world.outside.forge().forget(&held.runner, &held.instance));
        let freed = async || {
            let setbacks = town.row("7").await.setbacks;
            setbacks.iter().any(|at| at.setback == Setback::ListenerEnded)
        };
        let within = Duration::from_secs(25);
        assert!(town.live("look", within, deaf, freed).await, "{:?}", town.row("7").await);
        assert_eq!(town.row("7").await.attempts, 1, "it counts");
    });
}
