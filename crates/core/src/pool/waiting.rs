//! The notes of a plan: what it waits on.
//!
//! Not here: their texts (`note`).

use super::boot_history::BootHistory;
use super::capacity::PoolCapacity;
use super::desired::{DesiredPool, PoolMode};
use super::note::Note;
use super::role::StopStep;
use super::rollout::{RolloutLimits, RolloutShare};
use super::supply::{Allotment, SortedMachines};
use crate::time::Timestamp;

/// The inputs of the notes.
pub(super) struct Notes<'a> {
    pub(super) sorted: &'a SortedMachines<'a>,
    pub(super) allotted: &'a Allotment<'a>,
    pub(super) limits: RolloutLimits,
    pub(super) boots: BootHistory,
    pub(super) capacity: &'a PoolCapacity,
    pub(super) short_until: Option<Timestamp>,
}

impl Notes<'_> {
    pub(super) fn of(
        &self,
        shares: [RolloutShare; 2],
        created: usize,
        desired: &DesiredPool,
        now: Timestamp,
    ) -> Vec<Note> {
        let mut notes = Vec::new();
        let in_use = self.sorted.protected;
        match desired.mode {
            PoolMode::Draining => notes.push(Note::Draining { in_use }),
            PoolMode::Removed => notes.push(Note::Removed { in_use }),
            PoolMode::Kept | PoolMode::Paused if desired.target.entry.is_none() => {
                notes.push(Note::NoEntry);
            }
            PoolMode::Kept | PoolMode::Paused => {}
        }
        notes.extend(self.ceiling(shares, created, desired));
        notes.extend(self.shortage(shares));
        notes.extend(self.boots(shares, desired, now));
        notes.extend(self.waits(shares));
        notes
    }

    /// How many launches a ceiling prevents, and how much of the target the pool's own one
    /// excludes.
    fn ceiling(
        &self,
        shares: [RolloutShare; 2],
        created: usize,
        desired: &DesiredPool,
    ) -> Option<Note> {
        let (scope, max, used) = self.capacity.nearest.clone()?;
        let wanted: usize = shares.iter().map(|share| share.wanted()).sum();
        let launches = wanted.min(self.limits.launches);
        let (hot, stopped) = desired.aim();
        let target = desired.target.hot as usize + desired.target.stopped as usize;
        let out_of_reach = if desired.empties() { 0 } else { target - hot - stopped };
        let short = launches.saturating_sub(created) + out_of_reach;
        (short > 0).then_some(Note::Ceiling { scope, max, used, short })
    }

    fn shortage(&self, shares: [RolloutShare; 2]) -> Option<Note> {
        let short: usize = shares.iter().map(|share| share.wanted()).sum();
        let until = self.short_until.filter(|_| short > 0)?;
        Some(Note::NoCapacity { short, until })
    }

    fn boots(
        &self,
        shares: [RolloutShare; 2],
        desired: &DesiredPool,
        now: Timestamp,
    ) -> Option<Note> {
        let old: usize = shares.iter().map(|share| share.old_kept).sum();
        match self.boots {
            _ if desired.empties() => None,
            BootHistory::Quarantined { failed, until } if now < until => {
                Some(Note::Quarantined { failed, until })
            }
            BootHistory::Quarantined { failed, .. } => Some(Note::Probing { failed }),
            BootHistory::Failing { failed } if self.limits.held => {
                Some(Note::RolloutPaused { failed, old })
            }
            BootHistory::Failing { .. } | BootHistory::Sound => {
                (old > 0).then_some(Note::RollingOut { old })
            }
        }
    }

    /// Machines that are under way, and machines that the cloud does not list.
    fn waits(&self, shares: [RolloutShare; 2]) -> Vec<Note> {
        let steps = self.allotted.stopping.iter().map(|(_, step)| *step);
        let (mut stopping, mut fenced, mut until) = (0, 0, Timestamp::EPOCH);
        for step in steps {
            match step {
                StopStep::Wait => stopping += 1,
                StopStep::Fenced(fence) => (fenced, until) = (fenced + 1, until.max(fence)),
                StopStep::Stop(_) | StopStep::Keep => {}
            }
        }
        let expiring = shares.iter().map(|share| share.expiring_kept).sum();
        [
            (expiring, Note::Expiring { count: expiring }),
            (self.allotted.launching, Note::Launching { count: self.allotted.launching }),
            (self.allotted.warming, Note::WarmingUp { count: self.allotted.warming }),
            (stopping, Note::Stopping { count: stopping }),
            (fenced, Note::Fenced { count: fenced, until }),
            (self.sorted.unseen, Note::Unseen { count: self.sorted.unseen }),
        ]
        .into_iter()
        .filter_map(|(count, note)| (count > 0).then_some(note))
        .collect()
    }
}
