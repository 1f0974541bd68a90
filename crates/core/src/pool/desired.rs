//! What is desired of one pool at one instant.
//!
//! Not here: reading it from a file (`config`), or evaluating a schedule (`schedule`).

use std::time::Duration;

use crate::class::Usage;
use crate::config::pool::Rollout;
use crate::creation::{Ceiling, Scope};
use crate::ids::{PoolName, SpecHash};
use crate::limits::{Limits, ROLLING_ABOVE};
use crate::schedule::Target;

/// What to do with a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolMode {
    /// It keeps its target.
    Kept,
    /// An operator ordered to leave it as it is.
    Paused,
    /// An operator ordered to empty it.
    Draining,
    /// It is no longer in the configuration.
    Removed,
}

/// A ceiling, and how much of it is used, launches in flight included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// The ceiling.
    pub ceiling: Ceiling,
    /// How many machines count under it, by the ledger's count.
    pub used: u32,
}

/// What is desired of one pool now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredPool {
    /// Which pool.
    pub pool: PoolName,
    /// What to do with it.
    pub mode: PoolMode,
    /// The schedule's target now.
    pub target: Target,
    /// The wanted specification of its machines.
    pub spec_hash: SpecHash,
    /// How outdated machines are replaced; by the target's size if absent.
    pub rollout: Option<Rollout>,
    /// How its hot machines are paid for. Stopped ones are always on-demand.
    pub hot_usage: Usage,
    /// When a hot machine is due to be replaced.
    pub hot_lifetime: Duration,
    /// The ceilings that a launch for this pool would count under.
    pub allowances: Vec<Allowance>,
    /// The stack's numbers.
    pub limits: Limits,
}

impl DesiredPool {
    /// For a pool without a configuration: it is to have no machines.
    pub fn nothing(pool: PoolName, mode: PoolMode, limits: &Limits) -> Self {
        Self {
            pool,
            mode,
            target: Target::NOTHING,
            spec_hash: SpecHash::new(""),
            rollout: None,
            hot_usage: Usage::OnDemand,
            hot_lifetime: limits.hot_lifetime,
            allowances: Vec::new(),
            limits: limits.clone(),
        }
    }

    /// Whether the pool is to become empty.
    pub(super) fn empties(&self) -> bool {
        match self.mode {
            PoolMode::Draining | PoolMode::Removed => true,
            PoolMode::Kept | PoolMode::Paused => false,
        }
    }

    /// How many hot and stopped machines to aim at. A target above the pool's own ceiling cannot be
    /// reached, and hot ones come first under it. Ceilings that are shared with others do not lower
    /// the aim: they may have capacity again in the next moment.
    pub(super) fn aim(&self) -> (usize, usize) {
        if self.empties() {
            return (0, 0);
        }
        let own = |allowance: &&Allowance| matches!(allowance.ceiling.scope, Scope::Pool(_));
        let max = self.allowances.iter().filter(own).map(|allowance| allowance.ceiling.max).min();
        let max = max.unwrap_or(u32::MAX);
        let hot = self.target.hot.min(max);
        (hot as usize, self.target.stopped.min(max - hot) as usize)
    }

    /// How outdated machines are replaced.
    pub(super) fn rollout(&self) -> Rollout {
        let size = self.target.hot.saturating_add(self.target.stopped);
        let by_size = if size > ROLLING_ABOVE { Rollout::Rolling } else { Rollout::Immediate };
        self.rollout.unwrap_or(by_size)
    }
}
