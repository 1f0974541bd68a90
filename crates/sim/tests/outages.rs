//! Long outages: a pool of twenty hot machines and fifty jobs, and for minutes one service is gone.
//! Every job runs, and an outage costs at most two healthy machines. Prints what each outage cost.
//!
//! Not here: outages among all other troubles (`seeds`), or one trouble each (`scenarios`).

#![expect(clippy::print_stdout, reason = "the costs are reported in docs/simulation.md")]

mod side_by_side;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bullpen_core::config::runs_on;
use bullpen_core::ids::{JobId, PoolName, Repository, RunAttempt};
use bullpen_core::instance::{EndReason, State};
use bullpen_core::job::fair::Shares;
use bullpen_core::job::{JobDetails, Origin, Provenance, ReportedStatus, Visibility};
use bullpen_core::ports::Ports;
use bullpen_core::scope::ServiceScope;
use bullpen_engine::jobs::{self, Duties};
use bullpen_sim::calm_world;
use bullpen_sim::checker::Checker;
use bullpen_sim::clock::{on_virtual_time, pass};
use bullpen_sim::life::desired;
use bullpen_sim::service::plan::{ServicePlan, WebhookOdds};
use bullpen_sim::service::pools::Timeline;
use bullpen_sim::service::{WebhookSender, make_queues, on_wire};
use bullpen_sim::storms::{
    DYNAMODB, EC2, EVERYTHING, GITHUB, MAILBOX, Party, SQS, Storm, StormKind,
};
use bullpen_sim::world::World;
use futures_util::future::join_all;

use side_by_side::side_by_side;

/// The pool's hot machines.
const HOT: usize = 20;
const JOBS: u64 = 50;
const REPLICAS: u64 = 2;
/// How long each job runs.
const LASTS: Duration = Duration::from_secs(60);
/// How long jobs arrive, so that some wait when an outage begins.
const ARRIVALS: Duration = Duration::from_secs(600);
/// When the outage begins, after the first job.
const BEGINS: Duration = Duration::from_secs(20);
/// How many healthy machines one outage may cost.
const ENDED_MAX: u64 = 2;
/// No job may take longer than this.
const OVER_WITHIN: Duration = Duration::from_secs(3_600);

const RUNS_ON: &str = "
runners: {large: {cpu: 2, ram: 4}}
pools:
  ci:
    runner: large
    schedule: [{name: always, hot: 20, stopped: 0}]
x-bullpen: {pools: {ci: {hot-lifetime: 16h}}}
";

/// One outage.
#[derive(Clone)]
struct Outage {
    name: &'static str,
    lasts: Duration,
    storm: Option<Storm>,
    /// How many healthy machines it may cost.
    ended_max: u64,
}

fn outages() -> Vec<Outage> {
    let gone = |ports| Some(Storm::everywhere(StormKind::Gone, ports));
    let slow = |ports| Some(Storm::everywhere(StormKind::Slow, ports));
    let throttling = |ports| Some(Storm::everywhere(StormKind::Throttling, ports));
    let place = |place: &str| Some(place.to_owned());
    let replica =
        Storm { place: place("serve 1"), ..Storm::everywhere(StormKind::Gone, EVERYTHING) };
    let (short, long) = (Duration::from_secs(120), Duration::from_secs(600));
    let agents = Storm { party: Some(Party::Agent), ..Storm::everywhere(StormKind::Gone, MAILBOX) };
    let zone = Storm { place: place("zone-a"), ..agents.clone() };
    let of = |name, lasts, storm| Outage { name, lasts, storm, ended_max: ENDED_MAX };
    vec![
        of("none", Duration::ZERO, None),
        of("mailboxes, to agents", short, Some(agents.clone())),
        of("mailboxes, to agents", long, Some(agents)),
        of("mailboxes, to all", short, gone(MAILBOX)),
        of("GitHub", long, gone(GITHUB)),
        of("SQS", long, gone(SQS)),
        of("DynamoDB", long, gone(DYNAMODB)),
        of("EC2", long, gone(EC2)),
        of("GitHub slow", long, slow(GITHUB)),
        of("SQS slow", long, slow(SQS)),
        // Agents need several calls to obey an order, and are late with the last.
        Outage { ended_max: HOT as u64, ..of("DynamoDB slow", long, slow(DYNAMODB)) },
        of("EC2 slow", long, slow(EC2)),
        of("GitHub throttling", long, throttling(GITHUB)),
        of("SQS throttling", long, throttling(SQS)),
        of("DynamoDB throttling", long, throttling(DYNAMODB)),
        of("EC2 throttling", long, throttling(EC2)),
        of("everything, to one of two processes", long, Some(replica)),
        of("mailboxes, to a zone's agents", long, Some(zone)),
    ]
}

