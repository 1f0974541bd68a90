//! Invariant 7 from outside: no process asks the cloud more often than a command may.
//!
//! Written apart from `core::rates`, on plain lists of times, so that a mistake there is not repeated
//! here. A process that is told it was too much must not become faster.
//!
//! Not here: what the cloud itself allows to everybody together (`model::fleet`).

use std::collections::BTreeMap;
use std::sync::Arc;

use bullpen_core::invariants::{Invariant, Violation};
use bullpen_core::rates::FleetCall;
use bullpen_core::time::Timestamp;

/// A tenth of what EC2 allows to an account: calls at once, and calls a minute. At least one.
const fn allowed(call: FleetCall) -> (u64, u64) {
    match call {
        FleetCall::Launch | FleetCall::Start => (1, 12),
        FleetCall::Stop | FleetCall::Tag => (5, 30),
        FleetCall::Terminate => (10, 30),
        FleetCall::Describe => (10, 120),
    }
}

/// When each process asked for what.
#[derive(Debug, Default)]
pub(super) struct Pace(BTreeMap<(Arc<str>, FleetCall), Vec<Timestamp>>);

impl Pace {
    /// A process makes a call: in every stretch of time that ends now, is it within its share?
    pub(super) fn asked(
        &mut self,
        process: &Arc<str>,
        call: FleetCall,
        at: Timestamp,
    ) -> Result<(), Violation> {
        let times = self.0.entry((Arc::clone(process), call)).or_default();
        times.push(at);
        let (at_once, a_minute) = allowed(call);
        for (earlier, since) in times.iter().rev().enumerate() {
            let made = u64::try_from(earlier).unwrap_or(u64::MAX) + 1;
            let stretch = u64::try_from(at.since(*since).as_millis()).unwrap_or(u64::MAX);
            // A millisecond for rounding: waits are whole milliseconds.
            if made * 60_000 > at_once * 60_000 + a_minute * (stretch + 1) {
                return Err(Violation {
                    invariant: Invariant::Rates,
                    instance: None,
                    what: format!("{process} made {made} calls ({call:?}) in {stretch} ms"),
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + millis)
    }

    #[test]
    fn what_is_within_the_share_passes_and_one_more_does_not() {
        let (mut pace, process) = (Pace::default(), Arc::from("provision"));
        for time in [0, 5_000, 10_000] {
            assert_eq!(pace.asked(&process, FleetCall::Launch, at(time)), Ok(()));
        }
        let refused = pace.asked(&process, FleetCall::Launch, at(12_000)).unwrap_err();
        assert_eq!(refused.invariant, Invariant::Rates);
        let other = Arc::from("another");
        assert_eq!(pace.asked(&other, FleetCall::Launch, at(12_000)), Ok(()));
    }

    #[test]
    fn a_burst_is_allowed_once() {
        let (mut pace, process) = (Pace::default(), Arc::from("upkeep"));
        for _ in 0..10 {
            assert_eq!(pace.asked(&process, FleetCall::Describe, at(0)), Ok(()));
        }
        assert!(pace.asked(&process, FleetCall::Describe, at(100)).is_err());
    }
}
