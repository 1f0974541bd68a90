//! Routes a job by its labels: to a pool, to a new machine, to no runner, or back with a reason.
//!
//! The service routes a job once, when it first hears of it, by the labels and the configuration
//! alone. It guesses nothing: an unknown pool has a route of its own and never causes a launch.
//!
//! Not here: reading labels (`labels`), merging the facts about a job (`job`), queues.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use crate::ids::{PoolName, Repository, RunAttempt};
use crate::labels::class::{self, Catalogue, ClassRef, ResolveError, Resolved};
use crate::labels::ownership::{Claimant, NotOwned, not_owned};
use crate::labels::policy::{PlainLabels, Policy, PolicyRefusal, ServedBy};
use crate::labels::{self, LabelFinding, LabelKey, LabelSpec, Parsed};
use crate::scope::ServiceScope;
use crate::spelling;

/// The stack of a label that names none.
pub const ENV_DEFAULT: &str = "production";
/// The name of the pool that gets Dependabot's jobs, if the stack has such a pool.
pub const DEPENDABOT: &str = "dependabot";

/// The facts about a stack that decide routes.
#[derive(Clone, Debug)]
pub struct Routing<'a> {
    /// The repositories that it serves.
    pub scope: &'a ServiceScope,
    /// The stack's name.
    pub env: &'a str,
    /// Its AWS region.
    pub region: &'a str,
    /// Its pools: the configured pools with its own `env`.
    pub pools: &'a BTreeSet<PoolName>,
    /// Pools whose configuration is invalid: the service cannot know yet which machines they have.
    pub broken: &'a BTreeSet<PoolName>,
    /// Its runner classes and images.
    pub classes: &'a Catalogue,
    /// The pool of jobs that name neither a pool nor a machine.
    pub default_pool: Option<&'a PoolName>,
    /// What repositories may ask for by labels.
    pub policy: &'a Policy,
    /// Whether the service has read a valid configuration; until then it does not know its pools.
    pub config_loaded: bool,
}

/// Where a job goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// To this pool.
    Pool(PoolName),
    /// To a machine of this class: a used machine if the job may have it, else a new machine.
    Launch(Launch),
    /// To no runner: its label names a pool that does not exist.
    UnknownPool {
        /// The pool that the label names.
        pool: PoolName,
        /// Pools with similar names.
        suggestions: Vec<String>,
    },
    /// To no runner: the job is not for this stack.
    NotOurs(NotOurs),
    /// To no runner: the stack refuses the job; the reasons are for the job's author.
    Refused(Vec<RouteRefusal>),
    /// It waits until the service has read a configuration, or the operator has corrected the
    /// configuration of its pool.
    Wait,
}

/// The machine to launch or reuse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Its class; machines of an anonymous class are never reused.
    pub class: ClassRef,
    /// The label's settings, merged with those of the runner that it names.
    pub spec: LabelSpec,
}

/// Why a job is not for this stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotOurs {
    /// The stack does not serve its repository, regardless of its labels.
    Outside,
    /// No label begins with a name of ours, such as `runs-on`.
    NoHead,
    /// It is for another stack.
    Env,
    /// It is for another region.
    Region,
    /// It is Dependabot's job, and the stack has no pool for those.
    NoDependabotPool,
}

/// Why the stack refuses a job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteRefusal {
    /// One of its labels is invalid.
    #[error("{0}")]
    Label(LabelFinding),
    /// A runner may not have one of its labels.
    #[error(transparent)]
    Ownership(#[from] NotOwned),
    /// It asks for more than the policy allows.
    #[error(transparent)]
    Policy(#[from] PolicyRefusal),
    /// It asks for a runner or image that does not exist.
    #[error(transparent)]
    Class(#[from] ResolveError),
}

/// Routes a job of this repository and run by its labels.
pub fn route<S: AsRef<str>>(
    labels: &[S],
    repository: &Repository,
    run: &RunAttempt,
    routing: &Routing<'_>,
) -> Route {
    if !routing.scope.serves(repository) {
        return Route::NotOurs(NotOurs::Outside);
    }
    let parsed = labels::parse(labels);
    if let Some(plain) = plain(labels, &parsed, repository, routing) {
        return to_plain(plain, repository, routing);
    }
    if let Some(why) = not_ours(&parsed, routing) {
        return Route::NotOurs(why);
    }
    if !routing.config_loaded {
        return Route::Wait;
    }
    let Parsed { spec, .. } = &parsed;
    // A pool in the label wins over the `dependabot` label.
    let dependabot = spec.dependabot && spec.pool.is_none();
    let dependabot_pool = to_pool(&PoolName::new(DEPENDABOT), routing);
    if dependabot && !parsed.has_head && dependabot_pool.is_none() {
        return Route::NotOurs(NotOurs::NoDependabotPool);
    }
    let has_dependabot_pool = dependabot_pool.is_some();
    let claimant = Claimant { repository, run, env: routing.env, has_dependabot_pool };
    let not_owned = not_owned(labels, &claimant, routing.policy);
    let mut refusals: Vec<RouteRefusal> =
        not_owned.into_iter().map(RouteRefusal::Ownership).collect();
    // Labels beyond the maximum were not judged.
    let all_judged = labels.len() <= labels::LABELS_MAX;
    if let Some(route) = dependabot_pool.filter(|_| dependabot && all_judged && refusals.is_empty())
    {
        return route;
    }
    refusals.extend(parsed.errors().cloned().map(RouteRefusal::Label));
    let cpu = spec.cpu.or_else(|| builtin_cpu(spec, routing.classes));
    let by_policy = routing.policy.refusals(repository, spec, cpu);
    refusals.extend(by_policy.into_iter().map(RouteRefusal::Policy));
    if !refusals.is_empty() {
        return Route::Refused(refusals);
    }
    let default = routing.default_pool.filter(|_| !spec.asks_for_a_machine());
    match spec.pool.as_ref().or(default) {
        Some(pool) => to_pool(pool, routing).unwrap_or_else(|| unknown_pool(pool, routing.pools)),
        None => launch(spec, repository, routing),
    }
}

/// The operator's list of plain labels that contains all labels of a job without a label of ours.
fn plain<'r, S: AsRef<str>>(
    labels: &[S],
    parsed: &Parsed,
    repository: &Repository,
    routing: &'r Routing<'_>,
) -> Option<&'r PlainLabels> {
    if parsed.ours || labels.is_empty() || labels.len() > labels::LABELS_MAX {
        return None;
    }
    let has_all = |plain: &&PlainLabels| labels.iter().all(|label| plain.has(label.as_ref()));
    let serves = |plain: &&PlainLabels| plain.serves.is_some();
    // A request's label belongs to that request, even if a pattern of the list matches it.
    let free = labels::request_of(labels).is_none();
    let mut lists = routing.policy.plain_for(repository, routing.env).filter(serves);
    lists.find(has_all).filter(|_| free)
}

