//! A world with a GitHub and processes of the service, which serve its jobs.
//!
//! Not here: the expectations (the other modules).

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bullpen_core::class::{Usage, VcpuRange};
use bullpen_core::config::runner::{MemoryRange, Reuse, RunnerConfig};
use bullpen_core::config::runs_on::Config;
use bullpen_core::ids::{ClassName, JobId, Repository, RunAttempt};
use bullpen_core::job::{
    Job, JobDetails, JobFact, JobState, JobStep, MachineSource, Provenance, ReportedStatus,
};
use bullpen_core::ports::{Ledger, Ports};
use bullpen_core::scope::ServiceScope;
use bullpen_engine::jobs::{
    JobSettings, Service, ensure_queues, ingest, launch_worker, pool_worker, process, sweep,
};
use bullpen_sim::calm_world;
use bullpen_sim::checker::Checker;
use bullpen_sim::clock::pass;
use bullpen_sim::life::keep_up_beside;
use bullpen_sim::model::JobForgeModel;
use bullpen_sim::wire::Wire;
use bullpen_sim::world::{SimPorts, World};

/// The runtime of every job.
pub(crate) const LASTS: Duration = Duration::from_secs(60);

pub(crate) type SimService<'a> = Service<'a, SimPorts, JobForgeModel>;

pub(crate) struct ServiceWorld {
    pub(crate) world: Arc<World>,
    pub(crate) checker: Checker,
    pub(crate) github: JobForgeModel,
    pub(crate) config: Config,
    pub(crate) scope: ServiceScope,
}

impl ServiceWorld {
    /// A calm world with capacity for this many machines, class `large`, and no pools.
    pub(crate) async fn new(machines_max: u32) -> Self {
        Self::in_world(calm_world::new(7, machines_max).await).await
    }

    /// Serves jobs in this world.
    pub(crate) async fn in_world(world: Arc<World>) -> Self {
        let checker = Checker::watch(&world, false);
        let github = JobForgeModel::new(Wire::calm(), world.outside.forge().clone());
        let (_, stack) = world.process("town");
        while ensure_queues(&stack).await.is_err() {}
        Self { world, checker, github, config: config(false), scope: ServiceScope::EVERYTHING }
    }

    /// Configures reuse: machines of class `large` serve more than one job.
    pub(crate) fn reusing(self) -> Self {
        Self { config: config(true), ..self }
    }

    /// Configures the standby pool `stage` of machines of class `large`.
    pub(crate) fn with_pool(self) -> Self {
        let text = "runners:\n  large:\n    cpu: 2\n    ram: 4\npools:\n  stage:\n    runner: large\n\
                    \x20   schedule:\n      - {name: always, hot: 1, stopped: 0}\n";
        let config = bullpen_core::config::runs_on::read(text.as_bytes());
        let config = config.value().expect("it is a good configuration").clone();
        Self { config, ..self }
    }

    pub(crate) fn settings(&self) -> JobSettings {
        JobSettings::new("production", "eu-west-1", Some(self.config.clone()))
            .within(self.scope.clone())
    }

