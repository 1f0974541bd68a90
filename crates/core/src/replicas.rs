//! Replicas: which processes of a service live, and which share of the cloud's rates each may take.
//!
//! Each replica rewrites its own entry again and again and reads the entries of all. A replica is
//! dead once its entry has not changed for long enough, by the reader's own clock. A new replica
//! takes an outsider's share until every other replica has counted it, or has lost contact and
//! takes an outsider's share too. A dead replica counts until its last turn is over. So all
//! replicas together never exceed the cloud's rates, without waiting for each other.
//!
//! Not here: storing entries (`bullpen-engine`), or the size of a share ([`crate::rates`]).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ids::Revision;
use crate::lease::LeaseWatch;
use crate::rates::RateShare;

/// The ledger's collection that holds the entries.
pub const COLLECTION: &str = "replicas";

/// The times that all replicas keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaTimes {
    /// How long an entry, or a count, is fresh.
    pub lease: Duration,
    /// The longest time that a call waits for its turn, once the turn is assigned.
    pub turn: Duration,
}

impl ReplicaTimes {
    /// After this long without a change of its entry, a replica has taken its last turn.
    const fn over(self) -> Duration {
        self.lease.saturating_add(self.turn)
    }
}

/// A period in which this process was announced without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Announced {
    /// When the first entry was certainly stored.
    since: Duration,
    /// When the last entry that was certainly stored was sent.
    last: Duration,
}

/// One process's view of the other replicas. Times are on its own monotonic clock.
#[derive(Clone, Debug)]
pub struct ReplicaList {
    times: ReplicaTimes,
    others: BTreeMap<String, LeaseWatch>,
    announced: Option<Announced>,
    /// The number of live replicas, this process included, and when it read the entries.
    counted: Option<(u32, Duration)>,
}

impl ReplicaList {
    /// A list in which no other replica is known yet.
    pub const fn new(times: ReplicaTimes) -> Self {
        Self { times, others: BTreeMap::new(), announced: None, counted: None }
    }

    /// Notes that this process's entry was stored: sent at the first time, answered at the second.
    pub fn announced(&mut self, (sent, answered): (Duration, Duration)) {
        let before = self.announced.filter(|before| self.is_new(before.last, sent));
        let since = before.map_or(answered, |before| before.since);
        self.announced = Some(Announced { since, last: sent });
    }

    /// Notes that this process takes no more turns as a replica.
    pub const fn withdrawn(&mut self) {
        self.announced = None;
    }

    /// Counts the others by their entries: requested at the first time, received at the second.
    pub fn counted<'e>(
        &mut self,
        others: impl IntoIterator<Item = (&'e str, Revision)>,
        (asked, came): (Duration, Duration),
    ) {
        let (over, mut known) = (self.times.over(), std::mem::take(&mut self.others));
        let mut live = 1;
        for (name, revision) in others {
            let mut watch = known.remove(name).unwrap_or_default();
            if !watch.stands(revision, (asked, came), over) {
                live += 1;
            }
            self.others.insert(name.to_owned(), watch);
        }
        self.counted = Some((live, asked));
    }

    /// The share that this process may take now.
    pub fn share(&self, now: Duration) -> RateShare {
        let Some((replicas, counted)) = self.counted else { return RateShare::COMMAND };
        let is_one = self.is_new(counted, now)
            && self.announced.is_some_and(|announced| {
                let age = now.saturating_sub(announced.since);
                self.is_new(announced.last, now) && age >= self.times.over()
            });
        if is_one { RateShare::Replica { replicas } } else { RateShare::Outsider { replicas } }
    }

