//! Replacement of a runner that GitHub gave to another job, or that stopped listening.
//!
//! Not here: two jobs on each other's runners (`serving`).

use std::cell::Cell;
use std::time::Duration;

use bullpen_core::instance::State;
use bullpen_core::job::{JobFact, JobStep, JobStepAt, RUNNING_LOOK_AGAIN, ReportedStatus, Setback};
use bullpen_core::ports::{Ledger, Ports};
use bullpen_sim::calm_world;
use bullpen_sim::clock::{on_virtual_time, pass};

use super::service_world::{ServiceWorld, about, about_in, two_jobs};

const LONG: Duration = Duration::from_secs(30 * 60);

/// Two jobs have one label. The later job's machine starts first, and GitHub gives it the earlier
/// job. The earlier job's machine is under way: it serves the later job, and the service launches
/// no third.
#[test]
fn a_machine_under_way_serves_the_job_that_lost_its_runner() {
    for seed in 0..4 {
        for late in [2, 5, 10, 15, 20] {
            on_virtual_time(two_of_one_label(seed, Duration::from_secs(late)));
        }
    }
}

async fn two_of_one_label(seed: u64, late: Duration) {
    let sim = ServiceWorld::in_world(calm_world::new(seed, 5).await).await;
    let submit = |job| sim.submit(job, about_in(job, "acme/app", "runs-on/runner=large"));
    let (first, second) = (submit("7"), submit("8"));
    sim.deliver(&second).await;
    let never = async || false;
    assert!(!sim.serve_until("second", late, |_| true, never).await);
    sim.deliver(&first).await;
    let done = async || sim.both_settled().await;
    assert!(sim.serve_until("serve", LONG, |_| true, done).await, "{:?}", sim.row("8").await);
    assert_eq!(sim.launched(), 2, "seed {seed}, {late:?} late: {:?}", sim.row("8").await);
    assert!(sim.github.notices().is_empty());
    sim.end().await;
}

/// In a burst of one label the first job gets its machine last: each job runs on the machine of the
/// next, and the last job of the chain lacks a runner. The machine under way serves that job at
/// once, and the service launches no other.
#[test]
fn a_chain_of_jobs_that_lost_their_runners_costs_neither_a_machine_nor_a_wait() {
    for seed in 0..5 {
        for late in [0, 5, 10] {
            on_virtual_time(a_burst_of_one_label(seed, Duration::from_secs(late)));
        }
    }
}

async fn a_burst_of_one_label(seed: u64, late: Duration) {
    const LASTS: Duration = Duration::from_secs(300);
    const JOBS: [&str; 6] = ["11", "12", "13", "14", "15", "16"];
    let sim = ServiceWorld::in_world(calm_world::new(seed, 10).await).await;
    let facts = JOBS.map(|job| {
        let now = sim.world.outside.clock().true_now();
        sim.github.queue(job, about_in(job, "acme/app", "runs-on/runner=large"), LASTS, now)
    });
    let [first, others @ ..] = &facts;
    let announce = async {
        for fact in others {
            sim.deliver(fact).await;
        }
        pass(late).await;
        sim.deliver(first).await;
    };
    let run = async || {
        JOBS.iter().all(|job| matches!(sim.github.said(job), Some(ReportedStatus::Started { .. })))
    };
    // Long before any of the jobs is over.
    let within = Duration::from_secs(150);
    let why = format!("seed {seed}, {late:?} late");
    let ((), all_run) = tokio::join!(announce, sim.serve_until("serve", within, |_| true, run));
    assert!(all_run, "{why}: {:?}", sim.row("16").await);
    assert_eq!(sim.launched(), JOBS.len(), "{why}");
    let done = async || {
        let settled = JOBS.map(|job| sim.is_settled(job));
        futures_util::future::join_all(settled).await.into_iter().all(|is_settled| is_settled)
    };
    assert!(sim.serve_until("finish", LONG, |_| true, done).await, "{why}");
    assert_eq!(sim.launched(), JOBS.len(), "{why}");
    sim.end().await;
}

