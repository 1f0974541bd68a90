//! A pool as configured: the specification of its machines and the machines that it promises, which
//! is everything about a pool that does not depend on the time.
//!
//! Not here: reading a configuration (`config`), how many machines are wanted now
//! ([`DesiredPool`]).

use std::collections::BTreeMap;
use std::time::Duration;

use super::desired::{Allowance, DesiredPool, PoolMode};
use crate::class::{RunnerClass, Usage};
use crate::config::pool::PoolConfig;
use crate::config::runner::RunnerConfig;
use crate::config::runs_on::Config;
use crate::creation::{Ceiling, Scope};
use crate::ids::{ImageName, PoolName, SpecHash};
use crate::labels::LabelSpec;
use crate::labels::class::{Catalogue, ResolveError, resolve};
use crate::limits::Limits;
use crate::request::TypePattern;
use crate::sabotage;
use crate::schedule::{UnknownZone, Zone, target_at};
use crate::spec_hash::{HashedRunner, MachineSpec, PoolSpec, spec_hash};
use crate::time::Timestamp;

/// What every machine of a stack is built from, in every class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackBase {
    /// The image of a runner that names none.
    pub image: String,
    /// The cloud's ids of named images, if configured.
    pub images: BTreeMap<ImageName, String>,
    /// The version of GitHub's runner.
    pub runner_version: String,
    /// The script that runs on every machine before its first runner.
    pub pre_runner: Option<String>,
}

/// One pool whose configuration is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blueprint {
    /// Which pool.
    pub name: PoolName,
    /// Its configuration.
    pub config: PoolConfig,
    /// The shape of its machines.
    pub class: RunnerClass,
    /// Which machine types fit.
    pub allowed_types: Vec<TypePattern>,
    /// The specification of its machines.
    pub spec_hash: SpecHash,
    zone: Zone,
}

/// Why the planner leaves a pool alone whose part of the file cannot be read.
const BROKEN: &str = "its configuration is invalid";

/// All pools of one stack, as configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blueprints {
    /// The pools with a valid configuration.
    pub pools: BTreeMap<PoolName, Blueprint>,
    /// The other pools, and why. The planner leaves them as they are.
    pub unbuildable: BTreeMap<PoolName, String>,
}

impl Blueprints {
    /// The pools of this environment; this stack ignores the others.
    pub fn of(env: &str, config: &Config, base: &StackBase) -> Self {
        let catalogue = config.catalogue();
        // The environment of these is unknown; leaving another environment's pool alone costs
        // nothing.
        let broken = config.broken.iter().map(|name| (name.clone(), BROKEN.to_owned()));
        let mut all = Self { unbuildable: broken.collect(), ..Self::default() };
        for (name, pool) in config.pools.iter().filter(|(_, pool)| pool.env == env) {
            match Blueprint::of((name, pool), config, &catalogue, base) {
                Ok(blueprint) => drop(all.pools.insert(name.clone(), blueprint)),
                Err(why) => drop(all.unbuildable.insert(name.clone(), why.to_string())),
            }
        }
        all
    }
}

