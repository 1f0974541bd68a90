//! Many jobs on GitHub's hour: whole replicas serve runs of many repositories on machines that are
//! used again, and the calls to GitHub are counted by purpose.
//!
//! Not here: faults ([`crate::kernel`]), or what must hold (the tests).

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bullpen_core::class::Usage;
use bullpen_core::config::runner::Reuse;
use bullpen_core::creation::{Ceiling, Scope};
use bullpen_core::forge_rates::{CallCounts, CallPurpose, HOUR};
use bullpen_core::ids::{ClassName, Repository, RunAttempt, TrustGroup};
use bullpen_core::job::fair::Shares;
use bullpen_core::job::{Job, JobDetails, JobState, Provenance, Setback};
use bullpen_core::limits::Limits;
use bullpen_core::ports::Ports;
use bullpen_core::scope::ServiceScope;
use bullpen_engine::jobs::observer::JobEnding;
use bullpen_engine::jobs::{self, Duties, Service, ServiceEvent, deliver};
use futures_util::future::join_all;

use crate::calm_world::{self, IdleMachines};
use crate::clock::{on_virtual_time, pass};
use crate::life::desired;
use crate::service::plan::{self, ServicePlan, WebhookOdds};
use crate::service::pools::Timeline;
use crate::service::{SimService, make_queues};
use crate::world::{CALM, Climate, World};

/// The points that GitHub allows in a minute.
const POINTS_A_MINUTE: u32 = 900;
/// Longer than any of these simulations.
const LONG: Duration = Duration::from_secs(40 * 60 * 60);
/// A job that waits for longer than this must say why.
const SHORT_WAIT: Duration = Duration::from_secs(5 * 60);

/// What to simulate.
#[derive(Clone, Copy, Debug)]
pub struct GithubsDay {
    /// How many runs there are; they come evenly.
    pub runs: u32,
    /// The jobs of one run, which come together.
    pub jobs_a_run: u32,
    /// Within which time the runs come.
    pub within: Duration,
    /// How many repositories take turns.
    pub repositories: u32,
    /// How many replicas serve.
    pub replicas: u32,
    /// The calls that GitHub allows in an hour.
    pub calls_an_hour: u64,
    /// How many machines there are.
    pub machines: u32,
    /// When a job must have a runner.
    pub deadline: Duration,
}

impl GithubsDay {
    /// A hundred thousand jobs in 24 hours: 4,167 an hour.
    pub const EVEN: Self = Self {
        runs: 10_000,
        jobs_a_run: 10,
        within: Duration::from_secs(24 * 60 * 60),
        repositories: 50,
        replicas: 2,
        calls_an_hour: 5_000,
        machines: 80,
        deadline: Duration::from_secs(60 * 60),
    };
    /// As many in eight hours: 12,500 an hour, which GitHub does not allow.
    pub const OFFICE: Self = Self {
        within: Duration::from_secs(8 * 60 * 60),
        machines: 240,
        deadline: Duration::from_secs(24 * 60 * 60),
        ..Self::EVEN
    };

    fn jobs(&self) -> u64 {
        u64::from(self.runs) * u64::from(self.jobs_a_run)
    }
}

/// What happened.
#[derive(Clone, Debug, Default)]
pub struct GithubsDayReport {
    /// The calls, by purpose.
    pub calls: CallCounts,
    /// The calls that waited for GitHub's limits, or were not made for them.
    pub postponed: BTreeMap<CallPurpose, u64>,
    /// The jobs that ran to their end.
    pub completed: u64,
    /// The jobs that the service gave up.
    pub failed: u64,
    /// How long each job waited for its runner.
    pub waits: Vec<Duration>,
    /// How often a job was set back, by reason.
    pub setbacks: BTreeMap<&'static str, u64>,
    /// Jobs that had waited for a while, at one look an hour, and the number of those whose row did
    /// not say that they wait for GitHub.
    pub waited_long: u64,
    /// See above.
    pub unexplained: u64,
    /// The time from the first job to the end of the last.
    pub took: Duration,
}

impl GithubsDayReport {
    /// The wait below which this part of the jobs waited, in thousandths.
    pub fn wait(&self, permille: usize) -> Duration {
        let mut waits = self.waits.clone();
        waits.sort_unstable();
        let index = (waits.len() * permille / 1_000).min(waits.len().saturating_sub(1));
        waits.get(index).copied().unwrap_or_default()
    }

