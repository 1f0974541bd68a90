//! Presence: whether the machine of a record is still there, as far as the cloud's answers prove it.
//!
//! A listing may miss a machine on which a job runs, so its silence proves nothing: the machine is
//! looked up by its id, and its agent must have stopped beating.
//!
//! Not here: condemning (the reconciler), or machines without a record.

use crate::instance::{Record, State};
use crate::limits::Limits;
use crate::ports::MachineState;
use crate::sabotage;
use crate::time::Timestamp;

/// What an answer of the cloud says about one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is there, or it is too early to ask.
    Here,
    /// It is gone for good.
    Gone,
    /// The answer misses it.
    Missing,
}

impl Presence {
    /// Decides by a listing that was read after the record.
    pub fn listed(
        record: &Record,
        state: Option<MachineState>,
        now: Timestamp,
        limits: &Limits,
    ) -> Self {
        let is_young = now.since(record.facts.launched_at) < limits.reconcile_grace;
        match Self::described(state) {
            // The reaper asks the cloud about it.
            _ if matches!(record.state, State::Terminating { .. }) => Self::Here,
            Self::Missing if sabotage!("reconcile-without-grace") => Self::Gone,
            Self::Missing if is_young => Self::Here,
            Self::Missing if sabotage!("missing-is-gone") => Self::Gone,
            presence => presence,
        }
    }

    /// Decides by the answer to a look by its id.
    pub const fn described(state: Option<MachineState>) -> Self {
        match state {
            Some(MachineState::Gone) => Self::Gone,
            Some(_) => Self::Here,
            None => Self::Missing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::Tier;
    use crate::samples::{self, LIMITS, at};

    #[test]
    fn a_listing_proves_only_what_it_shows() {
        let record = samples::record(samples::idle(Tier::Hot));
        let old = at(0).after(LIMITS.reconcile_grace);
        let listed = |state, now| Presence::listed(&record, state, now, &LIMITS);
        assert_eq!(listed(None, at(1)), Presence::Here, "it may not be visible yet");
        assert_eq!(listed(None, old), Presence::Missing);
        for now in [at(1), old] {
            assert_eq!(listed(Some(MachineState::Gone), now), Presence::Gone);
            assert_eq!(listed(Some(MachineState::Stopped), now), Presence::Here);
        }
    }
}