/// Why a pool has no blueprint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unbuildable {
    /// Its runner cannot be resolved.
    #[error(transparent)]
    Runner(#[from] ResolveError),
    /// Its time zone does not exist.
    #[error(transparent)]
    Zone(#[from] UnknownZone),
}

impl Blueprint {
    /// The blueprint of a configured pool.
    pub fn of(
        (name, pool): (&PoolName, &PoolConfig),
        config: &Config,
        catalogue: &Catalogue,
        base: &StackBase,
    ) -> Result<Self, Unbuildable> {
        let asked = LabelSpec { runner: Some(pool.runner.clone()), ..LabelSpec::default() };
        let resolved = resolve(&asked, catalogue)?;
        let runner = config.runners.get(&pool.runner).cloned().unwrap_or_default();
        let class = resolved.class.class().clone();
        let any = resolved.spec.families.is_empty();
        let families = resolved.spec.families;
        Ok(Self {
            name: name.clone(),
            zone: Zone::parse(&pool.schedule.zone)?,
            spec_hash: hash(pool, &runner, &class, config, base),
            allowed_types: if any { vec![TypePattern::new("*")] } else { families },
            class,
            config: pool.clone(),
        })
    }

    /// How its hot machines are paid for: on demand, unless the pool itself asks for spot; its
    /// runner's setting does not count. Stopped ones are always on-demand.
    pub const fn hot_usage(&self) -> Usage {
        if self.config.own.spot { Usage::Spot } else { Usage::OnDemand }
    }

    /// The age at which its hot machines are due to be replaced.
    pub fn hot_lifetime(&self, limits: &Limits) -> Duration {
        self.config.own.hot_lifetime.unwrap_or(limits.hot_lifetime)
    }

    /// The ceilings that a launch for it counts under: the stack's that concern it, and its own.
    pub fn ceilings(&self, stack: &[Ceiling]) -> Vec<Ceiling> {
        if sabotage!("pools-ignore-ceilings") {
            return Vec::new();
        }
        let concerns =
            |ceiling: &&Ceiling| ceiling.scope.counts(&self.class.name, Some(&self.name));
        let own =
            self.config.own.max.map(|max| Ceiling { scope: Scope::Pool(self.name.clone()), max });
        stack.iter().filter(concerns).cloned().chain(own).collect()
    }

    /// What is desired of it now.
    pub fn desired(
        &self,
        mode: PoolMode,
        allowances: Vec<Allowance>,
        limits: &Limits,
        now: Timestamp,
    ) -> DesiredPool {
        DesiredPool {
            pool: self.name.clone(),
            mode,
            target: target_at(&self.config.schedule, &self.zone, now),
            spec_hash: self.spec_hash.clone(),
            rollout: self.config.own.rollout,
            hot_usage: self.hot_usage(),
            hot_lifetime: self.hot_lifetime(limits),
            allowances,
            limits: limits.clone(),
        }
    }
}

/// The spec hash. `spot` is not in it, because the usage does not change the machine.
fn hash(
    pool: &PoolConfig,
    runner: &RunnerConfig,
    class: &RunnerClass,
    config: &Config,
    base: &StackBase,
) -> SpecHash {
    let image = runner.image.as_ref().and_then(|image| config.images.get(image));
    let scripts = |of_image: Option<&String>, of_runner: Option<&String>| {
        let both: Vec<&str> = of_image.into_iter().chain(of_runner).map(String::as_str).collect();
        (!both.is_empty()).then(|| both.join("\0"))
    };
    let preinstall = image.and_then(|image| image.preinstall.as_ref());
    let prerun = image.and_then(|image| image.prerun.as_ref());
    let prerun = scripts(prerun, runner.prerun.as_ref());
    let shape = HashedRunner {
        vcpu_milli: Some((
            class.vcpu.min.saturating_mul(1_000),
            class.vcpu.max.saturating_mul(1_000),
        )),
        memory_mib: Some((
            class.memory_mib_min,
            runner.ram.map_or(class.memory_mib_min, |ram| ram.max_mib),
        )),
        architecture: Some(class.architecture.as_str().to_owned()),
        families: runner.family.iter().cloned().map(String::from).collect(),
        volume: runner.volume.as_ref().map(ToString::to_string),
        preinstall: scripts(preinstall, runner.preinstall.as_ref()),
        prerun: scripts(prerun.as_ref(), base.pre_runner.as_ref()),
        ..HashedRunner::default()
    };
    spec_hash(&MachineSpec {
        runner: shape,
        image: resolved_image(runner.image.as_ref(), config, base),
        runner_version: base.runner_version.clone(),
        pool: Some(PoolSpec {
            runner: pool.runner.to_string(),
            env: pool.env.clone(),
            version: pool.version.clone(),
        }),
    })
}

/// The cloud's id of the image, if it is known without a call to the cloud.
fn resolved_image(name: Option<&ImageName>, config: &Config, base: &StackBase) -> String {
    let Some(name) = name else { return base.image.clone() };
    if let Some(known) = base.images.get(name) {
        return known.clone();
    }
    match config.images.get(name) {
        Some(image) => match (&image.ami, &image.name) {
            (Some(ami), _) => ami.clone(),
            (None, Some(pattern)) => {
                format!("{}/{pattern}", image.owner.as_deref().unwrap_or_default())
            }
            (None, None) => name.to_string(),
        },
        None => name.to_string(),
    }
}
