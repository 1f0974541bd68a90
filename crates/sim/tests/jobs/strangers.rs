//! Trusted and untrusted code share no machines: untrusted code gets no used machine, and its
//! machine serves no other job.
//!
//! Not here: the end of a machine after its job (`machine`), or jobs that lose their runners
//! (`stolen`).

use std::time::Duration;

use bullpen_core::class::Usage;
use bullpen_core::config::extension::OnUnfulfillable;
use bullpen_core::ids::{ClassName, Repository};
use bullpen_core::instance::{State, Tier};
use bullpen_core::job::{JobDetails, JobStep, MachineSource, Origin, Provenance, Visibility};
use bullpen_core::ports::{Ledger, Ports};
use bullpen_core::scope::{ServedRepositories, ServiceScope};
use bullpen_sim::calm_world::{self, IdleMachines};
use bullpen_sim::clock::on_virtual_time;

use super::service_world::{ServiceWorld, about, about_in};

const LONG: Duration = Duration::from_secs(30 * 60);
const SHARED: &str = "runs-on/runner=large";

/// Serves a job to its end; returns the source of its machine.
async fn served(sim: &ServiceWorld, job: &str, about: JobDetails) -> MachineSource {
    let fact = sim.submit(job, about);
    sim.deliver(&fact).await;
    let done = async || sim.is_settled(job).await;
    assert!(sim.serve_until(job, LONG, |_| true, done).await, "{:?}", sim.row(job).await);
    sim.machine_source(job).await.expect("it had a machine")
}

/// A public repository, and one idle machine that its own job has used.
async fn with_a_used_machine() -> ServiceWorld {
    let sim = ServiceWorld::new(5).await.reusing();
    sim.github.make_public(&Repository::new("acme/app"));
    calm_world::add_idle(&sim.world, Usage::OnDemand, 1).await;
    assert_eq!(served(&sim, "7", about("7")).await, MachineSource::Reused);
    sim
}

/// The reasons why idle machines did not fit a job.
async fn unfit(sim: &ServiceWorld, job: &str) -> Vec<String> {
    let steps = sim.row(job).await.steps;
    let of = |step: &JobStep| match step {
        JobStep::NothingIdle { unfit } => unfit.keys().cloned().collect::<Vec<_>>(),
        _ => Vec::new(),
    };
    steps.iter().flat_map(|step| of(&step.step)).collect()
}

#[test]
fn a_forks_job_gets_no_machine_that_a_trusted_job_used() {
    for origin in [Origin::Fork, Origin::Dependabot] {
        on_virtual_time(async {
            let sim = with_a_used_machine().await;
            sim.github.comes_from(about("8").run, origin);
            assert_eq!(served(&sim, "8", about("8")).await, MachineSource::Created, "{origin:?}");
            assert_eq!(unfit(&sim, "8").await, ["untrusted-code"]);
            assert_eq!(sim.row("8").await.known.about.provenance.origin, Some(origin));
            // The fork's machine has ended; the used machine serves trusted jobs.
            assert_eq!(served(&sim, "9", about("9")).await, MachineSource::Reused, "{origin:?}");
            assert_eq!(sim.launched(), 2);
            sim.end().await;
        });
    }
}

/// A fork's job may carry the same labels, and GitHub would give it the runner.
#[test]
fn a_used_machine_is_not_offered_under_labels_that_a_fork_may_carry() {
    on_virtual_time(async {
        let sim = with_a_used_machine().await;
        let shared = about_in("8", "acme/app", SHARED);
        assert_eq!(served(&sim, "8", shared).await, MachineSource::Created);
        assert_eq!(unfit(&sim, "8").await, ["labels-not-bound"]);
        assert_eq!(served(&sim, "9", about("9")).await, MachineSource::Reused);
        sim.end().await;
    });
}

#[test]
fn in_a_private_repository_a_used_machine_is_offered_under_any_labels() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await.reusing();
        calm_world::add_idle(&sim.world, Usage::OnDemand, 1).await;
        for job in ["7", "8"] {
            let shared = about_in(job, "acme/app", SHARED);
            assert_eq!(served(&sim, job, shared).await, MachineSource::Reused, "{job}");
        }
        sim.end().await;
    });
}

/// The attack: GitHub queues a fork's job first, under the same labels, without a webhook. It gives
/// the job the first runner that fits.
#[test]
fn a_fork_that_takes_a_trusted_jobs_runner_finds_an_unused_machine() {
    on_virtual_time(async {
        let sim = with_a_used_machine().await;
        let hostile = about_in("8", "acme/app", SHARED);
        sim.github.from_fork(hostile.run.clone());
        sim.submit("8", hostile);
        let fact = sim.submit("9", about_in("9", "acme/app", SHARED));
        sim.deliver(&fact).await;
        let done = async || sim.is_over("8") && sim.is_settled("9").await;
        assert!(sim.serve_until("serve", LONG, |_| true, done).await, "{:?}", sim.row("9").await);
        // The checker checks each start, and that the fork's machine serves no other job.
        assert_eq!(
            served(&sim, "10", about("10")).await,
            MachineSource::Reused,
            "the machine used before serves it"
        );
        sim.end().await;
    });
}