/// What an outage cost.
#[derive(Debug, Default)]
struct Cost {
    /// How long each job waited until it began; none if it never did.
    waits: BTreeMap<JobId, Option<Duration>>,
    /// Machines that ended although nothing was wrong with them, by reason.
    ended: BTreeMap<EndReason, u64>,
    launches: usize,
    violation: Option<String>,
}

fn plan() -> ServicePlan {
    let read = runs_on::read(RUNS_ON.as_bytes());
    ServicePlan {
        config: read.value().expect("the constant is a good configuration").clone(),
        timeline: Timeline::default(),
        shares: Shares::default(),
        scope: ServiceScope::EVERYTHING,
        repositories: vec![Repository::new("octo/main")],
        public: BTreeSet::new(),
        replicas: REPLICAS,
        webhooks: WebhookOdds::default(),
        jobs: Vec::new(),
        is_big: false,
    }
}

/// GitHub queues a job every twelve seconds, the first ten at once.
async fn queue(world: &World) {
    let clock = world.outside.clock();
    let began = clock.elapsed();
    for number in 0..JOBS {
        let at = ARRIVALS * u32::try_from(number.saturating_sub(10)).unwrap_or(0) / 40;
        pass((began + at).saturating_sub(clock.elapsed())).await;
        let about = JobDetails {
            repository: Repository::new("octo/main"),
            run: RunAttempt::new(format!("{}.1", 70 + number)),
            name: format!("job {number}"),
            labels: vec![format!("runs-on={}-{number}/pool=ci", 70 + number)],
            commit: "0a1b".to_owned(),
            created_at: None,
            provenance: Provenance {
                origin: Some(Origin::Own),
                visibility: Some(Visibility::Private),
            },
        };
        let id = (900_000 + number).to_string();
        let fact = world.jobs.queue(&id, about, LASTS, clock.true_now());
        world.jobs.announce(fact);
    }
}

async fn outage(world: &World, outage: &Outage) {
    pass(BEGINS).await;
    let Some(storm) = &outage.storm else { return };
    // Listeners do not reach GitHub either, and it gives no jobs.
    let is_github = storm.ports == GITHUB && storm.kind == StormKind::Gone;
    world.outside.forge().set_outage(is_github);
    let id = world.begin_storm(storm.clone());
    pass(outage.lasts).await;
    world.end_storm(id);
    world.outside.forge().set_outage(false);
}

async fn replica(world: &Arc<World>, plan: &ServicePlan, number: u64) -> Infallible {
    let duties =
        Duties { jobs: true, upkeep: true, pools: true, repositories: plan.repositories.clone() };
    let (wire, stack) = world.process(&format!("serve {number}.1"));
    on_wire(world, plan, &wire, &stack, async |service| {
        jobs::run(service, &duties, desired, std::future::pending()).await;
    })
    .await;
    std::future::pending().await
}

async fn all_hot(world: &World) {
    let is_hot = |state: &State| matches!(state, State::Idle { .. });
    loop {
        let (records, _) = world.outside.ledger().snapshot();
        if records.iter().filter(|record| is_hot(&record.state)).count() >= HOT {
            return;
        }
        pass(Duration::from_secs(1)).await;
    }
}

async fn all_over(world: &World, jobs: u64) {
    let is_over = |said: &ReportedStatus| matches!(said, ReportedStatus::Completed { .. });
    let seen = || world.jobs.seen();
    while seen().iter().filter(|job| is_over(&job.said) || job.has_notice).count() as u64 != jobs {
        pass(Duration::from_secs(1)).await;
    }
}

