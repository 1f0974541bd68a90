//! Invariant 2 after the faults: a machine that no owner may use any more ends within a minute.
//!
//! That is a machine with a terminating record, or an idle one past its deadline on every clock.
//!
//! Not here: why a machine may end ([`super::protected`]).

use std::time::Duration;

use bullpen_core::instance::State;
use bullpen_core::invariants::{Invariant, Violation};
use bullpen_core::time::Timestamp;

use super::view::View;

/// How long such a machine may still exist.
const WITHIN: Duration = Duration::from_secs(60);

/// Since when a world is without faults.
#[derive(Debug, Default)]
pub(super) struct Endings {
    pub(super) calm_since: Option<Timestamp>,
}

impl Endings {
    /// Checks every machine that exists.
    pub(super) fn look(&self, view: &View, now: Timestamp) -> Result<(), Violation> {
        let Some(calm_since) = self.calm_since else { return Ok(()) };
        for record in view.live.values().filter(|record| view.machines.contains_key(&record.id)) {
            let over_since = match record.state {
                State::Terminating { since, .. } => since,
                State::Idle { deadline, .. } => deadline.after(view.limits.clock_skew),
                State::Created { .. }
                | State::Claimed { .. }
                | State::Running { .. }
                | State::Releasing { .. }
                | State::Stopping { .. }
                | State::Terminated { .. } => continue,
            };
            if now.since(over_since.max(calm_since)) > WITHIN {
                let state = record.state.name().as_str();
                return Err(Violation {
                    invariant: Invariant::Conservation,
                    instance: Some(record.id.clone()),
                    what: format!("{state}, of no use since {over_since}, and not ended"),
                });
            }
        }
        Ok(())
    }
}
