//! What is said of a machine, and to it, that leaves it running or stopped as it is: tags, and the
//! warning that it will be taken away.
//!
//! Not here: what an agent does about a warning.

use bullpen_agent::runner::tree;
use bullpen_core::ids::InstanceId;
use bullpen_core::ports::{Clock, Fault, MachineState, Tag};

use super::machines::{Machines, fault};
use super::record::MachineGoal;
use super::supervisor::agent_mark;

impl<C: Clock> Machines<C> {
    /// Tags what is there and not gone.
    pub(super) fn tag(&self, ids: &[InstanceId], tag: Tag) -> Result<(), Fault> {
        self.alone(|| {
            for mut one in self.settle(Some(ids))? {
                if matches!(one.record.life, MachineGoal::Gone { .. }) {
                    continue;
                }
                one.record.tags.put(tag);
                one.home
                    .write_record(&one.record)
                    .map_err(|error| fault(one.home.path(), &error))?;
            }
            Ok(())
        })
    }

    /// Warns the agent of a machine, as a cloud does before it takes one away. The supervisor hears
    /// nothing of it, so the machine lives on.
    pub(super) fn reclaim(&self, id: &InstanceId) -> Result<(), Fault> {
        let found = self.settled(Some(std::slice::from_ref(id)))?;
        let one = found.first().filter(|one| one.state == MachineState::Running);
        let home = &one.ok_or(Fault::NotFound)?.home;
        let failed = |error| fault(home.path(), &error);
        let agent = tree::leader(&agent_mark(home)).map_err(failed)?.ok_or(Fault::NotFound)?;
        agent.warn().map_err(failed)
    }
}
