//! Invariant 7 from outside: no process calls the cloud more often than its share allows, and the
//! replicas of a service together no more often than the cloud allows.
//!
//! Written independently of `core::rates`, on plain lists of times, so that a mistake there is not
//! repeated here. A throttled process must not become faster.
//!
//! Not here: the cloud's own limits on all callers (`model::fleet`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bullpen_core::invariants::{Invariant, Violation};
use bullpen_core::rates::FleetCall;
use bullpen_core::time::Timestamp;

/// Within this time every replica has counted a newly announced replica, and has made the calls
/// that were already waiting. Until then the new replica may also use a command's share.
const COUNTED_AFTER: Duration = Duration::from_secs(120);
/// The others may take a replica for dead that has not announced itself for this long; it may then
/// use a command's share.
const MISSED_AFTER: Duration = Duration::from_secs(60);

/// The size of a burst, and the calls per minute.
#[derive(Clone, Copy)]
struct Allowed {
    at_once: u64,
    a_minute: u64,
}

/// A tenth of an account's EC2 limit, at least one.
const fn command(call: FleetCall) -> Allowed {
    let (at_once, a_minute) = match call {
        FleetCall::Launch | FleetCall::Start => (1, 12),
        FleetCall::Stop | FleetCall::Tag => (5, 30),
        FleetCall::Terminate => (10, 30),
        FleetCall::Describe => (10, 120),
    };
    Allowed { at_once, a_minute }
}

/// An account's EC2 limit less one command's share.
const fn service(call: FleetCall) -> Allowed {
    let (at_once, a_minute) = match call {
        FleetCall::Launch | FleetCall::Start => (4, 108),
        FleetCall::Stop | FleetCall::Tag => (45, 270),
        FleetCall::Terminate => (90, 270),
        FleetCall::Describe => (90, 1_080),
    };
    Allowed { at_once, a_minute }
}

impl Allowed {
    const fn and(self, others: u64, each: Self) -> Self {
        Self {
            at_once: self.at_once + others * each.at_once,
            a_minute: self.a_minute + others * each.a_minute,
        }
    }

    /// Whether `calls` calls within `stretch` milliseconds are allowed. Adds a millisecond for each
    /// caller, because waits are rounded to whole milliseconds.
    const fn holds(self, calls: u64, stretch: u64, callers: u64) -> bool {
        calls * 60_000 <= self.at_once * 60_000 + self.a_minute * (stretch + callers)
    }
}

/// The times of all calls to the cloud.
#[derive(Debug, Default)]
pub(super) struct Pace {
    by_process: BTreeMap<(Arc<str>, FleetCall), Vec<Timestamp>>,
    replicas: BTreeMap<Arc<str>, Replica>,
    /// The calls of all replicas together.
    together: BTreeMap<FleetCall, Vec<Timestamp>>,
}

/// A replica of the service.
#[derive(Debug)]
struct Replica {
    /// When it first announced itself.
    first: Timestamp,
    /// When it last announced itself.
    last: Timestamp,
    /// When it last called the cloud.
    asked: Timestamp,
}

impl Replica {
    /// Whether it called the cloud between these times while the other replicas need not have
    /// counted it.
    fn was_outside(&self, since: Timestamp, at: Timestamp) -> bool {
        let is_new = self.first.after(COUNTED_AFTER) > since;
        self.asked >= since && (is_new || self.last.after(MISSED_AFTER) <= at)
    }
}

impl Pace {
    /// A replica announces itself.
    pub(super) fn announced(&mut self, process: &Arc<str>, at: Timestamp) {
        let new = Replica { first: at, last: at, asked: at };
        self.replicas.entry(Arc::clone(process)).or_insert(new).last = at;
    }

    /// A process calls the cloud: in every stretch of time that ends now, the process must be
    /// within its share, and the replicas together within theirs.
    pub(super) fn asked(
        &mut self,
        process: &Arc<str>,
        call: FleetCall,
        at: Timestamp,
    ) -> Result<(), Violation> {
        let times = self.by_process.entry((Arc::clone(process), call)).or_default();
        times.push(at);
        let Some(replica) = self.replicas.get_mut(process) else {
            return judge(process, call, times, |_| (command(call), 1));
        };
        replica.asked = at;
        judge(process, call, times, |_| (service(call), 1))?;
        let times = self.together.entry(call).or_default();
        times.push(at);
        let callers = u64::try_from(self.replicas.len()).unwrap_or(u64::MAX);
        judge("the service", call, times, |since| {
            let outside = self.replicas.values().filter(|replica| replica.was_outside(since, at));
            let outside = u64::try_from(outside.count()).unwrap_or(u64::MAX);
            (service(call).and(outside, command(call)), callers)
        })
    }
}

/// Judges the calls at these times in every stretch of time that ends with the last call.
fn judge(
    who: &str,
    call: FleetCall,
    times: &[Timestamp],
    allowed: impl Fn(Timestamp) -> (Allowed, u64),
) -> Result<(), Violation> {
    let Some(at) = times.last() else { return Ok(()) };
    for (made, since) in (1..).zip(times.iter().rev()) {
        let stretch = u64::try_from(at.since(*since).as_millis()).unwrap_or(u64::MAX);
        let (allowed, callers) = allowed(*since);
        if !allowed.holds(made, stretch, callers) {
            return Err(Violation {
                invariant: Invariant::Rates,
                instance: None,
                what: format!("{who} made {made} calls ({call:?}) in {stretch} ms"),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + millis)
    }

    #[test]
    fn calls_within_the_share_pass_and_one_more_does_not() {
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

    #[test]
    fn replicas_share_the_rate_that_a_command_leaves() {
        let (mut pace, one, other) = (Pace::default(), Arc::from("one"), Arc::from("other"));
        let long = 200_000;
        for time in [0, long] {
            pace.announced(&one, at(time));
            pace.announced(&other, at(time));
        }
        for time in [0, 0, 0, 500] {
            assert_eq!(pace.asked(&one, FleetCall::Launch, at(long + time)), Ok(()));
        }
        let refused = pace.asked(&other, FleetCall::Launch, at(long + 501)).unwrap_err();
        assert!(refused.what.starts_with("the service made 5 calls"), "{refused:?}");
    }

    #[test]
    fn a_new_replica_may_also_use_a_commands_share() {
        let (mut pace, one, other) = (Pace::default(), Arc::from("one"), Arc::from("other"));
        pace.announced(&one, at(0));
        pace.announced(&one, at(200_000));
        pace.announced(&other, at(200_000));
        for _ in 0..4 {
            assert_eq!(pace.asked(&one, FleetCall::Launch, at(201_000)), Ok(()));
        }
        assert_eq!(pace.asked(&other, FleetCall::Launch, at(201_000)), Ok(()));
        assert!(pace.asked(&one, FleetCall::Launch, at(201_000)).is_err());
    }
}
