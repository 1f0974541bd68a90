//! Storms: trouble that many calls have together. For a while an outside service answers nothing,
//! or slowly, or with throttling: to every process, to one kind of process, or to those in one
//! place.
//!
//! Not here: the trouble of a single call ([`crate::wire::Weather`]), or drawing a seed's storms
//! ([`crate::storm_plan`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The kind of process at one end of a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Party {
    /// A command, or a process of the service.
    ControlPlane,
    /// An agent.
    Agent,
}

/// What a storm does to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StormKind {
    /// The call waits for its adapter's timeout, and has no effect.
    Gone,
    /// The call takes up to one and a half times its adapter's timeout, and has its effect.
    Slow,
    /// The call is refused as throttled, nine times out of ten.
    Throttling,
}

/// Ports that one outside service keeps.
pub type PortsOfOne = &'static [&'static str];

/// DynamoDB keeps the ledger and the mailboxes.
pub const DYNAMODB: PortsOfOne = &["ledger", "mailbox"];
/// SQS keeps the queues.
pub const SQS: PortsOfOne = &["queues"];
/// EC2 keeps the machines.
pub const EC2: PortsOfOne = &["fleet"];
/// GitHub answers about runners, and about jobs and runs.
pub const GITHUB: PortsOfOne = &["forge", "job-forge"];
/// The mailboxes alone: the agents' way to them.
pub const MAILBOX: PortsOfOne = &["mailbox"];
/// The ledger alone.
pub const LEDGER: PortsOfOne = &["ledger"];
/// Everything.
pub const EVERYTHING: PortsOfOne = &["ledger", "mailbox", "queues", "fleet", "forge", "job-forge"];

/// One storm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storm {
    /// What it does.
    pub kind: StormKind,
    /// The ports that have it.
    pub ports: PortsOfOne,
    /// The only party that has it, if not all have.
    pub party: Option<Party>,
    /// The only place that has it, if not all have: an agent's zone, or a replica's name.
    pub place: Option<String>,
}

impl Storm {
    /// A storm of one kind on these ports, for every process everywhere.
    pub const fn everywhere(kind: StormKind, ports: PortsOfOne) -> Self {
        Self { kind, ports, party: None, place: None }
    }

    fn is_over(&self, party: Party, place: &str, port: &str) -> bool {
        self.ports.contains(&port)
            && self.party.is_none_or(|of| of == party)
            && self.place.as_ref().is_none_or(|of| of == place)
    }
}

/// Whose beats do not arrive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CutOff {
    /// No agent's.
    #[default]
    Nothing,
    /// Those of agents in these places.
    Places(BTreeSet<String>),
    /// All agents'.
    Everything,
}

impl CutOff {
    /// Whether agents in this place are cut off.
    pub fn has(&self, place: &str) -> bool {
        match self {
            Self::Nothing => false,
            Self::Places(places) => places.contains(place),
            Self::Everything => true,
        }
    }
}

/// A storm that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StormId(u64);

/// All storms of a world that have begun and not ended.
#[derive(Clone, Debug, Default)]
pub struct Storms(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Whether there is any, so that a call in a world without storms pays for one load.
    any: AtomicBool,
    begun: Mutex<Begun>,
    /// The processes that paused, each with the length of all its pauses.
    pauses: Mutex<BTreeMap<Arc<str>, Duration>>,
}

#[derive(Debug, Default)]
struct Begun {
    storms: Vec<(StormId, Storm)>,
    last: u64,
}

impl Storms {
    fn begun(&self) -> MutexGuard<'_, Begun> {
        self.0.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a storm.
    pub fn begin(&self, storm: Storm) -> StormId {
        let mut begun = self.begun();
        begun.last += 1;
        let id = StormId(begun.last);
        begun.storms.push((id, storm));
        self.0.any.store(true, Ordering::Relaxed);
        id
    }

    /// Ends one storm.
    pub fn end(&self, id: StormId) {
        let mut begun = self.begun();
        begun.storms.retain(|(other, _)| *other != id);
        self.0.any.store(!begun.storms.is_empty(), Ordering::Relaxed);
    }

    /// Ends all storms.
    pub fn end_all(&self) {
        self.begun().storms.clear();
        self.0.any.store(false, Ordering::Relaxed);
    }

    /// Whether there is a storm.
    pub fn are_there(&self) -> bool {
        self.0.any.load(Ordering::Relaxed)
    }

    /// What a storm does to this call; the first that has begun counts.
    pub fn over(&self, party: Party, place: &str, port: &str) -> Option<StormKind> {
        if !self.are_there() {
            return None;
        }
        let begun = self.begun();
        let storm = begun.storms.iter().find(|(_, storm)| storm.is_over(party, place, port));
        storm.map(|(_, storm)| storm.kind)
    }

    /// Notes that a process pauses.
    pub(crate) fn note_pause(&self, process: &Arc<str>, length: Duration) {
        let mut pauses = self.0.pauses.lock().unwrap_or_else(PoisonError::into_inner);
        *pauses.entry(Arc::clone(process)).or_default() += length;
    }

    /// How long a process has paused in all.
    pub(crate) fn paused(&self, process: &str) -> Duration {
        let pauses = self.0.pauses.lock().unwrap_or_else(PoisonError::into_inner);
        pauses.get(process).copied().unwrap_or_default()
    }

    /// The agents whose mailboxes are gone.
    pub fn cut_off(&self) -> CutOff {
        let begun = self.begun();
        let mut places = BTreeSet::new();
        for (_, storm) in &begun.storms {
            let is_agents = storm.party != Some(Party::ControlPlane);
            if storm.kind != StormKind::Gone || !is_agents || !storm.ports.contains(&"mailbox") {
                continue;
            }
            match &storm.place {
                None => return CutOff::Everything,
                Some(place) => places.insert(place.clone()),
            };
        }
        if places.is_empty() { CutOff::Nothing } else { CutOff::Places(places) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_has_its_ports_its_party_and_its_place_only() {
        let storms = Storms::default();
        let zone = Storm {
            kind: StormKind::Gone,
            ports: MAILBOX,
            party: Some(Party::Agent),
            place: Some(String::from("zone-a")),
        };
        let id = storms.begin(zone);
        assert_eq!(storms.over(Party::Agent, "zone-a", "mailbox"), Some(StormKind::Gone));
        assert_eq!(storms.over(Party::Agent, "zone-b", "mailbox"), None);
        assert_eq!(storms.over(Party::ControlPlane, "zone-a", "mailbox"), None);
        assert_eq!(storms.over(Party::Agent, "zone-a", "ledger"), None);
        assert_eq!(storms.cut_off(), CutOff::Places(["zone-a".to_owned()].into()));
        storms.begin(Storm::everywhere(StormKind::Slow, DYNAMODB));
        assert_eq!(storms.over(Party::ControlPlane, "", "ledger"), Some(StormKind::Slow));
        storms.end(id);
        assert_eq!(storms.cut_off(), CutOff::Nothing, "slow is not gone");
        storms.end_all();
        assert!(!storms.are_there());
    }
}
