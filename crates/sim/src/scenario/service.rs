//! The service in a scenario: its processes, GitHub's webhooks and jobs, and the jobs' outcomes.
//!
//! Not here: reading these lines (`serving`), the service in a seed's world ([`crate::service`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bullpen_core::config::extension::OnUnfulfillable;
use bullpen_core::config::runner::Reuse;
use bullpen_core::ids::{JobId, Repository, RunAttempt, TrustGroup};
use bullpen_core::job::fair::Shares;
use bullpen_core::job::{Job, JobDetails, Provenance, ReportedStatus};
use bullpen_core::ports::Ports;
use bullpen_core::scope;
use bullpen_engine::jobs::{self, Duties};
use futures_util::future::LocalBoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::Notify;

use super::expect::Unmet;
use super::names::Names;
use super::pools;
use super::processes::kill_in_time;
use super::serving::{Expected, QueueJobs, ServiceConfigured, ServingProcess, WebhookTravel};
use super::verb::Death;
use crate::checker::Checker;
use crate::clock::pass;
use crate::life::desired;
use crate::model::job_forge::SeenJob;
use crate::service::plan::{self, ServicePlan, WebhookOdds};
use crate::service::pools::Timeline;
use crate::service::{WebhookSender, make_queues, on_wire};
use crate::wire::{Planned, Wire};
use crate::world::World;

/// The owner whose jobs the service takes, and the installation that announces them.
const OWNER: &str = "octo";
const INSTALLATION: u64 = 1;
/// The repositories that the service asks GitHub about, with or without webhooks.
const REPOSITORIES: [&str; 2] = ["octo/main", "octo/other"];

/// The service of a scenario.
pub(super) struct Served {
    plan: ServicePlan,
    pub(super) pools: pools::PoolsConfigured,
    sender: Arc<WebhookSender>,
    replicas: BTreeMap<String, Replica>,
    under_way: FuturesUnordered<LocalBoxFuture<'static, String>>,
}

struct Replica {
    wire: Wire,
    stop: Arc<Notify>,
}

impl Default for Served {
    fn default() -> Self {
        let served = scope::ServedRepositories::Owner(OWNER.to_owned());
        let installations = scope::Installations::Known([INSTALLATION].into());
        let plan = ServicePlan {
            scope: scope::ServiceScope { served, installations },
            config: plan::base(),
            shares: Shares::default(),
            repositories: REPOSITORIES.map(Repository::new).into(),
            replicas: 0,
            public: BTreeSet::new(),
            webhooks: WebhookOdds::default(),
            timeline: Timeline::default(),
            jobs: Vec::new(),
            is_big: false,
        };
        Self {
            plan,
            pools: pools::PoolsConfigured::default(),
            sender: Arc::default(),
            replicas: BTreeMap::new(),
            under_way: FuturesUnordered::new(),
        }
    }
}

impl Served {
    /// Changes the configuration for processes that begin from now on.
    pub(super) fn configure(&mut self, configured: &ServiceConfigured, checker: &Checker) {
        let trust = configured.trust.as_ref().map(TrustGroup::new);
        if let Some(class) = &configured.reuse
            && let Some(runner) = self.plan.config.runners.get_mut(class)
        {
            runner.reuse = Some(Reuse::default());
            runner.trust.clone_from(&trust);
        }
        if configured.cancels {
            self.plan.config.on_unfulfillable = OnUnfulfillable::Cancel;
        }
        let shares = &mut self.plan.shares;
        shares.cap = configured.cap.unwrap_or(shares.cap);
        shares.busy = configured.busy.unwrap_or(shares.busy);
        checker.jobs_trust(trust);
    }

    /// Runs the service's processes; returns the name of a process that has ended.
    pub(super) async fn run_processes(&mut self) -> Option<String> {
        let ended = self.under_way.next().await?;
        self.replicas.remove(&ended);
        Some(ended)
    }

    /// Begins to send webhooks, if that has not begun.
    async fn begin(&mut self, world: &Arc<World>) {
        if !self.under_way.is_empty() {
            return;
        }
        make_queues(world).await;
        let (sender, world, plan) =
            (Arc::clone(&self.sender), Arc::clone(world), self.plan.clone());
        self.under_way.push(Box::pin(async move {
            let never = sender.run(&world, &plan).await;
            match never {}
        }));
    }

