//! What is looked for in every state.
//!
//! Not here: what a step itself breaks; the step says so (`ExploredWorld::breaks`).

use bullpen_core::instance::{State, Tier};
use bullpen_core::mailbox::Report;

use super::Config;
use super::actors::repair;
use super::rules::Property;
use super::world::{ExploredWorld, Power};

impl ExploredWorld {
    /// The property that does not hold here.
    pub(super) fn broken(&self) -> Option<Property> {
        if self.broke.is_some() {
            return self.broke;
        }
        if let Some(listens_for) = self.listens_for() {
            let state = &self.record.0.state;
            if matches!(state, State::Idle { .. }) {
                return Some(Property::NobodyOnIdle);
            }
            if state.owner().is_some_and(|owner| owner != listens_for) {
                return Some(Property::OneOwner);
            }
        }
        self.has_two_holders().then_some(Property::OneHolder)
    }

    /// What will never be put right from here: a machine that runs although it is recorded as stopped
    /// and that its pool would leave alone, or an end of all steps in the middle of something.
    pub(super) fn stuck(&self, config: &Config, nothing_left: bool) -> Option<Property> {
        let state = &self.record.0.state;
        let stopped = matches!(state, State::Idle { tier: Tier::Stopped, .. });
        if stopped && self.power == Power::Running {
            let event = repair(self, config, &self.record, self.power);
            if event.is_none_or(|event| self.record.0.on(&event).is_err()) {
                return Some(Property::Repaired);
            }
        }
        (nothing_left && matches!(state, State::Releasing { .. })).then_some(Property::ReleaseEnds)
    }

    /// Whether the agent lives, has seen the latest order, has nothing left to do about it, and has
    /// not acknowledged it.
    pub(super) fn is_done_and_unacknowledged(&self, config: &Config) -> bool {
        let Some(agent) = &self.agent else { return false };
        let Some(inbox) = self.inbox() else { return false };
        let removed = Report::removed(&self.report);
        agent.effect.is_none()
            && agent.outbox.is_empty()
            && self.listener.is_none()
            && removed < inbox.order.rank().generation
            && self.is_at_rest(config)
    }
}
