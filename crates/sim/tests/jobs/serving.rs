//! Jobs that the service serves: with new, reused and pooled machines, on each other's runners, and in
//! turns.
//!
//! Not here: jobs that the service gives up (`unserved`).

use std::cell::Cell;
use std::time::Duration;

use bullpen_core::class::Usage;
use bullpen_core::instance::{Owner, State};
use bullpen_core::job::{
    End, Job, JobFact, JobState, JobStep, JobStepAt, MachineSource, ReportedStatus, Setback,
};
use bullpen_core::ports::{Ledger, Ports};
use bullpen_sim::calm_world::{self, IdleMachines};
use bullpen_sim::clock::on_virtual_time;

use super::service_world::{ServiceWorld, about_in, two_jobs};

const LONG: Duration = Duration::from_secs(30 * 60);

/// The sources of all machines that the job had.
fn sources(row: &Job) -> Vec<MachineSource> {
    let how = |step: &JobStepAt| match step.step {
        JobStep::Assigned { how, .. } => Some(how),
        _ => None,
    };
    row.steps.iter().filter_map(how).collect()
}

#[test]
fn a_job_gets_a_new_machine_which_ends_with_it() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await;
        sim.queue("7").await;
        let done = async || sim.is_settled("7").await;
        assert!(sim.serve_until("serve", LONG, |_| true, done).await);
        let row = sim.row("7").await;
        assert!(matches!(&row.state, JobState::Ended { end: End::Completed(_), .. }), "{row:?}");
        assert_eq!(sources(&row), [MachineSource::Created]);
        assert_eq!(sim.launched(), 1);
        sim.end().await;
    });
}

#[test]
fn a_class_that_is_reused_serves_the_next_job_with_the_same_machine() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await.reusing();
        calm_world::add_idle(&sim.world, Usage::OnDemand, 1).await;
        for job in ["7", "8"] {
            sim.queue(job).await;
            let done = async || sim.is_settled(job).await;
            assert!(sim.serve_until(job, LONG, |_| true, done).await, "{:?}", sim.row(job).await);
            assert_eq!(sources(&sim.row(job).await), [MachineSource::Reused], "{job}");
        }
        assert_eq!(sim.launched(), 1, "the service launched beside the idle machine");
        sim.end().await;
    });
}

#[test]
fn a_forks_code_ends_its_machine() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await.reusing();
        let idle = calm_world::add_idle(&sim.world, Usage::OnDemand, 1).await;
        let fact = sim.queue("7").await;
        sim.github.from_fork(fact.about.run);
        let done = async || sim.is_settled("7").await;
        assert!(sim.serve_until("serve", LONG, |_| true, done).await);
        let record = sim.world.outside.ledger().read(&idle[0].id).await.expect("calm");
        let state = record.expect("it is recorded").state;
        assert!(matches!(state, State::Terminating { .. } | State::Terminated { .. }), "{state:?}");
        sim.end().await;
    });
}

/// Two jobs have equal labels: GitHub gives the first queued job to the first runner that listens.
#[test]
fn two_jobs_that_took_each_others_runners_leave_the_machines_where_they_are() {
    let taken = (0..8).filter(|seed| two_of_one_label(*seed)).count();
    assert!(taken > 1, "only {taken} seeds took each other's runners");
}

/// Returns whether one of the two took the other's runner.
fn two_of_one_label(seed: u64) -> bool {
    on_virtual_time(async {
        let sim = two_jobs(seed, ["acme/app"; 2]).await;
        // The worker ends with this process: it must see both runners listen first.
        let both_run = async || {
            for job in ["7", "8"] {
                let has_begun =
                    matches!(sim.github.said(job), Some(ReportedStatus::Started { .. }));
                let Some(held) = sim.row(job).await.held().cloned() else { return false };
                let record = sim.world.outside.ledger().read(&held.instance).await.expect("calm");
                let listens = record.is_some_and(|it| matches!(it.state, State::Running { .. }));
                if !has_begun || !listens {
                    return false;
                }
            }
            true
        };
        assert!(
            sim.serve_until("serve", LONG, |_| true, both_run).await,
            "seed {seed} {:#?} {:#?}",
            sim.row("7").await,
            sim.row("8").await
        );
        let is_known = async || {
            let rows = [sim.row("7").await, sim.row("8").await];
            let own = |row: &Job| row.held().is_some_and(|held| !row.is_elsewhere(held));
            rows.iter().all(own)
                || rows.iter().all(|row| row.runs_on().is_some() && row.taken_by.is_some())
        };
        let known = sim.serve_until("note", Duration::from_secs(25), |_| true, is_known).await;
        let (one, other) = (sim.row("7").await, sim.row("8").await);
        assert!(known, "seed {seed}: {one:?} {other:?}");
        let held = one.held().expect("it has a machine").clone();
        assert_eq!(held.runner.as_str(), "sim-7-0", "seed {seed}: a machine changed hands");
        let record = sim.world.outside.ledger().read(&held.instance).await.expect("calm");
        let owner = record.and_then(|record| record.state.owner().cloned());
        assert_eq!(owner, Some(Owner::Job("7".into())), "seed {seed}");
        let taken = one.taken_by.is_some();
        if taken {
            assert_eq!(other.runs_on(), Some(&held.instance), "seed {seed}");
            assert_eq!((one.taken_by, other.taken_by), (Some("8".into()), Some("7".into())));
        }
        let done = async || sim.both_settled().await;
        assert!(sim.serve_until("finish", LONG, |_| true, done).await, "seed {seed}");
        assert_eq!(sim.launched(), 2, "seed {seed}");
        assert_eq!(idle(&sim).await, 2, "seed {seed}: their class is reused");
        sim.end().await;
        taken
    })
}