    /// The calls of this purpose that cost something of the hour.
    pub fn paid(&self, purpose: CallPurpose) -> u64 {
        self.calls.get(&purpose).map_or(0, |count| count.sent - count.free)
    }
}

impl fmt::Display for GithubsDayReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} completed, {} failed, in {:?}", self.completed, self.failed, self.took)?;
        let waits = [500, 950, 999, 1_000].map(|part| self.wait(part));
        writeln!(f, "waits for a runner, p50, p95, p999, longest: {waits:?}")?;
        writeln!(f, "setbacks: {:?}", self.setbacks)?;
        let (long, unexplained) = (self.waited_long, self.unexplained);
        writeln!(f, "waited long at an hourly look: {long}, of them unexplained: {unexplained}")?;
        writeln!(f, "| purpose | calls | free | an hour, paid | postponed |")?;
        writeln!(f, "|---|---|---|---|---|")?;
        let hours = self.took.as_secs().max(1);
        for (purpose, count) in &self.calls {
            let paid = (count.sent - count.free) * 3_600 / hours;
            let (sent, free) = (count.sent, count.free);
            let postponed = self.postponed.get(purpose).copied().unwrap_or(0);
            writeln!(f, "| {} | {sent} | {free} | {paid} | {postponed} |", purpose.as_str())?;
        }
        Ok(())
    }
}

/// Simulates it.
pub fn run(day: GithubsDay) -> GithubsDayReport {
    on_virtual_time(simulate(day))
}

fn limits(day: GithubsDay) -> Limits {
    Limits {
        idle_released: LONG,
        age_max: LONG,
        watchdog: LONG * 2,
        uses_max: u32::MAX,
        job_deadline: day.deadline,
        job_row_ttl: HOUR,
        ..Limits::DEFAULT
    }
}

fn service_plan(day: GithubsDay) -> ServicePlan {
    let mut config = plan::base();
    if let Some(large) = config.runners.get_mut(&ClassName::new("large")) {
        large.reuse = Some(Reuse { max_uses: Some(u32::MAX), max_age: Some(LONG) });
        large.trust = Some(TrustGroup::new("acme"));
    }
    ServicePlan {
        config,
        timeline: Timeline::default(),
        shares: Shares::default(),
        scope: ServiceScope::EVERYTHING,
        repositories: (0..day.repositories)
            .map(|number| Repository::new(format!("acme/{number:02}")))
            .collect(),
        public: std::collections::BTreeSet::new(),
        replicas: u64::from(day.replicas),
        webhooks: WebhookOdds::default(),
        jobs: Vec::new(),
        is_big: false,
    }
}

async fn simulate(day: GithubsDay) -> GithubsDayReport {
    let ceilings = vec![Ceiling { scope: Scope::Stack, max: day.machines }];
    let climate = Climate { weak: false, ..CALM.clone() };
    let world = World::new(7, limits(day), ceilings, climate);
    crate::life::make_queues(&world).await;
    make_queues(&world).await;
    let idle =
        IdleMachines { lasts: LONG, ..IdleMachines::plain("idle", Usage::OnDemand, day.machines) };
    calm_world::add_machines(&world, &idle).await.expect("the world is calm");
    let forge = world.outside.forge();
    forge.limit_calls(Some(day.calls_an_hour));
    forge.limit_points(Some(POINTS_A_MINUTE));
    forge.budget(POINTS_A_MINUTE, Duration::from_secs(60));
    let (plan, report) = (service_plan(day), Mutex::new(GithubsDayReport::default()));
    let replicas = (0..day.replicas).map(|number| replica(&world, &plan, &report, number));
    let began = world.outside.clock().elapsed();
    tokio::select! {
        biased;
        () = all_over(&world, day) => {}
        _ = join_all(replicas) => {}
        never = queue(&world, &plan, day) => match never {},
        never = look_hourly(&world, &report) => match never {},
    }
    let mut report = report.into_inner().unwrap_or_else(PoisonError::into_inner);
    report.took = world.outside.clock().elapsed().saturating_sub(began);
    report.completed = forge.completed();
    (report.calls, report.postponed) = (forge.calls(), forge.postponed());
    report
}

