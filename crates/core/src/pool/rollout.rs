//! How far a rollout goes in one plan: which old machines stay, how many launches are allowed, and
//! how many ready machines may be missing meanwhile.
//!
//! Rolling prefers a *surge*: a few more machines than the aim until the old ones can go. If a
//! ceiling leaves no capacity for a surge, a few old machines go first, so that at most those few
//! are missing.
//!
//! Not here: which machines are old (`role`).

use super::boot_history::BootHistory;
use super::desired::DesiredPool;
use super::supply::ReadyMachines;
use crate::config::pool::Rollout;
use crate::limits::ROLLING_PARTS;
use crate::time::Timestamp;

/// The limits of one plan for the whole pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RolloutLimits {
    /// Whether old machines are replaced a few at a time.
    pub(super) rolling: bool,
    /// Whether old machines stay because their replacements may not boot.
    pub(super) held: bool,
    /// How many machines may be launched, even if more are missing.
    pub(super) launches: usize,
}

impl RolloutLimits {
    /// `coming` machines are on their way already.
    pub(super) fn of(
        boots: BootHistory,
        desired: &DesiredPool,
        any_old: bool,
        coming: usize,
        now: Timestamp,
    ) -> Self {
        let rolling = desired.rollout() == Rollout::Rolling;
        let one = 1_usize.saturating_sub(coming);
        let (held, launches) = match boots {
            BootHistory::Failing { .. } if rolling && any_old => (true, one),
            BootHistory::Sound | BootHistory::Failing { .. } => (false, usize::MAX),
            BootHistory::Quarantined { until, .. } if now < until => (true, 0),
            BootHistory::Quarantined { .. } => (true, one),
        };
        Self { rolling, held, launches }
    }
}

/// The numbers of one standby kind in one plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RolloutShare {
    aim: usize,
    ready: usize,
    coming: usize,
    old: usize,
    /// How many expiring machines stand in for missing ready ones.
    pub(super) expiring_kept: usize,
    /// How many old machines stand in for missing ready ones.
    pub(super) old_kept: usize,
}

impl RolloutShare {
    pub(super) fn of(
        machines: &ReadyMachines<'_>,
        aim: usize,
        coming: usize,
        limits: RolloutLimits,
    ) -> Self {
        let (ready, old) = (machines.ready.len(), machines.old.len());
        let open = aim.saturating_sub(ready);
        let expiring_kept = machines.expiring.len().min(open);
        let stand_in = limits.rolling || limits.held;
        let old_kept = if stand_in { old.min(open - expiring_kept) } else { 0 };
        Self { aim, ready, coming, old, expiring_kept, old_kept }
    }

    /// How many are neither ready nor coming.
    pub(super) fn missing(self) -> usize {
        self.aim.saturating_sub(self.ready + self.coming)
    }

    /// How many to launch, if nothing else limits it.
    pub(super) fn wanted(self) -> usize {
        if self.old_kept == 0 {
            return self.missing();
        }
        let most = self.aim + self.part();
        self.missing().min(most.saturating_sub(self.ready + self.coming + self.old_kept))
    }

    /// Lets a few old machines end before the launch of their replacements, if no capacity is left.
    pub(super) fn free_capacity(&mut self) {
        if self.old_kept == 0 || self.coming > 0 || self.wanted() == 0 {
            return;
        }
        let least = self.aim.saturating_sub(self.part());
        let others = self.ready + self.expiring_kept;
        self.old_kept = self.old_kept.min(least.saturating_sub(others));
    }

    /// How many ready machines there are beyond the aim.
    pub(super) fn excess(self) -> usize {
        self.ready.saturating_sub(self.aim)
    }

    /// How many old machines go now.
    pub(super) fn old_going(self) -> usize {
        self.old - self.old_kept
    }

    /// The part that is replaced at a time.
    fn part(self) -> usize {
        self.aim.div_ceil(ROLLING_PARTS as usize)
    }
}

/// How many more machines may stand beside old machines of both kinds. A warming machine may become
/// either kind and counts as hot first, so each kind alone would launch for a place that the other
/// has.
pub(super) fn surge_left(shares: [RolloutShare; 2]) -> usize {
    if shares.iter().any(|share| share.old_kept == 0) {
        return usize::MAX;
    }
    let most: usize = shares.iter().map(|share| share.aim + share.part()).sum();
    let there: usize = shares.iter().map(|share| share.ready + share.coming + share.old_kept).sum();
    most.saturating_sub(there)
}
