//! Presence: whether the machine of a record is still there, as far as the cloud's answers prove it.
//!
//! A listing may miss a machine on which a job runs, so its silence proves nothing: the machine is
//! looked up by its id, and its agent must have stopped beating.
//!
//! Not here: condemning (the reconciler), or machines without a record.

use crate::instance::{Record, State};
use crate::limits::Limits;
use crate::mailbox::Report;
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

/// Whether the agent has stopped beating, by its reports at the begin and at the end of a watch that
/// lasted until `now`. A beat between the two proves that it lives, however wrong its clock is.
pub fn is_silent(
    first: Option<&Report>,
    last: Option<&Report>,
    now: Timestamp,
    limits: &Limits,
) -> bool {
    let seen = first.and_then(|report| report.beat.as_ref());
    let beats = last.is_some_and(|report| match seen {
        Some(_) => report.is_fresh(now, limits.heartbeat_stale, seen),
        None => report.beat.is_some(),
    });
    !beats || sabotage!("beats-prove-nothing")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::Tier;
    use crate::samples::{self, LIMITS, at, beat};

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

    #[test]
    fn a_beat_between_two_looks_proves_life_on_any_clock() {
        let report = |seq, seconds| Report {
            beat: Some(crate::mailbox::Beat { at: at(seconds), ..beat(seq, at(0)) }),
            ..Report::default()
        };
        let now = at(900);
        let silent =
            |first: Option<&Report>, last: Option<&Report>| is_silent(first, last, now, &LIMITS);
        assert!(silent(None, None));
        assert!(silent(Some(&report(7, 0)), Some(&report(7, 0))));
        assert!(!silent(Some(&report(7, 0)), Some(&report(8, 0))), "its clock is wrong");
        assert!(!silent(Some(&report(7, 895)), Some(&report(7, 895))), "it has just beaten");
        assert!(!silent(None, Some(&report(1, 0))), "it has begun to beat");
    }
}