/// GitHub gave the runner to a job that the service never hears of: the runner's own job does not
/// wait until that job is over.
#[test]
fn a_runner_taken_by_an_unknown_job_costs_no_wait() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await;
        let label = "runs-on/runner=large";
        let now = sim.world.outside.clock().true_now();
        let unknown = sim.github.queue("7", about_in("7", "acme/app", label), LONG, now);
        let fact = sim.submit("8", about_in("8", "acme/app", label));
        sim.deliver(&fact).await;
        let takes = |fact: &JobFact| fact.job != unknown.job;
        let within = Duration::from_secs(420);
        let done = async || sim.is_over("8");
        assert!(sim.serve_until("serve", within, takes, done).await, "{:?}", sim.row("8").await);
        assert!(!sim.is_over("7"), "it runs on");
        let setbacks = sim.row("8").await.setbacks;
        assert!(setbacks.iter().any(|at| at.setback == Setback::RunnerTaken), "{setbacks:?}");
        let over = async || sim.is_over("7");
        let ended = sim.serve_until("thief", 2 * LONG, takes, over).await;
        assert!(ended, "job 7 did not finish on its machine");
        assert_eq!(sim.launched(), 2);
        sim.end().await;
    });
}

/// A runner that has stopped listening does not get the time that a listening runner gets.
#[test]
fn a_runner_that_stops_listening_is_replaced_at_the_next_look() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await;
        let fact = sim.submit("7", about("7"));
        // Its runner listens, and GitHub gives it no job.
        sim.world.outside.forge().cancel(&fact.about.labels.join(","));
        sim.deliver(&fact).await;
        let takes_none = |_: &JobFact| false;
        let runs = async || {
            let Some(held) = sim.row("7").await.held().cloned() else { return false };
            let record = sim.world.outside.ledger().read(&held.instance).await.expect("calm");
            record.is_some_and(|record| matches!(record.state, State::Running { .. }))
        };
        assert!(sim.serve_until("serve", LONG, takes_none, runs).await);
        let held = sim.row("7").await.held().expect("it has a machine").clone();
        assert!(sim.world.outside.forge().forget(&held.runner, &held.instance));
        let freed = async || {
            let setbacks = sim.row("7").await.setbacks;
            setbacks.iter().any(|at| at.setback == Setback::ListenerEnded)
        };
        let within = Duration::from_secs(25);
        assert!(
            sim.serve_until("look", within, takes_none, freed).await,
            "{:?}",
            sim.row("7").await
        );
        assert_eq!(sim.row("7").await.attempts, 1, "the service did not count the attempt");
    });
}

/// The runner to which GitHub gave a job.
fn runner_of(sim: &ServiceWorld, job: &str) -> Option<String> {
    match sim.github.said(job) {
        Some(ReportedStatus::Started { runner, .. } | ReportedStatus::Completed { runner, .. }) => {
            runner.map(|runner| runner.to_string())
        }
        _ => None,
    }
}

/// Whether GitHub has given the two jobs each other's runners.
fn took_each_others(sim: &ServiceWorld) -> bool {
    let runners = ["7", "8"].map(|job| runner_of(sim, job));
    runners == ["sim-8-0", "sim-7-0"].map(|runner| Some(runner.to_owned()))
}

/// Whether the machine that was the job's own is idle.
async fn is_idle(sim: &ServiceWorld, job: &str) -> bool {
    let own = |step: &JobStepAt| match &step.step {
        JobStep::Claimed { instance, .. }
        | JobStep::Adopted { instance }
        | JobStep::Assigned { instance: Some(instance), .. } => Some(instance.clone()),
        _ => None,
    };
    let Some(machine) = sim.row(job).await.steps.iter().find_map(own) else { return false };
    let record = sim.world.outside.ledger().read(&machine).await.expect("calm");
    record.is_some_and(|record| matches!(record.state, State::Idle { .. }))
}

/// The code that ran on a machine decides what becomes of it, and not the job that owns it.
#[test]
fn a_forks_job_on_another_jobs_machine_ends_that_machine() {
    let taken = (0..8).filter(|seed| {
        on_virtual_time(async {
            let sim = two_jobs(*seed, ["acme/app"; 2]).await;
            sim.github.from_fork(about("7").run);
            let done = async || sim.both_settled().await;
            assert!(sim.serve_until("serve", LONG, |_| true, done).await, "seed {seed}");
            let taken = took_each_others(&sim);
            let idle = (is_idle(&sim, "7").await, is_idle(&sim, "8").await);
            assert_eq!(idle, if taken { (true, false) } else { (false, true) }, "seed {seed}");
            assert_eq!(sim.launched(), 2, "seed {seed}");
            sim.end().await;
            taken
        })
    });
    let taken = taken.count();
    assert!(taken > 1, "only {taken} seeds took each other's runners");
}

