//! The actors: each a small program whose steps are the engine's calls, in the engine's order.
//!
//! Between any two steps of one actor all others may take theirs, so an actor that stalls is one whose
//! next step comes late, and one that crashes is one whose next step never comes.
//!
//! Not here: what a call does to the world (`world`), what must hold (`check`).

use bullpen_core::instance::State;

use super::Config;
use super::rules::Rule;
use super::world::ExploredWorld;

pub(super) mod agent;
mod claimer;
mod cloud;
mod hand;
mod manager;
mod reaper;
mod releaser;

pub(super) use claimer::Claimer;
pub(super) use hand::Hand;
pub(super) use manager::{Manager, repair};

/// The steps that can be taken from one world.
pub(super) struct Steps {
    labelled: bool,
    pub(super) taken: Vec<(String, ExploredWorld)>,
}

impl Steps {
    /// The world after a step, and what the step was: words are made only for who reads them.
    fn push(&mut self, next: ExploredWorld, label: impl FnOnce() -> String) {
        let label = if self.labelled { label() } else { String::new() };
        self.taken.push((label, next));
    }
}

impl ExploredWorld {
    /// Every step that somebody can take from here.
    pub(super) fn steps(&self, config: &Config, labelled: bool) -> Vec<(String, Self)> {
        let mut steps = Steps { labelled, taken: Vec::new() };
        if matches!(self.record.0.state, State::Terminated { .. }) {
            return steps.taken;
        }
        for claimer in 0..usize::from(config.claimers.min(2)) {
            claimer::steps(self, config, claimer, &mut steps);
        }
        releaser::steps(self, config, &mut steps);
        reaper::steps(self, config, &mut steps);
        manager::steps(self, config, &mut steps);
        agent::steps(self, config, &mut steps);
        cloud::steps(self, config, &mut steps);
        for (_, next) in &mut steps.taken {
            next.forget_lost_writes(config);
        }
        steps.taken
    }

    /// A write that can only be refused by now, because what it rests on is not stored any more, is as
    /// good as refused: its writer looks again.
    fn forget_lost_writes(&mut self, config: &Config) {
        let current = self.record.0.revision;
        for (hand, rule) in
            [(&mut self.releaser, Rule::OwnerAndGeneration), (&mut self.reaper, Rule::ReapedAsRead)]
        {
            if hand.only_writes(config.holds(rule)) && !hand.is_current(current) {
                *hand = Hand::Rests;
            }
        }
        if !self.manager.is_current(current) {
            self.manager = Manager::Rests;
        }
    }
}
