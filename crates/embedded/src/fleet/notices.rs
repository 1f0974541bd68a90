//! Operations that do not start or stop a machine: tags, and the warning before a reclaim.
//!
//! Not here: the agent's reaction to a warning (`bullpen-agent`).

use bullpen_agent::runner::tree;
use bullpen_core::ids::InstanceId;
use bullpen_core::ports::{Clock, Fault, Listing, MachineState, Tag};

use super::execute::all_readable;
use super::machines::{Machines, fault};
use super::record::MachineGoal;
use super::supervisor::agent_mark;

impl<C: Clock> Machines<C> {
    /// Tags the machines that are not gone.
    pub(super) fn tag(&self, ids: &[InstanceId], tag: Tag) -> Result<(), Fault> {
        self.exclusively(|| {
            let Listing { items, unreadable } = self.repair(Some(ids))?;
            for mut machine in items {
                if matches!(machine.record.life, MachineGoal::Gone { .. }) {
                    continue;
                }
                machine.record.tags.put(tag);
                machine
                    .home
                    .write_record(&machine.record)
                    .map_err(|error| fault(machine.home.path(), &error))?;
            }
            all_readable(unreadable)
        })
    }

    /// Warns a machine's agent, as a cloud does before it takes a machine away. The supervisor gets
    /// no warning, so the machine goes on.
    pub(super) fn reclaim(&self, id: &InstanceId) -> Result<(), Fault> {
        let found = self.repaired(Some(std::slice::from_ref(id)))?.complete()?;
        let machine = found.first().filter(|machine| machine.state == MachineState::Running);
        let home = &machine.ok_or(Fault::NotFound)?.home;
        let failed = |error| fault(home.path(), &error);
        let agent = tree::leader(&agent_mark(home)).map_err(failed)?.ok_or(Fault::NotFound)?;
        agent.warn().map_err(failed)
    }
}