/// The attack: run ids are public, so a fork's job names the run id of a trusted job. The service
/// refuses it, but GitHub keeps it queued and gives it the trusted job's runner. No step of it
/// begins there.
#[test]
pub(crate) fn a_fork_that_names_a_trusted_run_begins_nothing_on_its_machine() {
    on_virtual_time(async {
        let mut sim = with_a_used_machine().await;
        // By default the service cancels the run that it refuses.
        sim.config.on_unfulfillable = OnUnfulfillable::Annotate;
        let hostile = about_in("8", "acme/app", "runs-on=9/runner=large");
        sim.github.from_fork(hostile.run.clone());
        let fact = sim.submit("8", hostile);
        sim.deliver(&fact).await;
        let fact = sim.submit("9", about("9"));
        sim.deliver(&fact).await;
        let done = async || sim.is_settled("9").await;
        assert!(sim.serve_until("serve", LONG, |_| true, done).await, "{:?}", sim.row("9").await);
        let ran = sim.world.outside.forge().completed();
        assert_eq!(ran, 2, "only jobs 7 and 9 may run");
        assert_eq!(
            sim.machine_source("9").await,
            Some(MachineSource::Created),
            "job 9 gets a new machine after it lost the used one"
        );
        let idle = sim.world.outside.ledger().idle_in(&ClassName::new("large")).await;
        assert_eq!(idle.expect("calm").items.len(), 1, "the machine of the fork's job must end");
        sim.end().await;
    });
}

/// An organisation's runners serve all of its repositories, public ones among them.
#[test]
fn in_a_private_repository_of_an_organisation_it_is_not() {
    on_virtual_time(async {
        let mut sim = ServiceWorld::new(5).await.reusing();
        sim.scope = ServiceScope::of(ServedRepositories::Owner("acme".to_owned()));
        calm_world::add_idle(&sim.world, Usage::OnDemand, 1).await;
        assert_eq!(
            served(&sim, "7", about_in("7", "acme/app", SHARED)).await,
            MachineSource::Reused
        );
        assert_eq!(
            served(&sim, "8", about_in("8", "acme/app", SHARED)).await,
            MachineSource::Created
        );
        assert_eq!(unfit(&sim, "8").await, ["labels-not-bound"]);
        sim.end().await;
    });
}

#[test]
fn a_job_of_unknown_origin_gets_an_unused_machine() {
    on_virtual_time(async {
        let sim = with_a_used_machine().await;
        sim.github.set_outage(true);
        let fact = sim.submit("8", about("8"));
        sim.deliver(&fact).await;
        let runs = async || sim.machine_source("8").await.is_some();
        assert!(sim.serve_until("serve", LONG, |_| true, runs).await, "{:?}", sim.row("8").await);
        assert_eq!(sim.machine_source("8").await, Some(MachineSource::Created));
        assert_eq!(unfit(&sim, "8").await, ["origin-unknown"]);
        sim.github.set_outage(false);
        let done = async || sim.is_settled("8").await;
        assert!(sim.serve_until("end", LONG, |_| true, done).await);
        sim.end().await;
    });
}

/// The row has the origin from the run's webhook with the job's first fact, so the service does not
/// ask.
#[test]
fn a_run_whose_origin_a_webhook_named_is_not_asked_about() {
    on_virtual_time(async {
        let sim = with_a_used_machine().await;
        let (origin, visibility) = (Some(Origin::Own), Some(Visibility::Public));
        let known = JobDetails { provenance: Provenance { origin, visibility }, ..about("8") };
        let fact = sim.submit("8", known);
        sim.deliver(&fact).await;
        sim.github.set_outage(true);
        let runs = async || sim.machine_source("8").await.is_some();
        assert!(sim.serve_until("serve", LONG, |_| true, runs).await, "{:?}", sim.row("8").await);
        assert_eq!(sim.machine_source("8").await, Some(MachineSource::Reused));
        sim.github.set_outage(false);
        let done = async || sim.is_settled("8").await;
        assert!(sim.serve_until("end", LONG, |_| true, done).await);
        sim.end().await;
    });
}

/// A pool offers released machines first, except to a fork's job, which gets the hot one.
#[test]
fn a_pool_gives_a_forks_job_an_unused_machine() {
    on_virtual_time(async {
        let mut sim = ServiceWorld::new(5).await.with_pool();
        sim.github.make_public(&Repository::new("acme/app"));
        let large = sim.config.runners.values_mut().next().expect("there is one");
        large.reuse = Some(bullpen_core::config::runner::Reuse::default());
        let plain = IdleMachines::plain("pooled", Usage::OnDemand, 2);
        let pooled = IdleMachines { pooled: true, ..plain };
        let machines = calm_world::add_machines(&sim.world, &pooled).await.expect("calm");
        let of_pool = |job: &str| about_in(job, "acme/app", &format!("runs-on={job}/pool=stage"));
        assert_eq!(served(&sim, "7", of_pool("7")).await, MachineSource::Picked);
        let mut tiers = Vec::new();
        for machine in &machines {
            let record = sim.world.outside.ledger().read(&machine.id).await.expect("calm");
            if let Some(State::Idle { tier, .. }) = record.map(|record| record.state) {
                tiers.push(tier);
            }
        }
        tiers.sort();
        assert_eq!(tiers, [Tier::Released, Tier::Hot]);
        sim.github.from_fork(of_pool("8").run);
        assert_eq!(served(&sim, "8", of_pool("8")).await, MachineSource::Picked);
        sim.github.from_fork(of_pool("9").run);
        assert_eq!(
            served(&sim, "9", of_pool("9")).await,
            MachineSource::Created,
            "only a used machine is left"
        );
        assert_eq!(unfit(&sim, "9").await.first().map(String::as_str), Some("untrusted-code"));
        assert_eq!(
            served(&sim, "10", of_pool("10")).await,
            MachineSource::Picked,
            "the used machine"
        );
        sim.end().await;
    });
}
