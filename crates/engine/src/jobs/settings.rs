//! What is configured for jobs, and what a job wants by it.
//!
//! Not here: reading the configuration (`core::config`).

use std::collections::BTreeSet;

use bullpen_core::class::{RunnerClass, Usage};
use bullpen_core::config::extension::OnUnfulfillable;
use bullpen_core::config::runner::{Reuse, RunnerConfig};
use bullpen_core::config::runs_on::Config;
use bullpen_core::ids::{ClassName, PoolName, RunnerGroup, SpecHash, TrustGroup};
use bullpen_core::job::fair::Shares;
use bullpen_core::job::{
    CodeRules, Job, JobEvent, Lane, Placement, Reason, UsedMachines, place, request_id,
    used_machines,
};
use bullpen_core::labels::LabelSpec;
use bullpen_core::labels::class::{self, Catalogue, ClassRef};
use bullpen_core::labels::value::Spot;
use bullpen_core::pool::{Blueprints, StackBase};
use bullpen_core::ports::Ports;
use bullpen_core::request::{OnPartial, Request, TypePattern};
use bullpen_core::route::{Launch, Route, Routing, route};
use bullpen_core::sabotage;
use bullpen_core::scope::{ServedRepositories, ServiceScope};
use bullpen_core::time::Timestamp;

use crate::Stack;

/// What is configured for a stack's jobs.
#[derive(Clone, Debug)]
pub struct JobSettings {
    scope: ServiceScope,
    env: String,
    region: String,
    config: Config,
    code: CodeRules,
    is_loaded: bool,
    catalogue: Catalogue,
    pools: BTreeSet<PoolName>,
    foundation: StackBase,
    keeps_pools: bool,
    /// How much each repository is served.
    pub shares: Shares,
}

/// What a job wants, by what is configured now.
#[derive(Clone, Debug)]
pub(super) enum WantDecision {
    /// A machine.
    Machine(Box<WantedMachine>),
    /// Nothing that there is, or may be.
    Nothing(Reason),
    /// Nobody knows yet.
    Unknown,
}

/// A machine that a job wants.
#[derive(Clone, Debug)]
pub(super) struct WantedMachine {
    /// As a request for one runner.
    pub(super) request: Request,
    /// The pool that serves it first.
    pub(super) pool: Option<PoolName>,
    /// Whether machines of its class serve more than one job.
    pub(super) reuse: bool,
    /// The group that its runner joins at GitHub.
    pub(super) group: Option<RunnerGroup>,
    /// Whether it may have a machine that another job used, as far as its row says.
    pub(super) used: UsedMachines,
}

impl JobSettings {
    /// Of the stack of this name in this region; without a configuration jobs are accepted and wait.
    pub fn new(env: &str, region: &str, config: Option<Config>) -> Self {
        let is_loaded = config.is_some();
        let config = config.unwrap_or_default();
        let own = config.pools.iter().filter(|(_, pool)| pool.env == env);
        Self {
            scope: ServiceScope::EVERYTHING,
            env: env.to_owned(),
            region: region.to_owned(),
            pools: own.map(|(name, _)| name.clone()).collect(),
            catalogue: config.catalogue(),
            code: config.code.clone(),
            config,
            is_loaded,
            foundation: StackBase::default(),
            keeps_pools: true,
            shares: Shares::default(),
        }
    }

    /// The same, of a stack whose machines are built from this.
    #[must_use]
    pub fn built_from(self, foundation: StackBase) -> Self {
        Self { foundation, ..self }
    }

    /// The same, of a stack that serves only what is in this scope.
    #[must_use]
    pub fn within(self, scope: ServiceScope) -> Self {
        let runners_are_the_owners = matches!(scope.served, ServedRepositories::Owner(_));
        let code = CodeRules { runners_are_the_owners, ..self.code };
        Self { scope, code, ..self }
    }

    /// Whose jobs are served.
    pub const fn scope(&self) -> &ServiceScope {
        &self.scope
    }

    /// The same, of a stack for which nothing is configured anywhere.
    #[must_use]
    pub fn without_pools(self) -> Self {
        Self { keeps_pools: false, ..self }
    }

    /// The pools to keep; nothing until a configuration was read, when nobody knows which there are.
    /// Where there is none at all, pools that are remembered are nobody's to empty.
    pub fn blueprints(&self) -> Option<Blueprints> {
        let of = || Blueprints::of(&self.env, &self.config, &self.foundation);
        (self.is_loaded && self.keeps_pools).then(of)
    }

    /// The pools whose idle machines serve every request of their class.
    pub(super) fn sharing(&self) -> BTreeSet<PoolName> {
        let sharing = self.config.pools.iter().filter(|(_, pool)| pool.share);
        sharing.map(|(name, _)| name.clone()).collect()
    }

