//! How far replacing goes in one plan: who stands in, how many launches are good now, and how many
//! ready machines may be missing meanwhile.
//!
//! Rolling prefers a *surge*: a few more machines than the aim until the old ones can go. Where a
//! ceiling leaves no room for it, a few old ones go first, and never so many that more than that are
//! missing.
//!
//! Not here: which machines are old (`standing`).

use super::boot_history::BootHistory;
use super::desired::DesiredPool;
use super::supply::ReadyMachines;
use crate::config::pool::Rollout;
use crate::limits::ROLLING_PARTS;
use crate::time::Timestamp;

/// What is good for the whole pool now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RolloutLimits {
    /// Whether old machines are replaced a few at a time.
    pub(super) rolling: bool,
    /// Whether old machines stay because what would replace them may not boot.
    pub(super) held: bool,
    /// How many machines may be launched, whatever is missing.
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

/// One kind's numbers in one plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RolloutShare {
    aim: usize,
    ready: usize,
    coming: usize,
    old: usize,
    /// How many expiring machines stand in for what is not ready.
    pub(super) expiring_kept: usize,
    /// How many old machines do.
    pub(super) old_kept: usize,
}

impl RolloutShare {
    pub(super) fn of(
        stock: &ReadyMachines<'_>,
        aim: usize,
        coming: usize,
        terms: RolloutLimits,
    ) -> Self {
        let (ready, old) = (stock.ready.len(), stock.old.len());
        let open = aim.saturating_sub(ready);
        let expiring_kept = stock.expiring.len().min(open);
        let stand_in = terms.rolling || terms.held;
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

    /// Lets a few old machines go before anything replaces them, if they are what takes the room.
    pub(super) fn make_room(&mut self) {
        if self.old_kept == 0 || self.coming > 0 || self.wanted() == 0 {
            return;
        }
        let least = self.aim.saturating_sub(self.part());
        let others = self.ready + self.expiring_kept;
        self.old_kept = self.old_kept.min(least.saturating_sub(others));
    }

    /// How many ready machines are more than wanted.
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

/// How many more may stand beside old machines of both kinds. What warms up may become either, and
/// counts as hot first: by itself each kind would launch for what the other is given.
pub(super) fn surge_left(shares: [RolloutShare; 2]) -> usize {
    if shares.iter().any(|share| share.old_kept == 0) {
        return usize::MAX;
    }
    let most: usize = shares.iter().map(|share| share.aim + share.part()).sum();
    let there: usize = shares.iter().map(|share| share.ready + share.coming + share.old_kept).sum();
    most.saturating_sub(there)
}
