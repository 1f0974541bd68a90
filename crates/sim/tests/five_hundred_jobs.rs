//! Five hundred jobs come at once, with five hundred idle machines of their class: the time until
//! all have one, and the calls. Simulated time and counted calls, never durations of this machine.
//!
//! Not here: jobs under faults (`tests/jobs/storm.rs`).

#![expect(clippy::print_stdout, reason = "the counts are reported in docs/simulation.md")]

use std::collections::BTreeSet;
use std::time::Duration;

use bullpen_core::class::Usage;
use bullpen_core::config::runner::Reuse;
use bullpen_core::ids::{ClassName, Repository, RunAttempt, TrustGroup};
use bullpen_core::job::fair::Shares;
use bullpen_core::job::{
    Job, JobDetails, JobFact, JobState, JobStep, MachineSource, Origin, Provenance, Visibility,
};
use bullpen_core::ports::Ports;
use bullpen_core::scope::ServiceScope;
use bullpen_engine::jobs::{self, Duties, ingest};
use bullpen_sim::calm_world::{self, IdleMachines};
use bullpen_sim::clock::{on_virtual_time, pass};
use bullpen_sim::life::desired;
use bullpen_sim::service::plan::{self, ServicePlan, WebhookOdds};
use bullpen_sim::service::pools::Timeline;
use bullpen_sim::service::{WebhookSender, make_queues, on_wire};
use bullpen_sim::wire::Calls;
use bullpen_sim::world::World;
use futures_util::future::join_all;

const JOBS: u32 = 500;
/// The points that GitHub allows in a minute.
const POINTS_A_MINUTE: u32 = 900;
/// The points that a minted runner costs.
const POINTS_MINTED: u32 = 5;
/// How long a process that keeps to the limit counts spent points.
const POINTS_WINDOW: Duration = Duration::from_secs(75);

struct Cost {
    took: Duration,
    calls: Calls,
    refused: u64,
    reused: usize,
    launched: usize,
}

fn plan() -> ServicePlan {
    let mut config = plan::base();
    if let Some(large) = config.runners.get_mut(&ClassName::new("large")) {
        large.reuse = Some(Reuse::default());
        large.trust = Some(TrustGroup::new("acme"));
    }
    let repositories = ["acme/one", "acme/two", "acme/three"].map(Repository::new).into();
    let (shares, webhooks) = (Shares::default(), WebhookOdds::default());
    let timeline = Timeline::default();
    let public = BTreeSet::new();
    let scope = ServiceScope::EVERYTHING;
    ServicePlan {
        config,
        timeline,
        shares,
        scope,
        repositories,
        public,
        replicas: 1,
        webhooks,
        jobs: Vec::new(),
        is_big: false,
    }
}

fn queue(world: &World, plan: &ServicePlan) -> Vec<JobFact> {
    let now = world.outside.clock().true_now();
    let of = plan.repositories.iter().cycle().zip(0..JOBS);
    let facts = of.map(|(repository, number)| {
        let id = (900_000 + number).to_string();
        let about = JobDetails {
            repository: repository.clone(),
            run: RunAttempt::new(format!("{number}.1")),
            name: format!("job {id}"),
            labels: vec![format!("runs-on={number}/runner=large")],
            commit: "0a1b".to_owned(),
            created_at: None,
            // As in the runs' `workflow_run` webhooks: otherwise each run costs a call to GitHub.
            provenance: Provenance {
                origin: Some(Origin::Own),
                visibility: Some(Visibility::Private),
            },
        };
        world.jobs.queue(&id, about, Duration::from_secs(3_600), now)
    });
    facts.collect()
}

fn rows(world: &World) -> Vec<Job> {
    let rows = world.outside.ledger().rows().into_iter();
    rows.map(|row| Job::decode(&row.body).expect("it is readable")).collect()
}

