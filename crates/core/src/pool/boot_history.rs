//! Whether machines of the wanted specification boot at all.
//!
//! Boots that failed since the last success are *in a row*. From the third on the specification is
//! in *quarantine*: the plan launches nothing for a while that doubles with each failed launch, and
//! then one machine at a time, until one boots.
//!
//! Not here: how a plan uses it (`rollout`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::desired::DesiredPool;
use super::observed::{BootFailure, ObservedPool, WarmUp};
use super::role::PoolRole;
use super::supply::SortedMachines;
use crate::ids::{InstanceId, IntentId};
use crate::instance::{EndReason, State};
use crate::limits::{BOOT_FAILURES_MAX, QUARANTINE, QUARANTINE_MAX};
use crate::time::Timestamp;

/// How the last boots of the wanted specification went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BootHistory {
    /// The last one succeeded, or there was none.
    Sound,
    /// Some failed in a row.
    Failing {
        /// How many.
        failed: usize,
    },
    /// Too many failed in a row.
    Quarantined {
        /// How many.
        failed: usize,
        /// Until when nothing is launched.
        until: Timestamp,
    },
}

impl BootHistory {
    /// The history, with the failures of this observation.
    pub(super) fn of(
        observed: &ObservedPool,
        sorted: &SortedMachines<'_>,
        desired: &DesiredPool,
        now: Timestamp,
    ) -> Self {
        let mut failures: BTreeMap<InstanceId, (Timestamp, IntentId)> = BTreeMap::new();
        let seen = sorted.each.iter().filter_map(|(instance, role)| {
            let failed = match (role, &instance.record.state) {
                (PoolRole::Ending, _) => instance.ends_unbooted(),
                (PoolRole::Error(why) | PoolRole::Dangling(why), State::Created { .. })
                    if *why == EndReason::FailedWarmUp =>
                {
                    Some(now)
                }
                _ => None,
            };
            let (record, at) = (&instance.record, failed?);
            let (id, intent) = (record.id.clone(), record.facts.intent.clone());
            Some(BootFailure { id, intent, spec_hash: record.facts.spec_hash.clone(), at })
        });
        for failure in observed.failures.iter().cloned().chain(seen) {
            let later = observed.booted.is_none_or(|booted| booted < failure.at);
            if failure.spec_hash == desired.spec_hash && later {
                let (id, first) = (failure.id, (failure.at, failure.intent));
                let known = failures.entry(id).or_insert_with(|| first.clone());
                *known = first.min(known.clone());
            }
        }
        // A machine that has just warmed up is a success that the journal does not hold yet.
        let sound = sorted.warming.iter().any(|warming| warming.warm_up == WarmUp::Complete);
        if sound { Self::Sound } else { Self::judge(&failures) }
    }

    fn judge(failures: &BTreeMap<InstanceId, (Timestamp, IntentId)>) -> Self {
        let failed = failures.len();
        if failed == 0 {
            return Self::Sound;
        }
        if failed < BOOT_FAILURES_MAX {
            return Self::Failing { failed };
        }
        let launches: BTreeSet<_> = failures.values().map(|(_, intent)| intent).collect();
        let last = failures.values().map(|(at, _)| *at).max().unwrap_or(Timestamp::EPOCH);
        Self::Quarantined { failed, until: last.after(backoff(launches.len())) }
    }
}

/// How long the plan launches nothing after this many failed launches.
fn backoff(launches: usize) -> Duration {
    let doublings = u32::try_from(launches.saturating_sub(1)).unwrap_or(u32::MAX);
    let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
    QUARANTINE.saturating_mul(factor).min(QUARANTINE_MAX)
}
