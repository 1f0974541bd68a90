//! Where a job goes, by its labels: to a pool, to a new machine, to nobody, or back with a reason.
//!
//! What is decided here is decided once, at the door, from the labels and the configuration alone.
//! Nothing is guessed: a pool that there is not is an answer of its own and never a cold start.
//!
//! Not here: reading labels (`labels`), merging what is known of a job (`job`), queues.

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

/// The stack that a label means if it names none.
pub const ENV_DEFAULT: &str = "production";
/// The pool that dependabot's jobs go to, if there is one of this name.
pub const DEPENDABOT: &str = "dependabot";

/// What a stack is and has.
#[derive(Clone, Debug)]
pub struct Routing<'a> {
    /// Whose jobs it takes.
    pub scope: &'a ServiceScope,
    /// The stack's name.
    pub env: &'a str,
    /// Where it is.
    pub region: &'a str,
    /// Its pools: of the configured ones those of its own `env`.
    pub pools: &'a BTreeSet<PoolName>,
    /// Pools that are configured and cannot be believed: nobody knows yet what their jobs would get.
    pub broken: &'a BTreeSet<PoolName>,
    /// Its runners and images.
    pub classes: &'a Catalogue,
    /// Where jobs go that name neither a pool nor a machine.
    pub default_pool: Option<&'a PoolName>,
    /// What strangers may ask for.
    pub policy: &'a Policy,
    /// Whether a valid configuration was ever read; until then nobody knows which pools there are.
    pub config_loaded: bool,
}

/// Where a job goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// To this pool.
    Pool(PoolName),
    /// To a machine of this class, reused if it may be, else new.
    Launch(Launch),
    /// Nowhere: it names a pool that there is not.
    UnknownPool {
        /// The pool.
        pool: PoolName,
        /// Those it resembles.
        suggestions: Vec<String>,
    },
    /// It is not for this stack.
    NotOurs(NotOurs),
    /// It is, and may not be served; each reason is for its author to read.
    Refused(Vec<RouteRefusal>),
    /// It has to wait until a configuration was read, or until what that says of its pool is mended.
    Wait,
}

/// What to launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Its class; an anonymous one is never reused.
    pub class: ClassRef,
    /// Everything that the label and its runner say.
    pub spec: LabelSpec,
}

/// Why a job is not for this stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotOurs {
    /// Its repository is not one that the stack serves, whatever its labels say.
    Outside,
    /// No label speaks to us.
    NoHead,
    /// It is for another stack.
    Env,
    /// It is for another region.
    Region,
    /// It is dependabot's, and there is no pool for that.
    NoDependabotPool,
}

/// Why a job may not be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteRefusal {
    /// Its labels cannot be read.
    #[error("{0}")]
    Label(LabelFinding),
    /// A runner may not have one of its labels.
    #[error(transparent)]
    Ownership(#[from] NotOwned),
    /// It asks for more than it may.
    #[error(transparent)]
    Policy(#[from] PolicyRefusal),
    /// It asks for what there is not.
    #[error(transparent)]
    Class(#[from] ResolveError),
}

/// Decides where a job of this repository and run with these labels goes.
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
    // A job that names a pool means that pool, dependabot or not.
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
    // Labels beyond the most that are read were not judged.
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

/// The list of plain labels that has all labels of a job that does not speak to us otherwise.
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
    // A request's label is that request's alone, whatever pattern would have it.
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
    // An env that cannot be read is no stack's, so that not every stack refuses the job.
    let unread =
        |key: LabelKey, value: &Option<String>| spec.given.contains(&key) && value.is_none();
    if unread(LabelKey::Env, &spec.env) || spec.env.as_deref().unwrap_or(ENV_DEFAULT) != routing.env
    {
        return Some(NotOurs::Env);
    }
    let elsewhere = spec.region.as_deref().is_some_and(|region| region != routing.region);
    (unread(LabelKey::Region, &spec.region) || elsewhere).then_some(NotOurs::Region)
}

/// What a built-in runner's name asks for; a configured runner is the operator's own word.
fn builtin_cpu(spec: &LabelSpec, classes: &Catalogue) -> Option<labels::value::AmountRange> {
    let name = spec.runner.as_ref().filter(|name| !classes.runners.contains_key(*name))?;
    class::builtin(name)?.cpu
}

/// To this pool, or until it is mended to nobody, if there is one of this name.
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

/// Whole types may have as many vCPUs as they have, but not more than the policy's maximum: a
/// label that names a type and no count must not ask for more than one that names the count.
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
