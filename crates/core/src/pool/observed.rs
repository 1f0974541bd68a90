//! What was seen of one pool.
//!
//! Not here: seeing it (the engine), or what it means (`standing`).

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

use crate::creation::Intent;
use crate::ids::{InstanceId, IntentId, SpecHash};
use crate::instance::{EndReason, Record, State};
use crate::mailbox::{Report, SignalKind};
use crate::ports::MachineState;
use crate::sabotage;
use crate::time::Timestamp;

/// How far a machine's agent has come with its warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WarmUp {
    /// It has reported nothing final.
    Underway,
    /// It has reported that the machine is ready to be used, or to be stopped.
    Complete,
    /// It has reported a failure.
    Failed,
}

impl WarmUp {
    /// By what an agent has reported, if anything.
    pub fn of(report: Option<&Report>) -> Self {
        let has = |kind| report.is_some_and(|report| report.signals.contains_key(&kind));
        if has(SignalKind::WarmUpFailed) {
            Self::Failed
        } else if has(SignalKind::WarmUpOk) {
            Self::Complete
        } else {
            Self::Underway
        }
    }
}

/// One machine of a pool: its record, and what others say of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolMachine {
    /// What the ledger says.
    pub record: Record,
    /// What the cloud says; nothing if it did not list the machine, which proves nothing.
    pub machine: Option<MachineState>,
    /// What the agent says.
    pub warm_up: WarmUp,
    /// Whether a job is known to have started on it.
    pub job_started: bool,
    /// Whether the cloud has announced to take it away.
    pub interrupted: bool,
}

impl PoolMachine {
    /// Whether its agent said that it does not come up, and not because it is taken away.
    pub(super) fn failed_to_boot(&self) -> bool {
        self.warm_up == WarmUp::Failed && !self.interrupted
    }

    /// Since when it ends because it did not boot, whoever ends it. A machine whose warm-up failed ends
    /// itself, and somebody who only saw that it is gone may have been first. Of a machine that was
    /// warm once, its job may have written that: it says nothing about the pool's next boot.
    pub(super) fn ends_unbooted(&self) -> Option<Timestamp> {
        match &self.record.state {
            State::Terminating { why: EndReason::FailedWarmUp, since } => Some(*since),
            State::Terminating { why: EndReason::MachineGone, since } => {
                let is_believed = !self.record.was_warm() || sabotage!("jobs-fail-warm-ups");
                (is_believed && self.failed_to_boot()).then_some(*since)
            }
            _ => None,
        }
    }

    /// Of two sightings of one machine the later, and of two at once always the same one.
    fn freshness(&self) -> impl Ord + use<> {
        let said = (self.job_started, self.interrupted, self.warm_up, self.machine);
        (self.record.revision, said)
    }
}

/// A machine that did not boot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BootFailure {
    /// Which machine.
    pub id: InstanceId,
    /// The launch it came from.
    pub intent: IntentId,
    /// What it was built from.
    pub spec_hash: SpecHash,
    /// When it was known.
    pub at: Timestamp,
}

/// Everything that was seen of one pool. The launches must have been read before the records: a
/// machine that moves from one to the other in between is then counted twice, and never not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedPool {
    /// Its machines, in every live state.
    pub instances: Vec<PoolMachine>,
    /// Launches of which something is outstanding.
    pub launches: Vec<Intent>,
    /// Boots that failed lately, those of other specifications too.
    pub failures: Vec<BootFailure>,
    /// When a machine of the wanted specification last completed its warm-up.
    pub booted: Option<Timestamp>,
    /// Until when the cloud is known to have nothing to launch.
    pub short_until: Option<Timestamp>,
}

impl ObservedPool {
    /// Each machine once, in the order of their ids: a listing may show one twice.
    pub(super) fn each(&self) -> Vec<&PoolMachine> {
        let mut each: Vec<_> = self.instances.iter().collect();
        each.sort_by(|one, other| {
            let by_id = one.record.id.cmp(&other.record.id);
            by_id.then_with(|| other.freshness().cmp(&one.freshness()))
        });
        each.dedup_by_key(|one| &one.record.id);
        each
    }

    /// Each launch once, as it was written last.
    pub(super) fn each_launch(&self) -> Vec<&Intent> {
        let mut each: Vec<_> = self.launches.iter().collect();
        each.sort_by_key(|launch| (&launch.id, Reverse((launch.revision, launch.outstanding))));
        each.dedup_by_key(|launch| &launch.id);
        each
    }
}
