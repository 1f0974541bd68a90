//! The service's settings for jobs, and the decision which machine a job wants.
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

/// The settings for a stack's jobs.
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
    base: StackBase,
    keeps_pools: bool,
    /// Each repository's share of the workers.
    pub shares: Shares,
}

/// The machine that a job wants, by the current settings.
#[derive(Clone, Debug)]
pub(super) enum WantDecision {
    /// It wants this machine.
    Machine(Box<WantedMachine>),
    /// No machine can serve it.
    Nothing(Reason),
    /// It cannot be decided yet.
    Unknown,
}

/// A machine that a job wants.
#[derive(Clone, Debug)]
pub(super) struct WantedMachine {
    /// The request for one runner.
    pub(super) request: Request,
    /// The pool that serves it first.
    pub(super) pool: Option<PoolName>,
    /// Whether machines of its class serve more than one job.
    pub(super) reuse: bool,
    /// The runner group that its runner joins at GitHub.
    pub(super) group: Option<RunnerGroup>,
    /// Whether it may have a machine that another job used, as far as its row says.
    pub(super) used: UsedMachines,
}

impl JobSettings {
    /// Makes the settings of the stack of this environment and region. Without a configuration the
    /// service accepts jobs and lets them wait.
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
            base: StackBase::default(),
            keeps_pools: true,
            shares: Shares::default(),
        }
    }

    /// The same settings for a stack whose machines are built from `base`.
    #[must_use]
    pub fn built_from(self, base: StackBase) -> Self {
        Self { base, ..self }
    }

    /// The same settings for a stack that serves only this scope.
    #[must_use]
    pub fn within(self, scope: ServiceScope) -> Self {
        let runners_are_the_owners = matches!(scope.served, ServedRepositories::Owner(_));
        let code = CodeRules { runners_are_the_owners, ..self.code };
        Self { scope, code, ..self }
    }

    /// The scope: the repositories whose jobs the service serves.
    pub const fn scope(&self) -> &ServiceScope {
        &self.scope
    }

    /// The same settings for a stack that has no configuration anywhere.
    #[must_use]
    pub fn without_pools(self) -> Self {
        Self { keeps_pools: false, ..self }
    }

    /// The pools to keep. None until the service has read a configuration, because it does not know
    /// them, and for a stack without one, because it must not empty pools that it remembers.
    pub fn blueprints(&self) -> Option<Blueprints> {
        let of = || Blueprints::of(&self.env, &self.config, &self.base);
        (self.is_loaded && self.keeps_pools).then(of)
    }

    /// The pools whose idle machines serve every request of their class.
    pub(super) fn sharing(&self) -> BTreeSet<PoolName> {
        let sharing = self.config.pools.iter().filter(|(_, pool)| pool.own.share);
        sharing.map(|(name, _)| name.clone()).collect()
    }

    /// The settings by which jobs are routed.
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

    /// Whether the service cancels the run of a job that it cannot serve.
    pub(super) fn cancels(&self) -> bool {
        self.config.on_unfulfillable == OnUnfulfillable::Cancel
    }

    /// The rules for whose code may have used machines.
    pub(super) const fn code(&self) -> &CodeRules {
        &self.code
    }

    /// How machines of this class are reused, if they are.
    fn reuse(&self, class: &ClassName) -> Option<&Reuse> {
        self.config.runners.get(class)?.reuse.as_ref()
    }

    /// How a machine of this class is reused after this job, if it is. Machines of requests always
    /// are, within the stack's limits.
    pub(super) fn reuse_after(&self, job: &Job, class: &ClassName) -> Option<Reuse> {
        match job.lane {
            Some(Lane::Request(_)) => Some(self.reuse(class).cloned().unwrap_or_default()),
            _ => self.reuse(class).cloned(),
        }
    }

    /// Decides which machine a job wants until `deadline`.
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

    /// The trust group of a job; none if the settings lead it to no machine.
    pub(super) fn trust_of<P: Ports>(&self, job: &Job, stack: &Stack<P>) -> Option<TrustGroup> {
        match self.want(job, stack, stack.now()) {
            WantDecision::Machine(wanted) => Some(wanted.request.trust),
            WantDecision::Nothing(_) | WantDecision::Unknown => None,
        }
    }

    /// The runner group of a job's runner.
    pub(super) fn group(
        &self,
        job: &Job,
        pool: Option<&PoolName>,
        class: &ClassName,
    ) -> Option<RunnerGroup> {
        let of_pool = pool.and_then(|pool| self.config.pools.get(pool)?.own.group.as_ref());
        let of_class = self.config.runners.get(class).and_then(|runner| runner.group.as_ref());
        self.config.labels.groups.of(job.repository(), of_pool, of_class).cloned()
    }

    /// The launch for a pool without an idle machine: a machine of the pool's runner class.
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
                .unwrap_or_else(|| TrustGroup::new(trust_group_default(job))),
            deadline,
            on_partial: OnPartial::TopUp,
            on_demand_fallback: true,
            spec_hash: Some(built_from),
            ephemeral: true,
            only_unused: None,
        }
    }
}

/// The trust group of a job whose class names none: its own repository.
fn trust_group_default(job: &Job) -> &str {
    if sabotage!("all-repositories-trust-each-other") { "all" } else { job.repository().as_str() }
}

/// The reason why a route leads to no machine.
fn why_not(route: &Route, at: Timestamp) -> Reason {
    match place(route, at, None) {
        Placement::Event(JobEvent::Failed { reason, .. }) => reason,
        Placement::Event(_) | Placement::Waits | Placement::NotOurs(_) => {
            let why = "the configuration has changed, and no stack serves these labels now";
            Reason::Refused { why: vec![why.to_owned()] }
        }
    }
}

/// The usage that the class names, else the label's, else on-demand.
fn usage(launch: &Launch, runner: Option<&RunnerConfig>) -> Usage {
    runner.and_then(|runner| runner.usage).unwrap_or(match launch.spec.spot {
        None | Some(Spot::Never) => Usage::OnDemand,
        Some(_) => Usage::Spot,
    })
}
