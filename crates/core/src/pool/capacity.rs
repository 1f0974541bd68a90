//! How much capacity the ceilings leave.
//!
//! Not here: keeping a ceiling when several replicas launch at once (the `Ledger` port's
//! reservation).

use super::action::count;
use super::desired::{Allowance, DesiredPool};
use super::observed::ObservedPool;
use super::supply::SortedMachines;
use crate::creation::Scope;

/// How many more machines fit under every ceiling, and which ceiling is the nearest.
pub(super) struct PoolCapacity {
    pub(super) left: usize,
    pub(super) nearest: Option<(Scope, u32, u32)>,
}

impl PoolCapacity {
    /// The ledger's count may be older or newer than the observation: the larger of the two counts.
    pub(super) fn of(
        observed: &ObservedPool,
        sorted: &SortedMachines<'_>,
        desired: &DesiredPool,
    ) -> Self {
        let used = |allowance: &Allowance| {
            let scope = &allowance.ceiling.scope;
            let records = sorted.each.iter().map(|(instance, _)| &instance.record);
            let live = records.filter(|record| {
                let facts = &record.facts;
                record.state.is_live() && scope.counts(&facts.class, facts.pool.as_ref())
            });
            let launching = observed
                .each_launch()
                .into_iter()
                .filter(|launch| scope.counts(&launch.class, launch.pool.as_ref()))
                .fold(0, |sum: u32, launch| sum.saturating_add(launch.outstanding));
            count(live.count()).saturating_add(launching).max(allowance.used)
        };
        let nearest = desired
            .allowances
            .iter()
            .map(|allowance| (used(allowance), &allowance.ceiling))
            .min_by_key(|(used, ceiling)| (ceiling.max.saturating_sub(*used), &ceiling.scope));
        let Some((used, ceiling)) = nearest else {
            return Self { left: usize::MAX, nearest: None };
        };
        let left = ceiling.max.saturating_sub(used) as usize;
        Self { left, nearest: Some((ceiling.scope.clone(), ceiling.max, used)) }
    }
}