/// Whether a machine of a pool ends like this without any fault: it served its job, or there are
/// more than wanted.
fn is_usual(why: EndReason) -> bool {
    matches!(
        why,
        EndReason::WornOut | EndReason::Outdated | EndReason::Untrusted | EndReason::Surplus
    )
}

fn cost_of(what: &Outage) -> Cost {
    on_virtual_time(async {
        let world = calm_world::new(7, 100).await;
        let plan = plan();
        make_queues(&world).await;
        let checker = Checker::watch(&world, false);
        let sender = WebhookSender::default();
        let before = std::cell::Cell::new(0);
        let story = async {
            all_hot(&world).await;
            before.set(world.outside.fleet().snapshot().len());
            tokio::select! {
                biased;
                _ = async { tokio::join!(queue(&world), outage(&world, what), all_over(&world, JOBS)) } => {}
                () = pass(OVER_WITHIN) => {}
            }
            // What the outage left behind ends within this time.
            pass(Duration::from_secs(900)).await;
        };
        tokio::select! {
            biased;
            () = story => {}
            () = checker.violated() => {}
            never = sender.run(&world, &plan) => match never {},
            _ = join_all((1..=plan.replicas).map(|number| replica(&world, &plan, number))) => {}
        }
        checker.look(&world);
        cost(&world, &checker, before.get())
    })
}

fn cost(world: &World, checker: &Checker, before: usize) -> Cost {
    let wait = |job: &bullpen_sim::model::job_forge::SeenJob| {
        let is_done = matches!(&job.said, ReportedStatus::Completed { conclusion, .. } if conclusion.as_str() == "success");
        let began = job.began.as_ref().filter(|_| is_done);
        (job.job.clone(), began.map(|(began, _)| began.since(job.queued)))
    };
    let of_pool = world.outside.fleet().snapshot().into_iter();
    let pool = PoolName::new("ci");
    let launches = of_pool.filter(|machine| machine.pool.as_ref() == Some(&pool)).count();
    Cost {
        waits: world.jobs.seen().iter().map(wait).collect(),
        ended: checker.ended().into_iter().filter(|(why, _)| !is_usual(*why)).collect(),
        launches: launches.saturating_sub(before),
        violation: checker
            .verdict()
            .map(|(violation, history)| format!("{violation}\n  {}", history.join("\n  "))),
    }
}

/// How much longer each job waited than without the outage, the least first.
fn extra(cost: &Cost, calm: &Cost) -> Vec<Duration> {
    let mut extra: Vec<Duration> = cost
        .waits
        .iter()
        .map(|(job, waited)| {
            let usual = calm.waits.get(job).copied().flatten().unwrap_or_default();
            waited.unwrap_or(OVER_WITHIN).saturating_sub(usual)
        })
        .collect();
    extra.sort_unstable();
    extra
}

#[test]
fn an_outage_of_minutes_costs_time_and_hardly_a_machine() {
    let outages = outages();
    let costs = Mutex::new(BTreeMap::new());
    side_by_side(&outages, |outage| {
        let cost = cost_of(outage);
        costs.lock().unwrap().insert((outage.name, outage.lasts), cost);
    });
    let costs = costs.into_inner().unwrap();
    let calm = &costs[&("none", Duration::ZERO)];
    let mut wrong = Vec::new();
    println!("| gone | for | jobs that ran | extra wait p50 | most | machines ended | launches |");
    println!("|---|---|---|---|---|---|---|");
    for Outage { name, lasts, ended_max, .. } in &outages {
        let cost = &costs[&(*name, *lasts)];
        let extra = extra(cost, calm);
        let ran = cost.waits.values().filter(|waited| waited.is_some()).count();
        let (half, most) =
            (extra[extra.len() / 2].as_secs_f64(), extra[extra.len() - 1].as_secs_f64());
        let ended: u64 = cost.ended.values().sum();
        println!(
            "| {name} | {} min | {ran} | {half:.1} s | {most:.1} s | {ended} | {} |",
            lasts.as_secs() / 60,
            cost.launches,
        );
        if ran as u64 != JOBS || ended > *ended_max || cost.violation.is_some() {
            let violation = cost.violation.as_deref().unwrap_or("nothing");
            wrong.push(format!(
                "{name}: {ran} jobs ran, machines ended: {:?}, violated: {violation}",
                cost.ended
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