/// Code of one trust group must not follow another's, even if both are trusted.
#[test]
fn a_machine_that_ran_another_groups_job_ends() {
    let taken = (0..8).filter(|seed| {
        on_virtual_time(async {
            let sim = two_jobs(*seed, ["acme/app", "acme/other"]).await;
            let done = async || sim.both_settled().await;
            assert!(sim.serve_until("serve", LONG, |_| true, done).await, "seed {seed}");
            let taken = took_each_others(&sim);
            for job in ["7", "8"] {
                assert_eq!(is_idle(&sim, job).await, !taken, "seed {seed}, job {job}");
            }
            sim.end().await;
            taken
        })
    });
    let taken = taken.count();
    assert!(taken > 1, "only {taken} seeds took each other's runners");
}

/// Each row learns the truth whichever process dies, and both machines serve on.
#[test]
fn two_jobs_on_each_others_runners_survive_a_death_anywhere() {
    let seed = (0..8).find(|seed| {
        on_virtual_time(async {
            let sim = two_jobs(*seed, ["acme/app"; 2]).await;
            let done = async || sim.both_settled().await;
            assert!(sim.serve_until("serve", LONG, |_| true, done).await);
            let taken = took_each_others(&sim);
            sim.end().await;
            taken
        })
    });
    let seed = seed.expect("in one of eight worlds they take each other's runners");
    for fuse in (50..2_000).step_by(50) {
        on_virtual_time(async {
            let sim = two_jobs(seed, ["acme/app"; 2]).await;
            let done = async || sim.both_settled().await;
            let first = sim.serve_with_fuse("first", Some(fuse), LONG, |_| true, done).await;
            let settled =
                first.is_some() || sim.serve_until("second", 2 * LONG, |_| true, done).await;
            let rows = (sim.row("7").await, sim.row("8").await);
            assert!(settled, "dead at {fuse}: {rows:?}");
            assert!(sim.github.notices().is_empty(), "dead at {fuse}");
            sim.end().await;
        });
    }
}

/// The runner that a job left behind is not kept for a job that no longer waits.
#[test]
fn a_machine_that_no_job_waits_for_is_given_back_before_its_jobs_end() {
    let taken = (0..8).filter(|seed| the_second_is_cancelled(*seed)).count();
    assert!(taken > 1, "job 7 took the runner of job 8 in only {taken} seeds");
}

/// Returns whether the first job took the second job's runner.
fn the_second_is_cancelled(seed: u64) -> bool {
    on_virtual_time(async {
        let sim = ServiceWorld::in_world(calm_world::new(seed, 5).await).await.reusing();
        let now = sim.world.outside.clock().true_now();
        let shared = |job| about_in(job, "acme/app", "runs-on/runner=large");
        let first = sim.github.queue("7", shared("7"), 2 * LONG, now);
        let second = sim.submit("8", shared("8"));
        let announce = async {
            sim.deliver(&second).await;
            pass(Duration::from_secs(10)).await;
            sim.deliver(&first).await;
        };
        // Job 7 runs on the machine of job 8, and its own is kept for that job.
        let is_cancelled = Cell::new(false);
        let given_back = async || match runner_of(&sim, "7").as_deref() {
            Some("sim-8-0") if is_cancelled.get() => is_idle(&sim, "7").await,
            Some("sim-8-0") => {
                if sim.row("7").await.held().is_some() {
                    is_cancelled.set(true);
                    let now = sim.world.outside.clock().true_now();
                    sim.deliver(&sim.github.cancel_queued("8", now)).await;
                }
                false
            }
            Some(_) => true,
            None => false,
        };
        let within = RUNNING_LOOK_AGAIN + Duration::from_secs(120);
        let row = async || sim.row("7").await;
        let serving = sim.serve_until("serve", within, |_| true, given_back);
        let ((), is_given_back) = tokio::join!(announce, serving);
        assert!(is_given_back, "seed {seed}: {:?}", row().await);
        if !is_cancelled.get() {
            return false;
        }
        assert!(!sim.is_over("7"));
        assert_eq!(sim.row("8").await.taken_by, Some("7".into()));
        let done = async || sim.both_settled().await;
        assert!(sim.serve_until("finish", 4 * LONG, |_| true, done).await, "{:?}", row().await);
        assert!(is_idle(&sim, "8").await, "{:?}", sim.row("8").await);
        assert_eq!(sim.launched(), 2);
        sim.end().await;
        true
    })
}
