//! A world in which the production engine keeps standby pools, for tests of pools.
//!
//! A *keeper* is a process that only keeps pools; a *service* is the whole production service, so
//! that jobs use the pools' machines. The checker judges every plan that a test looks at, and looks
//! at all plans itself at intervals.
//!
//! Not here: worlds drawn from a seed ([`crate::kernel`]), or the expectations (`tests/pools`).

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bullpen_core::config::runs_on::{self, Config};
use bullpen_core::creation::{Ceiling, Scope};
use bullpen_core::ids::{JobId, PoolName, Repository, RunAttempt};
use bullpen_core::instance::{Record, State, Tier};
use bullpen_core::job::{Job, JobDetails, Provenance};
use bullpen_core::parameters::decode;
use bullpen_core::pool::journal::COLLECTION;
use bullpen_core::pool::{Blueprints, Journal, Note, StackBase};
use bullpen_core::ports::{Ledger, Machine, MachineState, Ports};
use bullpen_engine::Stack;
use bullpen_engine::jobs::{self, Duties};
use bullpen_engine::pools::{self, Leases, Requests, Survey, SurveyedPool};

use crate::calm_world;
use crate::checker::Checker;
use crate::clock::pass;
use crate::life::{desired, keep_up};
use crate::service::plan::{ServicePlan, WebhookOdds};
use crate::service::pools::Timeline;
use crate::service::{self, SimService, WebhookSender};
use crate::wire::Wire;
use crate::world::{SimPorts, World};

/// How often the checker looks at every plan.
const LOOK: Duration = Duration::from_secs(5);
/// After this many looks at plans it looks at the whole world.
const WHOLE: u32 = 6;

/// A world whose pools are kept.
#[derive(Debug)]
pub struct PoolWorld {
    /// The world.
    pub world: Arc<World>,
    /// Its checker.
    pub checker: Checker,
    configured: Mutex<Configured>,
}

/// The current configuration, parsed once: parsing takes longer than a look.
#[derive(Clone, Debug, Default)]
struct Configured {
    config: Config,
    foundation: StackBase,
    blueprints: Blueprints,
    /// The number of changes so far.
    version: u64,
}