/// The same without webhooks of the starts: the machine of the job that is over is released, and not
/// the other one, whichever row owns it.
#[test]
fn the_machine_of_a_job_that_is_over_is_released() {
    let taken = (0..8).filter(|seed| one_is_over_first(*seed)).count();
    assert!(taken > 1, "only {taken} seeds took each other's runners");
}

/// How many machines are idle.
async fn idle(sim: &ServiceWorld) -> usize {
    let records = sim.world.outside.ledger().live(None).await.expect("calm").items;
    records.iter().filter(|record| matches!(record.state, State::Idle { .. })).count()
}

/// Returns whether the short job took the long job's runner.
fn one_is_over_first(seed: u64) -> bool {
    on_virtual_time(async {
        let sim = ServiceWorld::in_world(calm_world::new(seed, 5).await).await.reusing();
        calm_world::add_idle(&sim.world, Usage::OnDemand, 2).await;
        for (job, seconds) in [("7", 30), ("8", 900)] {
            let about = about_in(job, "acme/app", "runs-on/runner=large");
            let now = sim.world.outside.clock().true_now();
            let fact = sim.github.queue(job, about, Duration::from_secs(seconds), now);
            sim.deliver(&fact).await;
        }
        let taken = Cell::new(false);
        let is_delivered = |fact: &JobFact| {
            if let ReportedStatus::Completed { runner: Some(runner), .. } = &fact.said {
                taken.set(taken.get() || runner.as_str() == "sim-8-0");
            }
            !matches!(fact.said, ReportedStatus::Started { .. })
        };
        let first = async || sim.is_over("7") && idle(&sim).await == 1;
        let within = Duration::from_secs(300);
        let released = sim.serve_until("serve", within, is_delivered, first).await;
        assert!(released && !sim.is_over("8"), "seed {seed}: {:?}", sim.row("7").await);
        let done = async || sim.both_settled().await;
        assert!(sim.serve_until("finish", LONG, |_| true, done).await, "{:?}", sim.row("8").await);
        assert_eq!(sim.launched(), 2, "seed {seed}");
        assert_eq!(idle(&sim).await, 1, "seed {seed}: the first machine's idle time is over");
        sim.end().await;
        taken.get()
    })
}

/// A job that no webhook announced takes the runner of an announced job, which gets another one.
#[test]
fn a_job_that_lost_its_runner_to_an_unannounced_job_gets_another() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await;
        let label = "runs-on/runner=large";
        sim.submit("7", about_in("7", "acme/app", label));
        let fact = sim.submit("8", about_in("8", "acme/app", label));
        sim.deliver(&fact).await;
        let deprived = async || {
            let setbacks = sim.row("8").await.setbacks;
            setbacks.iter().any(|setback| setback.setback == Setback::RunnerTaken)
        };
        assert!(sim.serve_until("serve", LONG, |_| true, deprived).await);
        assert!(matches!(sim.row("7").await.state, JobState::Elsewhere));
        let done = async || sim.both_settled().await;
        assert!(sim.serve_until("again", LONG, |_| true, done).await, "{:?}", sim.row("8").await);
        assert!(sim.github.notices().is_empty());
        assert!(sim.launched() <= 2);
        sim.end().await;
    });
}

/// The pool's machine serves the first job; the second finds the pool empty and gets a new machine.
#[test]
fn a_pool_serves_first_and_overflows_to_a_launch() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await.with_pool();
        let plain = IdleMachines::plain("pooled", Usage::OnDemand, 1);
        let pooled = IdleMachines { pooled: true, ..plain };
        calm_world::add_machines(&sim.world, &pooled).await.expect("calm");
        for (job, source) in [("7", MachineSource::Picked), ("8", MachineSource::Created)] {
            let label = format!("runs-on={job}/pool=stage");
            let fact = sim.submit(job, about_in(job, "acme/app", &label));
            sim.deliver(&fact).await;
            let done = async || sim.is_settled(job).await;
            assert!(sim.serve_until(job, LONG, |_| true, done).await, "{:?}", sim.row(job).await);
            let row = sim.row(job).await;
            assert_eq!(sources(&row), [source], "{job}");
            assert_eq!(row.overflowed, source == MachineSource::Created);
        }
        assert_eq!(sim.launched(), 2);
        sim.end().await;
    });
}

/// A burst of forty jobs does not delay ten jobs of another repository; all are served under the
/// ceiling.
#[test]
fn fifty_jobs_of_two_repositories_are_served_in_turns() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(8).await;
        let mut jobs = Vec::new();
        for number in 0..50 {
            let repository = if number < 40 { "acme/burst" } else { "acme/calm" };
            let job = format!("{}", 100 + number);
            let label = format!("runs-on={job}/runner=large");
            let fact = sim.submit(&job, about_in(&job, repository, &label));
            sim.deliver(&fact).await;
            jobs.push(job);
        }
        let done = async || {
            for job in &jobs {
                if !sim.is_settled(job).await {
                    return false;
                }
            }
            true
        };
        assert!(sim.serve_until("serve", Duration::from_secs(3 * 3600), |_| true, done).await);
        assert!(sim.github.notices().is_empty(), "{:?}", sim.github.notices());
        let mut begun = Vec::new();
        for job in &jobs {
            let row = sim.row(job).await;
            begun.push((row.steps.last().expect("it was assigned").at, row.repository().clone()));
        }
        begun.sort();
        let half = begun.iter().take(25).filter(|(_, of)| of.as_str() == "acme/calm").count();
        assert!(half >= 8, "only {half} of the first 25 jobs were the quiet repository's");
        sim.end().await;
    });
}