    /// By what jobs are routed.
    pub(super) fn routing(&self) -> Routing<'_> {
        Routing {
            scope: &self.scope,
            env: &self.env,
            region: &self.region,
            pools: &self.pools,
            broken: &self.config.broken,
            classes: &self.catalogue,
            default_pool: self.config.default_pool.as_ref(),
            policy: &self.config.labels,
            config_loaded: self.is_loaded,
        }
    }

    /// Whether the run of a job that cannot be served is cancelled.
    pub(super) fn cancels(&self) -> bool {
        self.config.on_unfulfillable == OnUnfulfillable::Cancel
    }

    /// Whose code may have machines that others used.
    pub(super) const fn code(&self) -> &CodeRules {
        &self.code
    }

    /// How machines of this class serve more than one job, if they do.
    fn reuse(&self, class: &ClassName) -> Option<&Reuse> {
        self.config.runners.get(class)?.reuse.as_ref()
    }

    /// How a machine of this class serves others after this job, if it does. Those of requests always
    /// do, within the limits of the stack.
    pub(super) fn reuse_after(&self, job: &Job, class: &ClassName) -> Option<Reuse> {
        match job.lane {
            Some(Lane::Request(_)) => Some(self.reuse(class).cloned().unwrap_or_default()),
            _ => self.reuse(class).cloned(),
        }
    }

    /// What a job wants until `deadline`.
    pub(super) fn want<P: Ports>(
        &self,
        job: &Job,
        stack: &Stack<P>,
        deadline: Timestamp,
    ) -> WantDecision {
        let about = &job.known.about;
        let routed = route(&about.labels, &about.repository, &about.run, &self.routing());
        let (pool, launch) = match routed {
            Route::Pool(pool) => match self.launch_of(&pool) {
                Ok(launch) => (Some(pool), launch),
                Err(why) => return WantDecision::Nothing(Reason::Refused { why: vec![why] }),
            },
            Route::Launch(launch) => (None, launch),
            Route::Wait => return WantDecision::Unknown,
            unserved @ (Route::UnknownPool { .. } | Route::Refused(_) | Route::NotOurs(_)) => {
                return WantDecision::Nothing(why_not(&unserved, deadline));
            }
        };
        let reuse =
            matches!(&launch.class, ClassRef::Named(class) if self.reuse(&class.name).is_some());
        let built_from = stack.built(launch.class.class());
        let request = self.request(job, &launch, built_from, deadline);
        let used = used_machines(&job.known.about, self.code());
        let group = self.group(job, pool.as_ref(), &request.class.name);
        WantDecision::Machine(Box::new(WantedMachine { request, pool, reuse, group, used }))
    }

    /// The runner group of a job's runner.
    pub(super) fn group(
        &self,
        job: &Job,
        pool: Option<&PoolName>,
        class: &ClassName,
    ) -> Option<RunnerGroup> {
        let of_pool = pool.and_then(|pool| self.config.pools.get(pool)?.group.as_ref());
        let of_class = self.config.runners.get(class).and_then(|runner| runner.group.as_ref());
        self.config.labels.groups.of(job.repository(), of_pool, of_class).cloned()
    }

    /// What is launched for a pool that has nothing: a machine of its runner.
    fn launch_of(&self, pool: &PoolName) -> Result<Launch, String> {
        let runner = self.config.pools.get(pool).map(|pool| pool.runner.clone());
        let spec = LabelSpec { runner, ..LabelSpec::default() };
        let resolved = class::resolve(&spec, &self.catalogue).map_err(|error| error.to_string())?;
        Ok(Launch { class: resolved.class, spec: resolved.spec })
    }

    fn request(
        &self,
        job: &Job,
        launch: &Launch,
        built_from: SpecHash,
        deadline: Timestamp,
    ) -> Request {
        let class: &RunnerClass = launch.class.class();
        let runner: Option<&RunnerConfig> = self.config.runners.get(&class.name);
        let families = launch.spec.families.clone();
        let any = families.is_empty();
        Request {
            id: request_id(&job.id),
            incarnation: 0,
            class: class.clone(),
            count: 1,
            usage: usage(launch, runner),
            allowed_types: if any { vec![TypePattern::new("*")] } else { families },
            trust: runner
                .and_then(|runner| runner.trust.clone())
                .unwrap_or_else(|| TrustGroup::new(trusted(job))),
            deadline,
            on_partial: OnPartial::TopUp,
            on_demand_fallback: true,
            spec_hash: Some(built_from),
            ephemeral: true,
            only_unused: None,
        }
    }
}

/// Unless somebody says otherwise a repository trusts nobody but itself.
fn trusted(job: &Job) -> &str {
    if sabotage!("all-repositories-trust-each-other") { "all" } else { job.repository().as_str() }
}

/// Why a route leads to no machine.
fn why_not(route: &Route, at: Timestamp) -> Reason {
    match place(route, at, None) {
        Placement::Event(JobEvent::Failed { reason, .. }) => reason,
        Placement::Event(_) | Placement::Waits | Placement::NotOurs(_) => {
            let why = "the configuration has changed, and no stack serves these labels now";
            Reason::Refused { why: vec![why.to_owned()] }
        }
    }
}

/// What the class says, else what the label says, else on demand.
fn usage(launch: &Launch, runner: Option<&RunnerConfig>) -> Usage {
    runner.and_then(|runner| runner.usage).unwrap_or(match launch.spec.spot {
        None | Some(Spot::Never) => Usage::OnDemand,
        Some(_) => Usage::Spot,
    })
}
