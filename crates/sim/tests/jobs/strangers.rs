//! Code that is not trusted and machines that others used: neither follows the other.
//!
//! Not here: what ends a machine after its job (`machine`), or whose runner GitHub takes (`stolen`).

use std::time::Duration;

use bullpen_core::class::Usage;
use bullpen_core::ids::{ClassName, Repository};
use bullpen_core::instance::{State, Tier};
use bullpen_core::job::{JobDetails, JobStep, MachineSource, Origin, Provenance, Visibility};
use bullpen_core::ports::{Ledger, Ports};
use bullpen_core::scope::{ServedRepositories, ServiceScope};
use bullpen_sim::clock::on_virtual_time;
use bullpen_sim::stage::{self, IdleMachines};

use super::town::{Town, about, about_in};

const LONG: Duration = Duration::from_secs(30 * 60);
const SHARED: &str = "runs-on/runner=large";

/// A job to its end; how it came by its machine.
async fn served(town: &Town, job: &str, about: JobDetails) -> MachineSource {
    let fact = town.submit(job, about);
    town.say(&fact).await;
    let done = async || town.is_settled(job).await;
    assert!(town.live(job, LONG, |_| true, done).await, "{:?}", town.row(job).await);
    town.came_by(job).await.expect("it had a machine")
}

/// A public repository, and one idle machine that its own job has used.
async fn with_a_used_machine() -> Town {
    let town = Town::new(5).await.reusing();
    town.github.make_public(&Repository::new("acme/app"));
    stage::idle(&town.world, Usage::OnDemand, 1).await;
    assert_eq!(served(&town, "7", about("7")).await, MachineSource::Reused);
    town
}

/// Why idle machines were not for a job.
async fn unfit(town: &Town, job: &str) -> Vec<String> {
    let steps = town.row(job).await.steps;
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
            let town = with_a_used_machine().await;
            town.github.comes_from(about("8").run, origin);
            assert_eq!(served(&town, "8", about("8")).await, MachineSource::Created, "{origin:?}");
            assert_eq!(unfit(&town, "8").await, ["untrusted-code"]);
            assert_eq!(town.row("8").await.known.about.provenance.origin, Some(origin));
            // What it ran on has ended; the used one serves whom it may serve.
            assert_eq!(served(&town, "9", about("9")).await, MachineSource::Reused, "{origin:?}");
            assert_eq!(town.launched(), 2);
            town.end().await;
        });
    }
}

/// A fork's job may carry the same labels, and GitHub would give it the runner.
#[test]
fn a_used_machine_is_not_offered_under_labels_that_a_fork_may_carry() {
    on_virtual_time(async {
        let town = with_a_used_machine().await;
        let shared = about_in("8", "acme/app", SHARED);
        assert_eq!(served(&town, "8", shared).await, MachineSource::Created);
        assert_eq!(unfit(&town, "8").await, ["labels-not-bound"]);
        assert_eq!(served(&town, "9", about("9")).await, MachineSource::Reused);
        town.end().await;
    });
}

#[test]
fn in_a_private_repository_it_is() {
    on_virtual_time(async {
        let town = Town::new(5).await.reusing();
        stage::idle(&town.world, Usage::OnDemand, 1).await;
        for job in ["7", "8"] {
            let shared = about_in(job, "acme/app", SHARED);
            assert_eq!(served(&town, job, shared).await, MachineSource::Reused, "{job}");
        }
        town.end().await;
    });
}

/// The attack: a fork's job that no webhook tells of has been queued first, under the same labels.
/// GitHub gives it the first runner that fits.
#[test]
fn a_fork_that_takes_a_trusted_jobs_runner_finds_a_machine_that_nobody_used() {
    on_virtual_time(async {
        let town = with_a_used_machine().await;
        let hostile = about_in("8", "acme/app", SHARED);
        town.github.from_fork(hostile.run.clone());
        town.submit("8", hostile);
        let fact = town.submit("9", about_in("9", "acme/app", SHARED));
        town.say(&fact).await;
        let done = async || town.is_over("8") && town.is_settled("9").await;
        assert!(town.live("serve", LONG, |_| true, done).await, "{:?}", town.row("9").await);
        // The checker has seen each start; so has it that the stolen machine serves nobody else.
        assert_eq!(
            served(&town, "10", about("10")).await,
            MachineSource::Reused,
            "the one used before"
        );
        town.end().await;
    });
}