    fn is_new(&self, at: Duration, now: Duration) -> bool {
        now.saturating_sub(at) < self.times.lease
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: ReplicaTimes = ReplicaTimes { lease: secs(60), turn: secs(30) };

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// A call that is answered at once.
    const fn at(seconds: u64) -> (Duration, Duration) {
        (secs(seconds), secs(seconds))
    }

    /// One round of a process: it counts the others and announces itself.
    fn look(roll: &mut ReplicaList, others: &[(&str, u64)], seconds: u64) -> RateShare {
        roll.counted(others.iter().map(|(name, at)| (*name, Revision(*at))), at(seconds));
        roll.announced(at(seconds));
        roll.share(secs(seconds))
    }

    #[test]
    fn a_new_replica_is_an_outsider_until_all_have_counted_it() {
        let mut roll = ReplicaList::new(TIMES);
        assert_eq!(roll.share(secs(0)), RateShare::COMMAND);
        for seconds in [0, 20, 40, 60, 80] {
            let share = look(&mut roll, &[("other", seconds)], seconds);
            assert_eq!(share, RateShare::Outsider { replicas: 2 }, "{seconds}");
        }
        assert_eq!(roll.share(secs(89)), RateShare::Outsider { replicas: 2 });
        assert_eq!(roll.share(secs(90)), RateShare::Replica { replicas: 2 });
        let three = look(&mut roll, &[("new", 1), ("other", 100)], 100);
        assert_eq!(three, RateShare::Replica { replicas: 3 }, "a new replica counts at once");
    }

    #[test]
    fn an_entry_that_stands_is_a_dead_ones_when_its_last_turn_is_over() {
        let mut roll = ReplicaList::new(TIMES);
        for seconds in (0..=180).step_by(20) {
            // The other replica dies after its entry at 80.
            let share = look(&mut roll, &[("other", seconds.min(80))], seconds);
            let replicas = if seconds < 180 { 2 } else { 1 };
            let is_one = seconds >= 90;
            let one = RateShare::Replica { replicas };
            let share_then = if is_one { one } else { RateShare::Outsider { replicas } };
            assert_eq!(share, share_then, "{seconds}");
        }
        look(&mut roll, &[], 200);
        assert!(roll.others.is_empty(), "forgotten as soon as it is not listed");
    }

    #[test]
    fn a_replica_that_loses_the_others_is_an_outsider_again() {
        let full = || {
            let mut roll = ReplicaList::new(TIMES);
            for seconds in (0..=100).step_by(20) {
                look(&mut roll, &[("other", seconds)], seconds);
            }
            roll
        };
        let one = RateShare::Replica { replicas: 2 };
        assert_eq!(full().share(secs(159)), one);
        assert_eq!(full().share(secs(160)), RateShare::Outsider { replicas: 2 });
        let mut unheard = full();
        unheard.counted([("other", Revision(1))], at(150));
        assert_eq!(
            unheard.share(secs(160)),
            RateShare::Outsider { replicas: 2 },
            "the others may have stopped counting it"
        );
        unheard.announced(at(165));
        assert_eq!(
            unheard.share(secs(165)),
            RateShare::Outsider { replicas: 2 },
            "it is new again"
        );
        let mut blind = full();
        blind.announced(at(150));
        assert_eq!(
            blind.share(secs(160)),
            RateShare::Outsider { replicas: 2 },
            "it may miss new replicas"
        );
        let mut gone = full();
        gone.withdrawn();
        assert_eq!(gone.share(secs(101)), RateShare::Outsider { replicas: 2 });
    }

    /// The entry may have been written between request and answer, so its time begins at the
    /// answer.
    #[test]
    fn an_entry_may_have_been_written_while_it_was_read() {
        let mut roll = ReplicaList::new(TIMES);
        roll.counted([("other", Revision(1))], (secs(0), secs(10)));
        roll.counted([("other", Revision(1))], (secs(90), secs(105)));
        assert_eq!(roll.share(secs(105)), RateShare::Outsider { replicas: 2 });
        roll.counted([("other", Revision(1))], (secs(100), secs(105)));
        assert_eq!(roll.share(secs(105)), RateShare::Outsider { replicas: 1 });
    }
}
