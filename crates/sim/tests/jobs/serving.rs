//! Jobs that are served: new machines, reused ones, stolen ones, and everyone in turn.
//!
//! Not here: jobs that are not.

use std::cell::Cell;
use std::time::Duration;

use bullpen_core::class::Usage;
use bullpen_core::instance::{Owner, State};
use bullpen_core::job::{
    End, Job, JobFact, JobState, JobStep, JobStepAt, MachineSource, ReportedStatus, Setback,
};
use bullpen_core::ports::{Ledger, Ports};
use bullpen_sim::clock::on_virtual_time;
use bullpen_sim::stage::{self, IdleMachines};

use super::town::{Town, about_in};

const LONG: Duration = Duration::from_secs(30 * 60);

/// How every machine that the job had was come by.
fn how(row: &Job) -> Vec<MachineSource> {
    let how = |step: &JobStepAt| match step.step {
        JobStep::Assigned { how, .. } => Some(how),
        _ => None,
    };
    row.steps.iter().filter_map(how).collect()
}

#[test]
fn a_job_gets_a_new_machine_which_ends_with_it() {
    on_virtual_time(async {
        let town = Town::new(5).await;
        town.queue("7").await;
        let done = async || town.is_settled("7").await;
        assert!(town.live("serve", LONG, |_| true, done).await);
        let row = town.row("7").await;
        assert!(matches!(&row.state, JobState::Ended { end: End::Completed(_), .. }), "{row:?}");
        assert_eq!(how(&row), [MachineSource::Created]);
        assert_eq!(town.launched(), 1);
        town.end().await;
    });
}

#[test]
fn a_class_that_is_reused_serves_the_next_job_with_the_same_machine() {
    on_virtual_time(async {
        let town = Town::new(5).await.reusing();
        stage::idle(&town.world, Usage::OnDemand, 1).await;
        for job in ["7", "8"] {
            town.queue(job).await;
            let done = async || town.is_settled(job).await;
            assert!(town.live(job, LONG, |_| true, done).await, "{:?}", town.row(job).await);
            assert_eq!(how(&town.row(job).await), [MachineSource::Reused], "{job}");
        }
        assert_eq!(town.launched(), 1, "the one that was idle");
        town.end().await;
    });
}

#[test]
fn a_forks_code_ends_its_machine() {
    on_virtual_time(async {
        let town = Town::new(5).await.reusing();
        let idle = stage::idle(&town.world, Usage::OnDemand, 1).await;
        let fact = town.queue("7").await;
        town.github.from_fork(fact.about.run);
        let done = async || town.is_settled("7").await;
        assert!(town.live("serve", LONG, |_| true, done).await);
        let record = town.world.outside.ledger().read(&idle[0].id).await.expect("calm");
        let state = record.expect("it is recorded").state;
        assert!(matches!(state, State::Terminating { .. } | State::Terminated { .. }), "{state:?}");
        town.end().await;
    });
}

/// Two jobs of equal labels: the first runner that listens gets the first job, whoever it was for.
#[test]
fn a_stolen_job_and_its_thief_exchange_machines() {
    let stolen = (0..8).filter(|seed| two_of_one_label(*seed)).count();
    assert!(stolen > 1, "it hardly ever happened: {stolen}");
}

/// Returns whether one of the two took the other's runner.
fn two_of_one_label(seed: u64) -> bool {
    on_virtual_time(async {
        let town = Town::in_world(stage::calm(seed, 5).await).await.reusing();
        stage::idle(&town.world, Usage::OnDemand, 2).await;
        for job in ["7", "8"] {
            let fact = town.submit(job, about_in(job, "acme/app", "runs-on/runner=large"));
            town.say(&fact).await;
        }
        // Their worker ends with this process: it has to have seen both runners listen.
        let both_run = async || {
            for job in ["7", "8"] {
                let has_begun =
                    matches!(town.github.said(job), Some(ReportedStatus::Started { .. }));
                let Some(held) = town.row(job).await.held().cloned() else { return false };
                let record = town.world.outside.ledger().read(&held.instance).await.expect("calm");
                let listens = record.is_some_and(|it| matches!(it.state, State::Running { .. }));
                if !has_begun || !listens {
                    return false;
                }
            }
            true
        };
        assert!(town.live("serve", LONG, |_| true, both_run).await, "seed {seed}");
        let agree = async || {
            let (one, other) = (town.row("7").await, town.row("8").await);
            [one, other].iter().all(|row| row.held().is_some() && row.taken_by_another().is_none())
        };
        let agreed = town.live("exchange", Duration::from_secs(25), |_| true, agree).await;
        assert!(agreed, "seed {seed}: {:?} {:?}", town.row("7").await, town.row("8").await);
        let held = town.row("7").await.held().expect("it has a machine").clone();
        let record = town.world.outside.ledger().read(&held.instance).await.expect("calm");
        let owner = record.and_then(|record| record.state.owner().cloned());
        assert_eq!(owner, Some(Owner::Job("7".into())), "seed {seed}");
        let done = async || town.is_settled("7").await && town.is_settled("8").await;
        assert!(town.live("finish", LONG, |_| true, done).await, "seed {seed}");
        assert_eq!(town.launched(), 2, "seed {seed}");
        town.end().await;
        held.runner.as_str() == "sim-8-0"
    })
}

