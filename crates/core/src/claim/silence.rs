//! Agents that did not answer lately, as one process saw them.
//!
//! One or two silent agents have broken machines. More at once have lost their way to the mailbox: their
//! machines are given back, and their releases end them if their agents stay silent.
//!
//! Not here: what silence is ([`super::CheckFailure::is_silence`]).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ids::InstanceId;
use crate::time::Timestamp;

/// Agents that fall silent within this time of each other do so for one cause: longer than a worker
/// takes to try the next machine, and to prove that a silent one has no runner.
const AT_ONCE: Duration = Duration::from_secs(2 * 60);
/// How many machines may be broken at once: one incident costs no more healthy machines.
const BROKEN_MAX: usize = 2;

/// The machines whose agents did not answer lately.
#[derive(Debug, Default)]
pub struct Silences {
    since: BTreeMap<InstanceId, Timestamp>,
}

impl Silences {
    /// Takes note of a machine whose agent does not answer. Returns whether so
    /// many did not answer lately that the machine is not to blame.
    pub fn note(&mut self, machine: &InstanceId, now: Timestamp) -> bool {
        self.since.retain(|_, since| now.since(*since) < AT_ONCE);
        self.since.entry(machine.clone()).or_insert(now);
        self.since.len() > BROKEN_MAX && !crate::sabotage!("silence-is-the-machines")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_silent_agents_are_broken_and_three_have_lost_their_way() {
        let [one, two, three] = ["i-1", "i-2", "i-3"].map(InstanceId::new);
        let at = |seconds| Timestamp::EPOCH.after(Duration::from_secs(seconds));
        let mut silences = Silences::default();
        assert!(!silences.note(&one, at(0)));
        assert!(!silences.note(&one, at(40)), "the same machine proves nothing more");
        assert!(!silences.note(&two, at(60)));
        assert!(silences.note(&three, at(119)));
        assert!(silences.note(&one, at(119)), "also of those that were first");
        assert!(!silences.note(&one, at(300)), "the others are long past");
    }
}
