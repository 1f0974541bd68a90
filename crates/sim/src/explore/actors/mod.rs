//! The actors: each a small program whose steps are the engine's calls, in the engine's order.
//!
//! Between any two steps of one actor all others may take theirs, so the next step of an actor that stalls
//! comes late, and the next step of an actor that crashes never comes.
//!
//! Not here: what a call does to the world (`world`), what must hold (`check`).

use bullpen_core::instance::State;

use super::Config;
use super::rules::Rule;
use super::world::ExploredWorld;

pub(super) mod agent;
mod claimer;
mod cloud;
mod manager;
mod release;

pub(super) use claimer::Claimer;
pub(super) use manager::{Manager, repair};
pub(super) use release::Pending;
use release::Process;

/// The steps that can be taken from one world.
pub(super) struct Steps {
    labelled: bool,
    pub(super) taken: Vec<(String, ExploredWorld)>,
}

impl Steps {
    /// Adds the world after a step. The label is made only if a person will read it.
    fn push(&mut self, next: ExploredWorld, label: impl FnOnce() -> String) {
        let label = if self.labelled { label() } else { String::new() };
        self.taken.push((label, next));
    }
}

impl ExploredWorld {
    /// Every step that an actor can take from here.
    pub(super) fn steps(&self, config: &Config, labelled: bool) -> Vec<(String, Self)> {
        let mut steps = Steps { labelled, taken: Vec::new() };
        if matches!(self.record.0.state, State::Terminated { .. }) {
            return steps.taken;
        }
        for claimer in 0..usize::from(config.claimers.min(2)) {
            claimer::steps(self, config, claimer, &mut steps);
        }
        release::steps(self, config, Process::Releaser, &mut steps);
        release::steps(self, config, Process::Reaper, &mut steps);
        manager::steps(self, config, &mut steps);
        agent::steps(self, config, &mut steps);
        cloud::steps(self, config, &mut steps);
        for (_, next) in &mut steps.taken {
            next.forget_lost_writes(config);
        }
        steps.taken
    }

    /// Forgets writes that the ledger would refuse, because the record they were decided on is not the
    /// stored one any more: their writers read again.
    fn forget_lost_writes(&mut self, config: &Config) {
        let current = self.record.0.revision;
        for (pending, rule) in
            [(&mut self.releaser, Rule::OwnerAndGeneration), (&mut self.reaper, Rule::ReapedAsRead)]
        {
            if pending.only_writes(config.holds(rule)) && !pending.is_current(current) {
                *pending = Pending::Nothing;
            }
        }
        if !self.manager.is_current(current) {
            self.manager = Manager::Rests;
        }
    }
}