    /// Starts a process of the service.
    pub(super) async fn serve(
        &mut self,
        world: &Arc<World>,
        serve: &ServingProcess,
        faults: Vec<Planned>,
        process: &str,
    ) -> Result<(), String> {
        let name = serve.name.clone();
        if self.replicas.contains_key(&name) {
            return Err(format!("{name} serves already"));
        }
        self.begin(world).await;
        let (wire, stack) = world.process(process);
        for planned in faults {
            wire.plan(planned);
        }
        let mut dies_after = None;
        match &serve.death {
            None => {}
            Some(Death::Await(awaits)) => wire.die_after(*awaits),
            Some(Death::Call(planned)) => wire.plan(planned.clone()),
            Some(Death::After(after)) => dies_after = Some(*after),
        }
        let stop = Arc::new(Notify::new());
        let replica = Replica { wire: wire.clone(), stop: Arc::clone(&stop) };
        self.replicas.insert(name.clone(), replica);
        let (world, pools) = (Arc::clone(world), self.pools.clone());
        let plan = pools.over(&self.plan);
        let repositories = plan.repositories.clone();
        self.under_way.push(Box::pin(async move {
            let duties = Duties { jobs: true, upkeep: true, pools: true, repositories };
            let runs = on_wire(&world, &plan, &wire, &stack, async |service| {
                tokio::select! {
                    biased;
                    () = jobs::run(service, &duties, desired, stop.notified()) => {}
                    never = pools.follow(&plan, service) => match never {},
                }
            });
            tokio::select! {
                biased;
                _ = runs => {}
                never = kill_in_time(&wire, dies_after) => match never {},
            }
            name
        }));
        Ok(())
    }

    /// Kills a process.
    pub(super) fn kill(&self, name: &str) -> Result<(), String> {
        self.replica(name)?.wire.kill();
        Ok(())
    }

    /// Pauses a process for this long.
    pub(super) fn pause(&self, name: &str, length: Duration) -> Result<(), String> {
        self.replica(name)?.wire.pause(length);
        Ok(())
    }

    /// Tells a process to drain.
    pub(super) fn drain(&self, name: &str) -> Result<(), String> {
        self.replica(name)?.stop.notify_one();
        Ok(())
    }

    fn replica(&self, name: &str) -> Result<&Replica, String> {
        self.replicas.get(name).ok_or_else(|| format!("{name} does not serve"))
    }

    /// Whether a process of this name runs.
    pub(super) fn serves(&self, name: &str) -> bool {
        self.replicas.contains_key(name)
    }

    /// Sets the webhook faults from now on.
    pub(super) fn webhooks(&self, world: &World, way: WebhookTravel) {
        let always = 1_000;
        let odds = match way {
            WebhookTravel::Well | WebhookTravel::Kept | WebhookTravel::Backwards => {
                WebhookOdds::default()
            }
            WebhookTravel::Lost => WebhookOdds { lost: always, ..WebhookOdds::default() },
            WebhookTravel::Unsent => WebhookOdds { unsent: always, ..WebhookOdds::default() },
            WebhookTravel::Twice => WebhookOdds { twice: always, ..WebhookOdds::default() },
            WebhookTravel::Late(late_max) => {
                WebhookOdds { late: always, late_max, ..WebhookOdds::default() }
            }
        };
        self.sender.set_odds(odds);
        match way {
            WebhookTravel::Kept => self.sender.hold(),
            WebhookTravel::Backwards => self.sender.send_held_backwards(world),
            WebhookTravel::Well
            | WebhookTravel::Lost
            | WebhookTravel::Unsent
            | WebhookTravel::Twice
            | WebhookTravel::Late(_) => {}
        }
    }

    /// Lets GitHub queue jobs.
    pub(super) async fn queue(&mut self, world: &Arc<World>, queue: &QueueJobs) {
        self.begin(world).await;
        let now = world.outside.clock().true_now();
        let repository = Repository::new(&queue.repository);
        for id in queue.jobs.ids() {
            let run = RunAttempt::new(queue.run.clone().unwrap_or_else(|| format!("{id}.1")));
            if queue.is_public {
                world.jobs.make_public(&repository);
            }
            world.jobs.comes_from(run.clone(), queue.origin);
            let about = JobDetails {
                repository: repository.clone(),
                labels: queue.labels(&run, &id),
                run,
                name: format!("job {id}"),
                commit: "0a1b".to_owned(),
                created_at: None,
                provenance: Provenance::default(),
            };
            let installation = queue.installation.unwrap_or(INSTALLATION);
            world.jobs.set_installation(id.clone(), installation);
            let fact = world.jobs.queue(id.as_str(), about, queue.lasts, now);
            world.jobs.announce(fact);
        }
    }
}