/// One process takes five hundred webhooks and serves them.
fn burst(limited: bool) -> Cost {
    on_virtual_time(async {
        let world = calm_world::new(7, JOBS + 100).await;
        let plan = plan();
        make_queues(&world).await;
        let idle = IdleMachines {
            lasts: Duration::from_secs(3_600),
            ..IdleMachines::plain("idle", Usage::OnDemand, JOBS)
        };
        calm_world::add_machines(&world, &idle).await.expect("the world is calm");
        if limited {
            world.outside.forge().limit_points(Some(POINTS_A_MINUTE));
            world.outside.forge().budget(POINTS_A_MINUTE, POINTS_WINDOW);
        }
        let facts = queue(&world, &plan);
        let before = world.outside.fleet().snapshot().len();
        let (wire, stack) = world.process("serve");
        let began = world.outside.clock().elapsed();
        let all_have_one = async {
            let has_one = |job: &Job| matches!(job.state, JobState::Assigned { .. });
            while rows(&world).iter().filter(|job| has_one(job)).count() < JOBS as usize {
                pass(Duration::from_millis(100)).await;
            }
            world.outside.clock().elapsed().saturating_sub(began)
        };
        let duties = Duties { jobs: true, upkeep: false, pools: false, repositories: Vec::new() };
        let took = on_wire(&world, &plan, &wire, &stack, async |service| {
            let webhooks = async {
                for ingested in join_all(facts.iter().map(|fact| ingest(service, fact))).await {
                    ingested.expect("the world is calm");
                }
                std::future::pending::<()>().await;
            };
            let sender = WebhookSender::default();
            tokio::select! {
                biased;
                took = all_have_one => took,
                () = webhooks => Duration::MAX,
                never = sender.run(&world, &plan) => match never {},
                () = jobs::run(service, &duties, desired, pass(Duration::from_secs(3_600))) => {
                    Duration::MAX
                }
            }
        });
        let took = took.await.expect("it has no fuse");
        let is_reused = |job: &&Job| {
            let mut steps = job.steps.iter().map(|step| &step.step);
            steps.any(|step| matches!(step, JobStep::Assigned { how: MachineSource::Reused, .. }))
        };
        let reused = rows(&world).iter().filter(is_reused).count();
        Cost {
            took,
            reused,
            calls: wire.calls(),
            refused: wire.counts().happened.get("GitHub's limit reached").copied().unwrap_or(0),
            launched: world.outside.fleet().snapshot().len() - before,
        }
    })
}

/// Prints the cost, and checks what must hold with and without GitHub's limits.
fn costs(what: &str, cost: &Cost) {
    let Cost { took, calls, refused, reused, launched } = cost;
    println!("{what}: all have a machine after {took:?}; {refused} calls refused");
    println!("| port | calls | a job |");
    println!("|---|---|---|");
    for (port, count) in calls {
        println!("| {port} | {count} | {}.{:02} |", count / 500, count % 500 / 5);
    }
    assert_eq!((*reused, *launched), (500, 0), "every job must reuse an idle machine");
    assert_eq!(*refused, 0, "GitHub refused calls");
    assert_eq!(calls.get("fleet"), None, "an idle machine needs no call to the cloud");
}

/// The most calls that a port may get for five hundred jobs.
fn at_most(cost: &Cost, port: &str, most: u64) {
    let calls = cost.calls.get(port).copied().unwrap_or(0);
    assert!(calls <= most, "{port}: {calls} calls, more than {most}");
}

#[test]
fn five_hundred_jobs_have_a_machine_within_ten_seconds() {
    let cost = burst(false);
    costs("without GitHub's limits", &cost);
    assert!(cost.took <= Duration::from_secs(10), "it took {:?}", cost.took);
    // One credential for each job, and no other call of the port.
    at_most(&cost, "forge", 500);
    // One search: a list of lost webhooks, and each repository's unfinished runs.
    at_most(&cost, "job-forge", 1 + 3);
    at_most(&cost, "ledger", 14 * 500);
    at_most(&cost, "mailbox", 10 * 500);
    at_most(&cost, "queues", 8 * 500);
}

/// Every runner costs five points, and GitHub allows nine hundred in a minute.
#[test]
fn five_hundred_jobs_stay_within_githubs_limits() {
    let cost = burst(true);
    costs("with GitHub's limits", &cost);
    let windows = (JOBS * POINTS_MINTED).div_ceil(POINTS_A_MINUTE) - 1;
    let allowed = POINTS_WINDOW * windows;
    // A worker without a turn tries again a quarter of a minute later.
    let late = Duration::from_secs(60);
    assert!(cost.took >= allowed, "it took {:?}, less than {allowed:?}", cost.took);
    assert!(cost.took <= allowed + late, "it took {:?}, more than {allowed:?}", cost.took);
}
