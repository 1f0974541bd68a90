//! Warns if replacing old hot machines takes too many of the launches that jobs need.
//!
//! A hot machine is replaced at the end of its lifetime, used or not. EC2 grants launches at a
//! fixed rate, and replacements count against it like any other launch.
//!
//! Not here: what happens to an expiring machine.

use std::time::Duration;

use super::finding::Findings;
use super::node::MappingEntry;
use super::pool::PoolConfig;
use crate::ids::PoolName;
use crate::limits::{LAUNCHES_PER_HOUR_SUSTAINED, Limits};

/// The share of all launches above which we warn, in percent.
const CHURN_PERCENT_MAX: u64 = 25;

/// Warns at the pool with the most replacements if all pools together need too many launches.
pub(super) fn check<'c>(
    entries: &[MappingEntry],
    pools: impl Iterator<Item = (&'c PoolName, &'c PoolConfig)>,
    findings: &mut Findings,
) {
    let taken: Vec<_> = pools.map(|(name, pool)| (launches_per_hour(pool), name)).collect();
    let total = taken.iter().fold(0_u64, |sum, (launches, _)| sum.saturating_add(*launches));
    if total * 100 <= LAUNCHES_PER_HOUR_SUSTAINED * CHURN_PERCENT_MAX {
        return;
    }
    let most = taken.iter().max_by_key(|(launches, _)| *launches);
    let place = most.and_then(|(_, name)| entries.iter().find(|e| e.key == name.as_str()));
    if let Some(entry) = place {
        let message = format!(
            "replacing hot machines takes {total} launches an hour, of the \
             {LAUNCHES_PER_HOUR_SUSTAINED} that EC2 gives back"
        );
        findings
            .warning(entry.mark, "churn", message)
            .instead("raise `x-bullpen.pools.<name>.hot-lifetime`");
    }
}

/// Replacements per hour at the time of day when the pool keeps the most hot machines.
fn launches_per_hour(pool: &PoolConfig) -> u64 {
    const HOUR: Duration = Duration::from_secs(3_600);
    let hot = pool.schedule.entries.iter().map(|entry| u64::from(entry.hot)).max().unwrap_or(0);
    let lifetime = pool.own.hot_lifetime.unwrap_or(Limits::DEFAULT.hot_lifetime);
    hot.saturating_mul(HOUR.as_secs()) / lifetime.as_secs().max(1)
}