/// A process that keeps pools.
#[derive(Debug)]
pub struct PoolKeeper {
    /// Its wire.
    pub wire: Wire,
    /// Its engine.
    pub stack: Stack<SimPorts>,
    /// Its leases.
    pub leases: Leases,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PoolWorld {
    /// A calm world with capacity for this many machines, and this configuration.
    pub async fn new(machines_max: u32, config: &str) -> Self {
        Self::in_world(calm_world::new(7, machines_max).await, config).await
    }

    /// Keeps pools in this world, with this configuration.
    pub async fn in_world(world: Arc<World>, config: &str) -> Self {
        let checker = Checker::watch(&world, false);
        service::make_queues(&world).await;
        let built = Self { world, checker, configured: Mutex::default() };
        built.configure(config);
        for (name, pool) in &locked(&built.configured).config.pools {
            if let Some(max) = pool.own.max {
                built.checker.add_ceiling(Ceiling { scope: Scope::Pool(name.clone()), max });
            }
        }
        built
    }

    /// Changes the configuration.
    pub fn configure(&self, config: &str) {
        let (read, findings) = runs_on::read(config.as_bytes()).into_parts();
        let Some(read) = read else { panic!("the test's configuration is bad: {findings:?}") };
        self.change(|configured| configured.config = read);
    }

    /// Changes the image of machines.
    pub fn build_from(&self, image: &str) {
        self.change(|configured| image.clone_into(&mut configured.foundation.image));
    }

    fn change(&self, change: impl FnOnce(&mut Configured)) {
        let mut configured = locked(&self.configured);
        change(&mut configured);
        let Configured { config, foundation, blueprints, version } = &mut *configured;
        *blueprints = Blueprints::of("production", config, foundation);
        *version += 1;
    }

    fn blueprints(&self) -> Blueprints {
        locked(&self.configured).blueprints.clone()
    }

    /// A process that can keep pools; it has not begun.
    pub fn keeper(&self, name: &str) -> PoolKeeper {
        let (wire, stack) = self.world.process(name);
        let leases = Leases::new(&stack);
        PoolKeeper { wire, stack, leases }
    }

    /// Keeps pools until the keeper dies; never returns.
    pub async fn keeping(&self, keeper: &PoolKeeper) -> Infallible {
        let PoolKeeper { wire, stack, leases } = keeper;
        let (configured, requests) = (|| Some(self.blueprints()), Requests::default());
        tokio::select! {
            biased;
            () = wire.died() => {}
            never = Box::pin(pools::keep(stack, leases, configured, &requests, &|_| {})) => match never {},
        }
        pending().await
    }

    /// A keeper of this name keeps the pools until `done`, and then gives up its leases; false if
    /// `done` did not come in time.
    pub async fn keep(&self, name: &str, within: Duration, done: impl AsyncFn() -> bool) -> bool {
        let keeper = self.keeper(name);
        let came = self.until(within, done, self.keeping(&keeper)).await;
        keeper.leases.give_up(&keeper.stack).await;
        came
    }

    /// A keeper of this name keeps the pools for this long.
    pub async fn keep_for(&self, name: &str, time: Duration) {
        self.keep(name, time, async || false).await;
    }

    /// Runs the whole service, and GitHub's webhooks to it, for ever.
    pub async fn serving(&self, name: &str) -> Infallible {
        let plan = self.plan();
        let duties = Duties { jobs: true, upkeep: false, pools: true, repositories: Vec::new() };
        let sender = WebhookSender::new(WebhookOdds::default());
        let served = service::process(&self.world, &plan, name, None, async |service| {
            tokio::select! {
                biased;
                () = jobs::run(service, &duties, desired, pending()) => {}
                never = self.configuring(service) => match never {},
            }
        });
        tokio::select! {
            biased;
            never = Box::pin(sender.run(&self.world, &plan)) => match never {},
            _ = Box::pin(served) => pending().await,
        }
    }

    /// Configures a service at every change.
    async fn configuring(&self, service: &SimService<'_>) -> Infallible {
        let mut known = 0;
        loop {
            let version = locked(&self.configured).version;
            if version != known {
                service.configure(self.plan().settings());
                known = version;
            }
            pass(Duration::from_millis(200)).await;
        }
    }

    fn plan(&self) -> ServicePlan {
        ServicePlan {
            scope: bullpen_core::scope::ServiceScope::EVERYTHING,
            config: locked(&self.configured).config.clone(),
            shares: bullpen_core::job::fair::Shares::default(),
            repositories: vec![Repository::new("acme/app")],
            replicas: 1,
            public: BTreeSet::new(),
            webhooks: WebhookOdds::default(),
            timeline: Timeline::default(),
            jobs: Vec::new(),
            is_big: false,
        }
    }

    /// Queues a job with this label part, and its webhook.
    pub fn queue(&self, job: &str, wants: &str, lasts: Duration) {
        let about = JobDetails {
            repository: Repository::new("acme/app"),
            run: RunAttempt::new(format!("{job}.1")),
            name: format!("job {job}"),
            labels: vec![format!("runs-on={job}/{wants}")],
            commit: "0a1b".to_owned(),
            created_at: None,
            provenance: Provenance::default(),
        };
        let now = self.world.outside.clock().true_now();
        let fact = self.world.jobs.queue(job, about, lasts, now);
        self.world.jobs.announce(fact);
    }

    /// A job's row, once it has one.
    pub async fn job(&self, job: &str) -> Option<Job> {
        let row = self.world.outside.ledger().row(&JobId::new(job)).await.ok()??;
        Job::decode(&row.body).ok()
    }

    /// Runs `life` until `done`; false after this time, or if an invariant is violated.
    pub async fn until(
        &self,
        within: Duration,
        done: impl AsyncFn() -> bool,
        life: impl Future<Output = Infallible>,
    ) -> bool {
        // Boxed: a whole service is a large future.
        tokio::select! {
            biased;
            () = self.checker.violated() => false,
            () = Box::pin(until(done)) => true,
            () = pass(within) => false,
            never = Box::pin(self.looking()) => match never {},
            never = Box::pin(life) => match never {},
            never = keep_up(&self.world) => match never {},
        }
    }

    /// Looks at every plan repeatedly, and at intervals at the whole world.
    async fn looking(&self) -> Infallible {
        loop {
            for _ in 0..WHOLE {
                pass(LOOK).await;
                self.look().await;
            }
            self.checker.look(&self.world);
        }
    }

    /// Every pool as it is now, with its plan.
    pub async fn look(&self) -> Vec<SurveyedPool> {
        let (stack, configured) = (self.world.onlooker(), self.blueprints());
        let names = pools::known(&stack, &configured).await.expect("the onlooker has no faults");
        let found = pools::survey(&stack, &configured, &names).await;
        let found = found.and_then(Survey::complete).expect("the onlooker has no faults");
        self.checker.look_at_plans(&found);
        found
    }

    /// Whether every pool is as configured, with an empty plan.
    pub async fn has_converged(&self) -> bool {
        self.look().await.iter().all(|found| Checker::unconverged(found).is_none())
    }

    /// The pool's live records, in the order of the machines' ids.
    pub async fn records(&self, pool: &str) -> Vec<Record> {
        let ledger = self.world.outside.ledger();
        let listed = ledger.standing_by(&PoolName::new(pool)).await;
        let mut records = listed.expect("the onlooker has no faults").items;
        records.retain(|record| record.state.is_live());
        records.sort_by(|one, other| one.id.cmp(&other.id));
        records
    }

    /// How many of the pool's machines are idle, hot and stopped.
    pub async fn ready(&self, pool: &str) -> (usize, usize) {
        (self.idle(pool, Tier::Hot).await.len(), self.idle(pool, Tier::Stopped).await.len())
    }

    /// The pool's idle machines of one tier.
    pub async fn idle(&self, pool: &str, tier: Tier) -> Vec<Record> {
        let mut records = self.records(pool).await;
        records.retain(|record| matches!(record.state, State::Idle { tier: of, .. } if of == tier));
        records
    }

    /// The notes in the pool's journal: why the pool waits.
    pub fn notes(&self, pool: &str) -> Vec<Note> {
        let document = self.world.outside.ledger().document_now(COLLECTION, pool);
        let journal = document.and_then(|stored| decode::<Journal>(&stored.body).ok());
        journal.unwrap_or_default().notes
    }

    /// The number of machines launched so far.
    pub fn launched(&self) -> usize {
        self.world.outside.fleet().snapshot().len()
    }

    /// All machines that are not gone.
    pub fn machines(&self) -> Vec<Machine> {
        let mut machines = self.world.outside.fleet().snapshot();
        machines.retain(|machine| machine.state != MachineState::Gone);
        machines
    }

    /// Removes all pools; the world must become quiet without a violation.
    pub async fn end(&self) -> Result<(), String> {
        self.configure("{}");
        let empty = async || self.machines().is_empty();
        self.keep("last", Duration::from_secs(2 * 3_600), empty).await;
        calm_world::end(&self.world, &self.checker).await
    }
}

async fn until(done: impl AsyncFn() -> bool) {
    while !done().await {
        pass(Duration::from_millis(500)).await;
    }
}