/// The attack: run ids are public, so a fork's job names that of a trusted job's run. It is refused, and
/// stays queued at GitHub, which gives it the runner all the same. No step of it begins there.
#[test]
pub(crate) fn a_fork_that_names_a_trusted_run_begins_nothing_on_its_machine() {
    on_virtual_time(async {
        let town = with_a_used_machine().await;
        let hostile = about_in("8", "acme/app", "runs-on=9/runner=large");
        town.github.from_fork(hostile.run.clone());
        let fact = town.submit("8", hostile);
        town.say(&fact).await;
        let fact = town.submit("9", about("9"));
        town.say(&fact).await;
        let done = async || town.is_settled("9").await;
        assert!(town.live("serve", LONG, |_| true, done).await, "{:?}", town.row("9").await);
        let ran = town.world.outside.forge().completed();
        assert_eq!(ran, 2, "those of jobs 7 and 9");
        assert_eq!(
            town.came_by("9").await,
            Some(MachineSource::Created),
            "after it lost the used one"
        );
        let idle = town.world.outside.ledger().idle_in(&ClassName::new("large")).await;
        assert_eq!(idle.expect("calm").len(), 1, "the stolen one has ended");
        town.end().await;
    });
}

/// Runners of an organisation are one for all of its repositories, public ones among them.
#[test]
fn in_a_private_repository_of_an_organisation_it_is_not() {
    on_virtual_time(async {
        let mut town = Town::new(5).await.reusing();
        town.scope = ServiceScope::of(ServedRepositories::Owner("acme".to_owned()));
        stage::idle(&town.world, Usage::OnDemand, 1).await;
        assert_eq!(
            served(&town, "7", about_in("7", "acme/app", SHARED)).await,
            MachineSource::Reused
        );
        assert_eq!(
            served(&town, "8", about_in("8", "acme/app", SHARED)).await,
            MachineSource::Created
        );
        assert_eq!(unfit(&town, "8").await, ["labels-not-bound"]);
        town.end().await;
    });
}

#[test]
fn a_job_whose_origin_nobody_says_is_served_by_a_machine_that_nobody_used() {
    on_virtual_time(async {
        let town = with_a_used_machine().await;
        town.github.set_outage(true);
        let fact = town.submit("8", about("8"));
        town.say(&fact).await;
        let runs = async || town.came_by("8").await.is_some();
        assert!(town.live("serve", LONG, |_| true, runs).await, "{:?}", town.row("8").await);
        assert_eq!(town.came_by("8").await, Some(MachineSource::Created));
        assert_eq!(unfit(&town, "8").await, ["origin-unknown"]);
        town.github.set_outage(false);
        let done = async || town.is_settled("8").await;
        assert!(town.live("end", LONG, |_| true, done).await);
        town.end().await;
    });
}

/// What a webhook said of the run is in the row with the job's first fact, and nobody asks.
#[test]
fn a_run_that_a_webhook_told_of_is_not_asked_about() {
    on_virtual_time(async {
        let town = with_a_used_machine().await;
        let (origin, visibility) = (Some(Origin::Own), Some(Visibility::Public));
        let heard = JobDetails { provenance: Provenance { origin, visibility }, ..about("8") };
        let fact = town.submit("8", heard);
        town.say(&fact).await;
        town.github.set_outage(true);
        let runs = async || town.came_by("8").await.is_some();
        assert!(town.live("serve", LONG, |_| true, runs).await, "{:?}", town.row("8").await);
        assert_eq!(town.came_by("8").await, Some(MachineSource::Reused));
        town.github.set_outage(false);
        let done = async || town.is_settled("8").await;
        assert!(town.live("end", LONG, |_| true, done).await);
        town.end().await;
    });
}

/// In a pool a released machine comes first, and not for a fork's job: that gets the hot one.
#[test]
fn a_pool_gives_a_forks_job_what_nobody_used() {
    on_virtual_time(async {
        let town = Town::new(5).await.with_pool();
        town.github.make_public(&Repository::new("acme/app"));
        let mut town = town;
        let large = town.config.runners.values_mut().next().expect("there is one");
        large.reuse = Some(bullpen_core::config::runner::Reuse::default());
        let plain = IdleMachines::plain("pooled", Usage::OnDemand, 2);
        let pooled = IdleMachines { pooled: true, ..plain };
        let machines = stage::furnish(&town.world, &pooled).await.expect("calm");
        let of_pool = |job: &str| about_in(job, "acme/app", &format!("runs-on={job}/pool=stage"));
        assert_eq!(served(&town, "7", of_pool("7")).await, MachineSource::Picked);
        let mut tiers = Vec::new();
        for machine in &machines {
            let record = town.world.outside.ledger().read(&machine.id).await.expect("calm");
            if let Some(State::Idle { tier, .. }) = record.map(|record| record.state) {
                tiers.push(tier);
            }
        }
        tiers.sort();
        assert_eq!(tiers, [Tier::Released, Tier::Hot]);
        town.github.from_fork(of_pool("8").run);
        assert_eq!(served(&town, "8", of_pool("8")).await, MachineSource::Picked);
        town.github.from_fork(of_pool("9").run);
        assert_eq!(
            served(&town, "9", of_pool("9")).await,
            MachineSource::Created,
            "one is left, and used"
        );
        assert_eq!(unfit(&town, "9").await.first().map(String::as_str), Some("untrusted-code"));
        assert_eq!(served(&town, "10", of_pool("10")).await, MachineSource::Picked, "the used one");
        town.end().await;
    });
}
