//! One pool as it was observed: its machines, launches and boots.
//!
//! Not here: observing it (the engine), or the role of each machine (`role`).

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
    /// From the agent's report, if there is one.
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

/// One machine of a pool: its record, and what the cloud and its agent report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolMachine {
    /// The ledger's record.
    pub record: Record,
    /// The cloud's state; none if the cloud did not list the machine, which proves nothing.
    pub machine: Option<MachineState>,
    /// How far the warm-up is, by the agent's report.
    pub warm_up: WarmUp,
    /// Whether a job is known to have started on it.
    pub job_started: bool,
    /// Whether the cloud has announced that it will take the machine away.
    pub interrupted: bool,
}

impl PoolMachine {
    /// Whether its agent reported a failed warm-up, without an interruption as the cause.
    pub(super) fn failed_to_boot(&self) -> bool {
        self.warm_up == WarmUp::Failed && !self.interrupted
    }

    /// Since when it ends because it did not boot. The reason may also be `MachineGone`: a machine
    /// whose warm-up failed ends itself, and another process may only have seen that it is gone. If
    /// the machine was warm once, its job may have written that report, which says nothing about
    /// the pool's next boot.
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

    /// Orders observations of one machine: the later is greater, and of two at once always the
    /// same.
    fn freshness(&self) -> impl Ord + use<> {
        let reported = (self.job_started, self.interrupted, self.warm_up, self.machine);
        (self.record.revision, reported)
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

/// Everything that was observed of one pool. The engine must read the launches before the records:
/// a machine that moves from one to the other in between is then counted twice, and never missed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedPool {
    /// Its machines, in every live state.
    pub instances: Vec<PoolMachine>,
    /// How many live machines it has whose records this program cannot read.
    pub unreadable: usize,
    /// Launches that may still bring machines.
    pub launches: Vec<Intent>,
    /// The last failed boots, those of other specifications too.
    pub failures: Vec<BootFailure>,
    /// When a machine of the wanted specification last completed its warm-up.
    pub booted: Option<Timestamp>,
    /// Until when the cloud is known to have no capacity.
    pub short_until: Option<Timestamp>,
}

impl ObservedPool {
    /// Each machine once, in the order of ids: a listing may show a machine twice.
    pub(super) fn each(&self) -> Vec<&PoolMachine> {
        let mut each: Vec<_> = self.instances.iter().collect();
        each.sort_by(|one, other| {
            let by_id = one.record.id.cmp(&other.record.id);
            by_id.then_with(|| other.freshness().cmp(&one.freshness()))
        });
        each.dedup_by_key(|one| &one.record.id);
        each
    }

    /// Each launch once, in its last version.
    pub(super) fn each_launch(&self) -> Vec<&Intent> {
        let mut each: Vec<_> = self.launches.iter().collect();
        each.sort_by_key(|launch| (&launch.id, Reverse((launch.revision, launch.outstanding))));
        each.dedup_by_key(|launch| &launch.id);
        each
    }
}
