//! The checkers' view of a world: its live records and machines, and the machines that the cloud
//! took away.
//!
//! Events keep it up to date, so that a check of the whole world costs only as much as is alive.
//!
//! Not here: judging.

use std::collections::{BTreeMap, BTreeSet};

use bullpen_core::creation::{Ceiling, Intent};
use bullpen_core::ids::{InstanceId, IntentId, RunnerName};
use bullpen_core::instance::{Owner, Record, State};
use bullpen_core::limits::Limits;
use bullpen_core::ports::{Machine, MachineState};

/// The present state of a world, and past events that the checks need.
#[derive(Debug)]
pub(super) struct View {
    /// The limits in force.
    pub(super) limits: Limits,
    /// The ceilings in force.
    pub(super) ceilings: Vec<Ceiling>,
    /// Records of machines that may exist.
    pub(super) live: BTreeMap<InstanceId, Record>,
    /// Machines whose record is a tombstone.
    pub(super) buried: BTreeSet<InstanceId>,
    /// Intents with outstanding machines.
    pub(super) intents: BTreeMap<IntentId, Intent>,
    /// Machines that are not gone.
    pub(super) machines: BTreeMap<InstanceId, Machine>,
    /// Machines with a reclaim notice.
    pub(super) noticed: BTreeSet<InstanceId>,
    /// Machines that the cloud took away.
    pub(super) lost: BTreeSet<InstanceId>,
    /// Machines that nothing told from lost ones when they were condemned as gone.
    pub(super) taken_for_lost: BTreeSet<InstanceId>,
    /// Machines that switched themselves off.
    pub(super) powered_off: BTreeSet<InstanceId>,
    /// Machines whose listener exited by itself since their last assignment.
    pub(super) deserted: BTreeSet<InstanceId>,
    /// The runner of each machine's newest assignment.
    pub(super) assigned: BTreeMap<InstanceId, RunnerName>,
}

impl View {
    /// The view of a world at its present state.
    pub(super) fn new(
        (limits, ceilings): (Limits, Vec<Ceiling>),
        (records, intents): (Vec<Record>, Vec<Intent>),
        machines: Vec<Machine>,
    ) -> Self {
        let (live, dead): (Vec<_>, Vec<_>) =
            records.into_iter().partition(|record| record.state.is_live());
        let alive = machines.into_iter().filter(|machine| machine.state != MachineState::Gone);
        Self {
            limits,
            ceilings,
            live: live.into_iter().map(|record| (record.id.clone(), record)).collect(),
            buried: dead.into_iter().map(|record| record.id).collect(),
            intents: intents.into_iter().map(|intent| (intent.id.clone(), intent)).collect(),
            machines: alive.map(|machine| (machine.id.clone(), machine)).collect(),
            noticed: BTreeSet::new(),
            lost: BTreeSet::new(),
            taken_for_lost: BTreeSet::new(),
            powered_off: BTreeSet::new(),
            deserted: BTreeSet::new(),
            assigned: BTreeMap::new(),
        }
    }

    /// Applies a record's write.
    pub(super) fn stored(&mut self, is_first: bool, after: &Record) {
        if is_first && let Some(intent) = self.intents.get_mut(&after.facts.intent) {
            intent.outstanding = intent.outstanding.saturating_sub(1);
            if intent.outstanding == 0 {
                self.intents.remove(&after.facts.intent);
            }
        }
        if after.state.is_live() {
            self.live.insert(after.id.clone(), after.clone());
        } else {
            self.live.remove(&after.id);
            self.buried.insert(after.id.clone());
        }
    }

    /// Machines of this owner that are created, claimed or running.
    pub(super) fn held_by<'v>(&'v self, owner: &'v Owner) -> impl Iterator<Item = &'v Record> {
        self.live.values().filter(move |record| record.state.owner() == Some(owner))
    }

    /// Machines that run for this owner.
    pub(super) fn running_for<'v>(&'v self, owner: &'v Owner) -> impl Iterator<Item = &'v Record> {
        self.held_by(owner).filter(|record| matches!(record.state, State::Running { .. }))
    }
}