fn to_plain(plain: &PlainLabels, repository: &Repository, routing: &Routing<'_>) -> Route {
    match &plain.serves {
        Some(ServedBy::Pool(pool)) => {
            to_pool(pool, routing).unwrap_or_else(|| unknown_pool(pool, routing.pools))
        }
        Some(ServedBy::Runner(runner)) => {
            let spec = LabelSpec { runner: Some(runner.clone()), ..LabelSpec::default() };
            launch(&spec, repository, routing)
        }
        None => Route::NotOurs(NotOurs::NoHead),
    }
}

fn not_ours(parsed: &Parsed, routing: &Routing<'_>) -> Option<NotOurs> {
    let spec = &parsed.spec;
    if !parsed.ours {
        return Some(NotOurs::NoHead);
    }
    // An unreadable env matches no stack, so that not every stack refuses the job.
    let unread =
        |key: LabelKey, value: &Option<String>| spec.given.contains(&key) && value.is_none();
    if unread(LabelKey::Env, &spec.env) || spec.env.as_deref().unwrap_or(ENV_DEFAULT) != routing.env
    {
        return Some(NotOurs::Env);
    }
    let elsewhere = spec.region.as_deref().is_some_and(|region| region != routing.region);
    (unread(LabelKey::Region, &spec.region) || elsewhere).then_some(NotOurs::Region)
}

/// The vCPUs of a built-in runner. The policy does not limit configured runners: the operator chose
/// their size.
fn builtin_cpu(spec: &LabelSpec, classes: &Catalogue) -> Option<labels::value::AmountRange> {
    let name = spec.runner.as_ref().filter(|name| !classes.runners.contains_key(*name))?;
    class::builtin(name)?.cpu
}

/// The route to this pool, or [`Route::Wait`] while its configuration is broken; `None` if there is
/// no such pool.
fn to_pool(pool: &PoolName, routing: &Routing<'_>) -> Option<Route> {
    if routing.pools.contains(pool) {
        return Some(Route::Pool(pool.clone()));
    }
    routing.broken.contains(pool).then_some(Route::Wait)
}

fn unknown_pool(pool: &PoolName, pools: &BTreeSet<PoolName>) -> Route {
    let near = spelling::nearest(pool.as_str(), pools.iter().map(PoolName::as_str));
    let suggestions = near.into_iter().map(str::to_owned).collect();
    Route::UnknownPool { pool: pool.clone(), suggestions }
}

fn launch(spec: &LabelSpec, repository: &Repository, routing: &Routing<'_>) -> Route {
    match class::resolve(spec, routing.classes) {
        Err(error) => Route::Refused(vec![RouteRefusal::Class(error)]),
        Ok(Resolved { class, spec }) => {
            let most = routing.policy.rules(repository).cpu_milli_max;
            Route::Launch(Launch { class: bounded(class, most), spec })
        }
    }
}

/// Limits an anonymous class to the policy's maximum of vCPUs: a label that names only a type must
/// not get more than a label that names a count.
fn bounded(class: ClassRef, cpu_milli_max: Option<u32>) -> ClassRef {
    match class {
        ClassRef::Anonymous(mut class) => {
            let most = cpu_milli_max.map_or(u32::MAX, |milli| (milli / 1_000).max(1));
            class.vcpu.max = class.vcpu.max.min(most).max(class.vcpu.min);
            ClassRef::Anonymous(class)
        }
        named @ ClassRef::Named(_) => named,
    }
}
