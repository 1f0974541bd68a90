//! Machines of other stacks in the same account: they use its quotas and its rates, and no answer to a
//! process of this stack shows them.
//!
//! Not here: when they come and go ([`crate::odd_cloud`]).

use bullpen_core::class::Architecture;
use bullpen_core::creation::Offering;
use bullpen_core::ids::{ClassName, InstanceId, IntentId, MailboxKey};
use bullpen_core::ports::{Machine, MachineState, Tags};
use bullpen_core::rates::FleetCall;
use bullpen_core::time::Timestamp;

use super::FleetModel;
use super::state::{CATALOGUE, FleetEntry, FleetState};

impl FleetState {
    /// Whether the machine is another stack's.
    pub(super) fn is_neighbours(&self, id: &InstanceId) -> bool {
        self.neighbours.contains(id)
    }

    fn add_neighbour(&mut self, offering: Offering, now: Timestamp) -> InstanceId {
        let id = InstanceId::new(format!("i-of-another-stack-{}", self.neighbours.len() + 1));
        let found = CATALOGUE.iter().find(|(name, ..)| *name == offering.instance_type.as_str());
        let (vcpu, memory_mib) = found.map_or((2, 4_096), |(_, vcpu, memory)| (*vcpu, *memory));
        let machine = Machine {
            mailbox: MailboxKey::new(id.as_str()),
            id: id.clone(),
            state: MachineState::Running,
            intent: IntentId::new("another-stack"),
            class: ClassName::new("large"),
            pool: None,
            instance_type: offering.instance_type,
            vcpu,
            memory_mib,
            architecture: Architecture::X64,
            zone: offering.zone,
            usage: offering.usage,
            launched_at: now,
            tags: Tags::default(),
        };
        self.entries.insert(id.clone(), FleetEntry::running(machine, now));
        self.neighbours.insert(id.clone());
        id
    }
}

impl FleetModel {
    /// Lever: another stack of the account has a machine from now on.
    pub fn add_neighbour(&self, offering: Offering) -> InstanceId {
        let now = self.clock.true_now();
        self.neighbour_asks(FleetCall::Launch);
        self.state().add_neighbour(offering, now)
    }

    /// Lever: another stack ends its machine.
    pub fn end_neighbour(&self, id: &InstanceId) {
        self.neighbour_asks(FleetCall::Terminate);
        if let Some(entry) = self.state().entries.get_mut(id) {
            entry.machine.state = MachineState::Gone;
        }
    }

    /// Lever: another stack makes a call, of the same rates.
    pub fn neighbour_asks(&self, call: FleetCall) {
        let now = self.clock.elapsed();
        // It is refused like a call of this stack, which does not matter here.
        let _ = self.state().admit(call, 1, now, &self.wire);
    }
}