/// The same, and no webhook tells of the starts: what is released is not what the other runs on.
#[test]
fn a_job_that_is_over_releases_the_machine_it_ran_on() {
    let stolen = (0..8).filter(|seed| one_is_over_first(*seed)).count();
    assert!(stolen > 1, "it hardly ever happened: {stolen}");
}

/// Returns whether the short one took the long one's runner.
fn one_is_over_first(seed: u64) -> bool {
    on_virtual_time(async {
        let town = Town::in_world(stage::calm(seed, 5).await).await.reusing();
        stage::idle(&town.world, Usage::OnDemand, 2).await;
        for (job, seconds) in [("7", 30), ("8", 900)] {
            let about = about_in(job, "acme/app", "runs-on/runner=large");
            let now = town.world.outside.clock().true_now();
            let fact = town.github.queue(job, about, Duration::from_secs(seconds), now);
            town.say(&fact).await;
        }
        let stolen = Cell::new(false);
        let hear = |fact: &JobFact| {
            if let ReportedStatus::Completed { runner: Some(runner), .. } = &fact.said {
                stolen.set(stolen.get() || runner.as_str() == "sim-8-0");
            }
            !matches!(fact.said, ReportedStatus::Started { .. })
        };
        let first = async || town.is_settled("7").await;
        let within = Duration::from_secs(300);
        let settled = town.live("serve", within, hear, first).await;
        assert!(settled && !town.is_over("8"), "seed {seed}: {:?}", town.row("7").await);
        let done = async || town.is_settled("8").await;
        assert!(town.live("finish", LONG, |_| true, done).await, "{:?}", town.row("8").await);
        assert_eq!(town.launched(), 2, "seed {seed}");
        town.end().await;
        stolen.get()
    })
}

/// A job that nobody announced takes the runner of one that was: the other is served anew.
#[test]
fn a_job_without_a_machine_of_its_own_deprives_nobody_for_long() {
    on_virtual_time(async {
        let town = Town::new(5).await;
        let label = "runs-on/runner=large";
        town.submit("7", about_in("7", "acme/app", label));
        let fact = town.submit("8", about_in("8", "acme/app", label));
        town.say(&fact).await;
        let deprived = async || {
            let setbacks = town.row("8").await.setbacks;
            setbacks.iter().any(|setback| setback.setback == Setback::RunnerTaken)
        };
        assert!(town.live("serve", LONG, |_| true, deprived).await);
        assert!(matches!(town.row("7").await.state, JobState::Elsewhere));
        let done = async || town.is_settled("7").await && town.is_settled("8").await;
        assert!(town.live("again", LONG, |_| true, done).await, "{:?}", town.row("8").await);
        assert!(town.github.told().is_empty());
        assert!(town.launched() <= 2);
        town.end().await;
    });
}

/// The pool's machine serves the first job; the second finds the pool empty, and one is launched.
#[test]
fn a_pool_serves_first_and_overflows_to_a_launch() {
    on_virtual_time(async {
        let town = Town::new(5).await.with_pool();
        let plain = IdleMachines::plain("pooled", Usage::OnDemand, 1);
        let pooled = IdleMachines { pooled: true, ..plain };
        stage::furnish(&town.world, &pooled).await.expect("calm");
        for (job, by) in [("7", MachineSource::Picked), ("8", MachineSource::Created)] {
            let label = format!("runs-on={job}/pool=stage");
            let fact = town.submit(job, about_in(job, "acme/app", &label));
            town.say(&fact).await;
            let done = async || town.is_settled(job).await;
            assert!(town.live(job, LONG, |_| true, done).await, "{:?}", town.row(job).await);
            let row = town.row(job).await;
            assert_eq!(how(&row), [by], "{job}");
            assert_eq!(row.overflowed, by == MachineSource::Created);
        }
        assert_eq!(town.launched(), 2);
        town.end().await;
    });
}

/// A burst of forty does not hold up ten others, and everyone is served under the ceiling.
#[test]
fn fifty_jobs_of_two_repositories_are_served_in_turns() {
    on_virtual_time(async {
        let town = Town::new(8).await;
        let mut jobs = Vec::new();
        for number in 0..50 {
            let repository = if number < 40 { "acme/burst" } else { "acme/calm" };
            let job = format!("{}", 100 + number);
            let label = format!("runs-on={job}/runner=large");
            let fact = town.submit(&job, about_in(&job, repository, &label));
            town.say(&fact).await;
            jobs.push(job);
        }
        let done = async || {
            for job in &jobs {
                if !town.is_settled(job).await {
                    return false;
                }
            }
            true
        };
        assert!(town.live("serve", Duration::from_secs(3 * 3600), |_| true, done).await);
        assert!(town.github.told().is_empty(), "{:?}", town.github.told());
        let mut begun = Vec::new();
        for job in &jobs {
            let row = town.row(job).await;
            begun.push((row.steps.last().expect("it was assigned").at, row.repository().clone()));
        }
        begun.sort();
        let half = begun.iter().take(25).filter(|(_, of)| of.as_str() == "acme/calm").count();
        assert!(half >= 8, "of the first 25 only {half} were the quiet repository's");
        town.end().await;
    });
}
