//! What a watcher knows of a world: what lives in it now, and what the cloud took away.
//!
//! It is kept from what was seen happening, so that looking at everything costs as much as there is
//! alive, however much has ended before.
//!
//! Not here: judging.

use std::collections::{BTreeMap, BTreeSet};

use bullpen_core::creation::{Ceiling, Intent};
use bullpen_core::ids::{InstanceId, IntentId, RunnerName};
use bullpen_core::instance::{Owner, Record, State};
use bullpen_core::limits::Limits;
use bullpen_core::ports::{Machine, MachineState};

/// The present, and what cannot be seen in it any more.
#[derive(Debug)]
pub(super) struct View {
    /// The numbers in force.
    pub(super) limits: Limits,
    /// The ceilings in force.
    pub(super) ceilings: Vec<Ceiling>,
    /// Records of machines that may exist.
    pub(super) live: BTreeMap<InstanceId, Record>,
    /// Machines whose record is a tombstone.
    pub(super) buried: BTreeSet<InstanceId>,
    /// Intents with something outstanding.
    pub(super) intents: BTreeMap<IntentId, Intent>,
    /// Machines that are not gone.
    pub(super) machines: BTreeMap<InstanceId, Machine>,
    /// Machines that the cloud said it would take away.
    pub(super) noticed: BTreeSet<InstanceId>,
    /// Machines that the cloud took away.
    pub(super) lost: BTreeSet<InstanceId>,
    /// Machines that switched themselves off.
    pub(super) powered_off: BTreeSet<InstanceId>,
    /// Machines whose listener left by itself since they were last assigned.
    pub(super) deserted: BTreeSet<InstanceId>,
    /// The runner that each machine was last told to be.
    pub(super) assigned: BTreeMap<InstanceId, RunnerName>,
}

impl View {
    /// Of a world as it stands.
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
            powered_off: BTreeSet::new(),
            deserted: BTreeSet::new(),
            assigned: BTreeMap::new(),
        }
    }

    /// A record was written.
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