/// Returns when every job has ended on its runner, or its author has a notice.
async fn all_over(world: &World, day: GithubsDay) {
    let ended = || {
        world.outside.forge().completed() + u64::try_from(world.jobs.notices().len()).unwrap_or(0)
    };
    while ended() < day.jobs() {
        pass(Duration::from_secs(10)).await;
    }
    // The last webhooks and releases.
    pass(Duration::from_secs(60)).await;
}

/// Queues the runs, evenly.
async fn queue(world: &World, plan: &ServicePlan, day: GithubsDay) -> Infallible {
    for run in 0..day.runs {
        let repository = &plan.repositories[(run % day.repositories) as usize];
        for job in 0..day.jobs_a_run {
            let id = format!("{}", 1_000_000 + u64::from(run) * 100 + u64::from(job));
            let about = JobDetails {
                repository: repository.clone(),
                run: RunAttempt::new(format!("{}.1", 50_000 + run)),
                name: format!("job {job}"),
                labels: vec![format!("runs-on={}/runner=large/tag={job}", 50_000 + run)],
                commit: "0a1b".to_owned(),
                created_at: None,
                provenance: Provenance::default(),
            };
            let lasts = Duration::from_secs(20 + u64::from(job));
            let fact = world.jobs.queue(&id, about, lasts, world.outside.clock().true_now());
            world.jobs.announce(fact);
        }
        if run % 100 == 0 {
            world.jobs.forget_over(HOUR / 2);
        }
        pass(day.within / day.runs).await;
    }
    std::future::pending().await
}

/// One replica, which also takes a part of the webhooks.
async fn replica(
    world: &Arc<World>,
    plan: &ServicePlan,
    report: &Mutex<GithubsDayReport>,
    number: u32,
) {
    let (wire, stack) = world.process(&format!("serve {number}"));
    let github = world.jobs.for_process(wire.clone());
    let note = |event: &ServiceEvent| {
        let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            ServiceEvent::Listens { waited, .. } => report.waits.push(*waited),
            ServiceEvent::SetBack(setback) => {
                *report.setbacks.entry(setback.code()).or_default() += 1;
            }
            ServiceEvent::Ended(JobEnding::Failed(_)) => report.failed += 1,
            _ => {}
        }
    };
    let service = Service::new(&stack, &github, plan.settings()).observed_by(&note);
    let duties = Duties { jobs: true, upkeep: true, pools: false, repositories: Vec::new() };
    let serving = async |_: &_| {
        tokio::select! {
            biased;
            () = jobs::run(&service, &duties, desired, std::future::pending()) => {}
            never = webhooks(world, &service) => match never {},
        }
    };
    world.run_on(&wire, &stack, async |stack| Box::pin(serving(stack)).await).await;
}

async fn webhooks(world: &World, service: &SimService<'_>) -> Infallible {
    loop {
        let facts = world.jobs.observe(world.stack_name(), world.outside.clock().true_now());
        let taken = facts.iter().map(|fact| deliver(service, fact, None));
        for (fact, taken) in facts.iter().zip(join_all(taken).await) {
            if taken.is_err() {
                world.jobs.announce(fact.clone());
            }
        }
        tokio::select! {
            biased;
            () = world.jobs.has_news() => {}
            () = pass(Duration::from_secs(1)) => {}
        }
    }
}

/// Counts the jobs that have waited for a while, and those of them whose row does not say why.
async fn look_hourly(world: &World, report: &Mutex<GithubsDayReport>) -> Infallible {
    loop {
        pass(HOUR).await;
        let now = world.outside.clock().true_now();
        for row in world.outside.ledger().rows() {
            let job = Job::decode(&row.body).expect("it is readable");
            let has_waited = job.known.queued_at().is_some_and(|at| now.since(at) > SHORT_WAIT);
            if !has_waited || !matches!(job.state, JobState::Waiting { .. }) {
                continue;
            }
            let last = job.setbacks.last().map(|last| &last.setback);
            let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
            report.waited_long += 1;
            report.unexplained += u64::from(last != Some(&Setback::RateLimited));
        }
    }
}
