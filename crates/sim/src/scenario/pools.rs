//! Standby pools in a scenario: their configuration, their machines, and waiting for them.
//!
//! Not here: keeping pools (the service does).

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bullpen_core::config::pool::PoolConfig;
use bullpen_core::config::runs_on;
use bullpen_core::ids::PoolName;
use bullpen_core::instance::{State, Tier};
use bullpen_core::ports::Ports;

use super::expect::StateCounts;
use super::serving::Serving;
use super::verb::Verb;
use super::words::{Misspelt, Words};
use crate::clock::pass;
use crate::service::SimService;
use crate::service::plan::{self, ServicePlan};
use crate::service::pools::Pools;
use crate::world::World;

/// How soon a process of the service reads a change.
const LOOK: Duration = Duration::from_secs(1);

/// The counts of a pool.
pub(super) const KEYS: [&str; 8] =
    ["hot", "stopped", "released", "warming", "stopping", "in-use", "ending", "launched"];

/// A pool's configuration, as a line sets it.
#[derive(Clone, Debug)]
pub(super) struct PoolLine {
    pub(super) name: PoolName,
    /// None if the line removes the pool.
    pool: Option<PoolConfig>,
}

/// `pool ci hot=2 stopped=1 [max=] [version=] [rollout=] [spot=yes] [lifetime=]`, or
/// `pool ci removed`
pub(super) fn pool(words: &mut Words) -> Result<Verb, Misspelt> {
    let name = words.plain("a pool's name")?;
    if let Some(word) = words.more() {
        word.one_of("pool", &[("removed", ())])?;
        let pool_line = PoolLine { name: PoolName::new(&name.text), pool: None };
        return Ok(Verb::Serving(Serving::Pool(pool_line)));
    }
    let mut said = |key: &'static str, unless: &str| {
        words.option(key).map_or_else(|| unless.to_owned(), |word| word.text)
    };
    let (hot, stopped, version) = (said("hot", "0"), said("stopped", "0"), said("version", "1"));
    let spot = said("spot", "no") == "yes";
    // Long: machines are replaced only in scenarios about replacement.
    let mut ours = format!("hot-lifetime: {}, spot: {spot}", said("lifetime", "16h"));
    for key in ["max", "rollout"] {
        let value = said(key, "");
        if !value.is_empty() {
            ours += &[", ", key, ": ", &value].concat();
        }
    }
    let text = format!(
        "runners: {{large: {{cpu: 2, ram: 4}}}}\npools:\n  {0}:\n    runner: large\n    version: v{version}\n    \
         schedule: [{{name: always, hot: {hot}, stopped: {stopped}}}]\nx-bullpen: {{pools: {{{0}: {{{ours}}}}}}}\n",
        name.text
    );
    let read = runs_on::read(text.as_bytes());
    let pool = read.value().and_then(|config| config.pools.values().next().cloned());
    let pool = pool.ok_or_else(|| name.wrong("such a pool cannot be configured"))?;
    let pool_line = PoolLine { name: PoolName::new(&name.text), pool: Some(pool) };
    Ok(Verb::Serving(Serving::Pool(pool_line)))
}

/// The current configuration of pools, shared by every process of the service.
#[derive(Clone, Debug)]
pub(super) struct PoolsConfigured(Arc<Mutex<Pools>>);

impl Default for PoolsConfigured {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(plan::base().pools)))
    }
}

impl PoolsConfigured {
    fn pools(&self) -> MutexGuard<'_, Pools> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies a line.
    pub(super) fn change(&self, pool_line: &PoolLine) {
        let name = pool_line.name.clone();
        match &pool_line.pool {
            Some(pool) => drop(self.pools().insert(name, pool.clone())),
            None => drop(self.pools().remove(&name)),
        }
    }

    /// The plan with these pools.
    pub(super) fn over(&self, plan: &ServicePlan) -> ServicePlan {
        let mut plan = plan.clone();
        plan.config.pools.clone_from(&self.pools());
        plan
    }

    /// Configures a service at every change.
    pub(super) async fn follow(&self, plan: &ServicePlan, service: &SimService<'_>) -> Infallible {
        let mut known = plan.config.pools.clone();
        loop {
            let now = self.pools().clone();
            if now != known {
                service.configure(plan.settings_with(Some(&now)));
                known = now;
            }
            pass(LOOK).await;
        }
    }

    fn promised(&self, name: &PoolName) -> (u64, u64) {
        let pools = self.pools();
        let entry = pools.get(name).and_then(|pool| pool.schedule.entries.first());
        entry.map_or((0, 0), |entry| (entry.hot.into(), entry.stopped.into()))
    }

    /// Waits until a pool has its configured machines, and none is warming up or stopping.
    pub(super) async fn kept(
        &self,
        world: &World,
        name: &PoolName,
        within: Duration,
    ) -> Result<Vec<String>, String> {
        let until = world.outside.clock().elapsed() + within;
        loop {
            let found = counts(world, name);
            let of = |key| found.get(key).copied().unwrap_or(0);
            let is_kept = (of("hot"), of("stopped")) == self.promised(name);
            if is_kept && of("warming") + of("stopping") == 0 {
                return Ok(vec![counts_line(&found)]);
            }
            if world.outside.clock().elapsed() > until {
                return Err(format!(
                    "pool {name} still has {} after {within:?}",
                    counts_line(&found)
                ));
            }
            pass(LOOK).await;
        }
    }
}

/// A pool's counts, in a line.
fn counts_line(found: &StateCounts) -> String {
    let some = KEYS.iter().filter_map(|key| {
        let count = found.get(key).copied().filter(|count| *count > 0)?;
        Some(format!("{count} {key}"))
    });
    let some: Vec<String> = some.collect();
    if some.is_empty() { "nothing".to_owned() } else { some.join(", ") }
}

/// A pool's machines by state, and the number of machines ever launched for it.
pub(super) fn counts(world: &World, name: &PoolName) -> StateCounts {
    let mut found: BTreeMap<&'static str, u64> = BTreeMap::new();
    let (records, _) = world.outside.ledger().snapshot();
    for record in records.iter().filter(|record| record.facts.pool.as_ref() == Some(name)) {
        let key = match &record.state {
            State::Created { .. } => "warming",
            State::Idle { tier: Tier::Hot, .. } => "hot",
            State::Idle { tier: Tier::Stopped, .. } => "stopped",
            State::Idle { tier: Tier::Released, .. } => "released",
            State::Stopping { .. } => "stopping",
            State::Claimed { .. } | State::Running { .. } | State::Releasing { .. } => "in-use",
            State::Terminating { .. } => "ending",
            State::Terminated { .. } => continue,
        };
        *found.entry(key).or_default() += 1;
    }
    let machines = world.outside.fleet().snapshot();
    let launched = machines.iter().filter(|machine| machine.pool.as_ref() == Some(name)).count();
    found.insert("launched", u64::try_from(launched).unwrap_or(u64::MAX));
    found
}