    /// Runs `body` in one process of the service; `None` if the process dies first.
    pub(crate) async fn process<T>(
        &self,
        name: &str,
        fuse: Option<u64>,
        body: impl AsyncFnOnce(&SimService<'_>) -> T,
    ) -> Option<T> {
        let (wire, stack) = self.world.process(name);
        let github = self.github.for_process(wire.clone());
        if let Some(awaits) = fuse {
            wire.die_after(awaits);
        }
        let service = Service::new(&stack, &github, self.settings());
        tokio::select! {
            biased;
            () = wire.died() => None,
            // Boxed: whole services run in here.
            ended = Box::pin(body(&service)) => Some(ended),
        }
    }

    /// GitHub queues a job with its own label, and sends the webhook.
    pub(crate) async fn queue(&self, job: &str) -> JobFact {
        let fact = self.submit(job, about(job));
        self.deliver(&fact).await;
        fact
    }

    /// GitHub queues a job without a webhook.
    pub(crate) fn submit(&self, job: &str, about: JobDetails) -> JobFact {
        self.github.queue(job, about, LASTS, self.world.outside.clock().true_now())
    }

    /// Delivers a webhook once; the world must be calm.
    pub(crate) async fn deliver(&self, fact: &JobFact) {
        self.process(&format!("webhook {}", fact.job), None, async |service| {
            ingest(service, fact).await.expect("calm")
        })
        .await;
    }

    /// The source of the job's last machine.
    pub(crate) async fn machine_source(&self, job: &str) -> Option<MachineSource> {
        let steps = self.row(job).await.steps;
        steps.iter().rev().find_map(|step| match step.step {
            JobStep::Assigned { how, .. } => Some(how),
            _ => None,
        })
    }

    pub(crate) async fn row(&self, job: &str) -> Job {
        let row = self.world.outside.ledger().row(&JobId::new(job)).await.expect("calm");
        Job::decode(&row.expect("it has a row").body).expect("it is readable")
    }

    /// The number of machines launched so far.
    pub(crate) fn launched(&self) -> usize {
        self.world.outside.fleet().snapshot().len()
    }

    /// Whether the row has ended, with all its debts worked off.
    pub(crate) async fn is_settled(&self, job: &str) -> bool {
        let state = self.row(job).await.state;
        matches!(state, JobState::Ended { debts, .. } if debts.is_settled())
    }

    /// The same of both jobs of [`two_jobs`].
    pub(crate) async fn both_settled(&self) -> bool {
        self.is_settled("7").await && self.is_settled("8").await
    }

    /// Whether GitHub says that this job is over.
    pub(crate) fn is_over(&self, job: &str) -> bool {
        matches!(self.github.said(job), Some(ReportedStatus::Completed { .. }))
    }

    /// Runs the service until `done`; false if that takes longer than `within`. A webhook is lost
    /// if `takes` is false for it.
    pub(crate) async fn serve_until(
        &self,
        name: &str,
        within: Duration,
        takes: impl Fn(&JobFact) -> bool,
        done: impl AsyncFn() -> bool,
    ) -> bool {
        self.serve_with_fuse(name, None, within, takes, done).await.expect("it has no fuse")
    }

    /// The same in a process that dies at its await number `fuse`; `None` if it died.
    pub(crate) async fn serve_with_fuse(
        &self,
        name: &str,
        fuse: Option<u64>,
        within: Duration,
        takes: impl Fn(&JobFact) -> bool,
        done: impl AsyncFn() -> bool,
    ) -> Option<bool> {
        let upkeep = format!("upkeep of {name}");
        let served = self.process(name, fuse, async |service| {
            tokio::select! {
                biased;
                () = until(done) => true,
                () = pass(within) => false,
                never = self.webhooks(service, takes) => match never {},
                never = work(service) => match never {},
                never = look(service) => match never {},
                never = keep_up_beside(&self.world, &upkeep) => match never {},
            }
        });
        served.await
    }

    async fn webhooks(
        &self,
        service: &SimService<'_>,
        takes: impl Fn(&JobFact) -> bool,
    ) -> Infallible {
        loop {
            pass(Duration::from_millis(200)).await;
            let now = self.world.outside.clock().true_now();
            let mut facts = self.github.observe(&service.stack.name, now);
            facts.extend(self.github.take_redelivered());
            for fact in facts.iter().filter(|fact| takes(fact)) {
                // A webhook that fails is lost; the sweep asks GitHub.
                let _ = ingest(service, fact).await;
            }
        }
    }

    /// Sends a webhook every minute until the service takes it.
    pub(crate) async fn deliver_until_taken(&self, fact: &JobFact) {
        let mut tries = 0;
        loop {
            tries += 1;
            let name = format!("webhook {} {tries}", fact.job);
            let taken = self.process(&name, None, async |service| ingest(service, fact).await);
            if let Some(Ok(_)) = taken.await {
                return;
            }
            pass(Duration::from_secs(60)).await;
        }
    }

    /// Ends the world: it must become quiet, without a violation.
    pub(crate) async fn end(&self) {
        self.end_of(self.world.seed).await;
    }

    /// The same, naming this seed on failure.
    pub(crate) async fn end_of(&self, seed: u64) {
        let ended = calm_world::end(&self.world, &self.checker).await;
        ended.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

async fn until(done: impl AsyncFn() -> bool) {
    while !done().await {
        pass(Duration::from_millis(500)).await;
    }
}

/// Runs a pool worker and three launch workers, which do not wait for each other.
async fn work(service: &SimService<'_>) -> Infallible {
    let launches = || async {
        loop {
            if launch_worker(service, Duration::from_secs(1)).await.is_err() {
                pass(Duration::from_secs(1)).await;
            }
        }
    };
    let pools = async {
        loop {
            if pool_worker(service, Duration::from_secs(1)).await.is_err() {
                pass(Duration::from_secs(1)).await;
            }
        }
    };
    let (never, _, _, _): (Infallible, Infallible, Infallible, Infallible) =
        tokio::join!(pools, launches(), launches(), launches());
    never
}

async fn look(service: &SimService<'_>) -> Infallible {
    loop {
        pass(Duration::from_secs(5)).await;
        // The next sweep follows a failed one.
        let _ = sweep(service).await;
    }
}

/// Processes a row once.
pub(crate) async fn process_once(service: &SimService<'_>, job: &str) {
    let _ = process(service, &JobId::new(job)).await;
}

pub(crate) fn about(job: &str) -> JobDetails {
    about_in(job, "acme/app", &format!("runs-on={job}/runner=large"))
}

pub(crate) fn about_in(job: &str, repository: &str, label: &str) -> JobDetails {
    JobDetails {
        repository: Repository::new(repository),
        run: RunAttempt::new(format!("{job}.1")),
        name: format!("job {job}"),
        labels: vec![label.to_owned()],
        commit: "0a1b".to_owned(),
        created_at: None,
        provenance: Provenance::default(),
    }
}

fn config(reuse: bool) -> Config {
    let large = RunnerConfig {
        cpu: Some(VcpuRange::exactly(2)),
        ram: Some(MemoryRange { min_mib: 4_096, max_mib: 4_096 }),
        reuse: reuse.then(Reuse::default),
        ..RunnerConfig::default()
    };
    Config { runners: BTreeMap::from([(ClassName::new("large"), large)]), ..Config::default() }
}

/// A world with two idle machines and two jobs of one label, each of its repository; both machines
/// serve on after trusted code of one repository.
pub(crate) async fn two_jobs(seed: u64, repositories: [&str; 2]) -> ServiceWorld {
    let sim = ServiceWorld::in_world(calm_world::new(seed, 5).await).await.reusing();
    calm_world::add_idle(&sim.world, Usage::OnDemand, 2).await;
    for (job, repository) in ["7", "8"].into_iter().zip(repositories) {
        let fact = sim.submit(job, about_in(job, repository, "runs-on/runner=large"));
        sim.deliver(&fact).await;
    }
    sim
}