/// The outcome of a job, in a word and at length.
fn outcome(world: &World, seen: &SeenJob) -> (&'static str, String) {
    let state = match &seen.said {
        _ if seen.has_notice => "told",
        ReportedStatus::Held | ReportedStatus::Queued { .. } => "waiting",
        ReportedStatus::Started { .. } => "running",
        ReportedStatus::Completed { conclusion, .. } => match conclusion.as_str() {
            "success" => "completed",
            "cancelled" => "cancelled",
            _ => "failed",
        },
    };
    let notice = world.jobs.notices().into_iter().find(|notice| notice.job == seen.job);
    let at_length = match (notice, &seen.began) {
        (Some(notice), _) => format!("told: {}", notice.reason),
        (None, Some((_, machine))) => {
            format!("{state} on {}", Names::of(world).list(std::slice::from_ref(machine)))
        }
        (None, None) => state.to_owned(),
    };
    (state, at_length)
}

/// The setbacks of a job, from its row.
fn setbacks(world: &World, id: &JobId) -> Vec<String> {
    let rows = world.outside.ledger().rows();
    let row = rows.iter().find(|row| row.job == *id).and_then(|row| Job::decode(&row.body).ok());
    let setbacks = row.map(|job| job.setbacks).unwrap_or_default();
    setbacks.iter().map(|setback| setback.setback.code().to_owned()).collect()
}

fn find(world: &World, id: &JobId) -> Result<SeenJob, String> {
    let seen = world.jobs.seen().into_iter().find(|seen| seen.job == *id);
    seen.ok_or_else(|| format!("there is no job {id}"))
}

/// The outcomes of jobs; several jobs are counted in one line.
pub(super) fn outcomes(world: &World, ids: &[JobId]) -> Result<Vec<String>, String> {
    if let [id] = ids {
        return Ok(vec![outcome(world, &find(world, id)?).1]);
    }
    let mut counts: BTreeMap<&'static str, u32> = BTreeMap::new();
    for id in ids {
        *counts.entry(outcome(world, &find(world, id)?).0).or_default() += 1;
    }
    let parts: Vec<String> =
        counts.iter().map(|(state, count)| format!("{count} {state}")).collect();
    Ok(vec![parts.join(", ")])
}

/// Compares the outcomes of jobs with the expected ones.
pub(super) fn compare(world: &World, expected: &Expected) -> Result<(), Unmet> {
    for id in expected.jobs.ids() {
        let seen = find(world, &id).map_err(Unmet)?;
        let (state, at_length) = outcome(world, &seen);
        if expected.is.is_some_and(|is| is != state) {
            let is = expected.is.unwrap_or_default();
            return Err(Unmet(format!("expected job {id} to be {is}, and it is {at_length}")));
        }
        if let Some(text) = &expected.because
            && !at_length.contains(text.as_str())
        {
            return Err(Unmet(format!("expected of job {id} {text:?}, found {at_length:?}")));
        }
        if let Some(code) = &expected.after
            && !setbacks(world, &id).contains(code)
        {
            let found = setbacks(world, &id).join(", ");
            return Err(Unmet(format!("expected job {id} to be set back by {code}: {found:?}")));
        }
        let waited = seen.began.as_ref().map(|(began, _)| began.since(seen.queued));
        if let Some(within) = expected.within
            && waited.is_none_or(|waited| waited > within)
        {
            let waited = waited.unwrap_or(Duration::MAX);
            return Err(Unmet(format!("expected job {id} to begin in {within:?}: {waited:?}")));
        }
    }
    Ok(())
}

/// Waits until jobs are over, or their authors were told that they cannot be served.
pub(super) async fn over(world: &World, ids: &[JobId], within: Duration) -> Result<(), String> {
    let until = world.outside.clock().elapsed() + within;
    for id in ids {
        while !world.jobs.is_over(id) {
            if world.outside.clock().elapsed() > until {
                let is = outcome(world, &find(world, id)?).1;
                return Err(format!("job {id} is still {is} after {within:?}"));
            }
            pass(Duration::from_secs(1)).await;
        }
    }
    Ok(())
}
