//! What the silence of an agent proves about its machine.
//!
//! One or two silent agents have broken machines. More at once have lost their way to the mailbox: their
//! machines are given back, and their releases end them if their agents stay silent for long. An agent
//! that beat a moment ago may only be late. All processes see the same reports, so that together they
//! end no more machines than one alone.
//!
//! Not here: what silence is ([`super::CheckFailure::is_silence`]), or reading the reports.

use crate::limits::Limits;
use crate::mailbox::Report;
use crate::sabotage;
use crate::time::Timestamp;

/// How many machines may be broken at once: one incident costs no more healthy machines.
const BROKEN_MAX: usize = 2;

/// Why an agent does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Silence {
    /// Its machine is broken: its agent beats no more, and others do.
    Own,
    /// Several agents beat no more: their way to the mailbox is.
    Shared,
    /// It beat a moment ago.
    Unproven,
}

/// Since when an agent is watched.
#[derive(Clone, Copy, Debug)]
pub enum Watch<'r> {
    /// It is not: only a beat of a moment ago counts.
    Not,
    /// Since this report was read. A beat since then proves that it lives, however wrong its clock is.
    Since(Option<&'r Report>),
}

impl Silence {
    /// Judges an agent that does not answer by its report and by those of other running machines.
    pub fn judge<'r>(
        (own, watch): (Option<&Report>, Watch<'_>),
        others: impl IntoIterator<Item = Option<&'r Report>>,
        now: Timestamp,
        limits: &Limits,
    ) -> Self {
        let beats = |report: Option<&Report>| {
            report.is_some_and(|report| report.is_fresh(now, limits.heartbeat_stale, None))
        };
        if sabotage!("silence-is-the-machines") {
            return Self::Own;
        }
        let has_beaten = match watch {
            Watch::Not => false,
            Watch::Since(first) => has_beaten(first, own),
        };
        if (beats(own) || has_beaten) && !sabotage!("beats-prove-nothing") {
            return Self::Unproven;
        }
        let silent = others.into_iter().filter(|report| !beats(*report)).take(BROKEN_MAX).count();
        if silent + 1 > BROKEN_MAX { Self::Shared } else { Self::Own }
    }
}

/// Whether an agent has beaten between two reads of its report.
fn has_beaten(first: Option<&Report>, last: Option<&Report>) -> bool {
    let beat = |report: Option<&Report>| report.and_then(|report| report.beat.clone());
    match (beat(first), beat(last)) {
        (Some(seen), Some(last)) => last.follows(&seen),
        (None, last) => last.is_some(),
        (Some(_), None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mailbox::{AgentPhase, Beat};
    use crate::samples::{LIMITS, at, beat};

    #[test]
    fn two_silent_agents_are_broken_and_three_have_lost_their_way() {
        let limits = Limits::DEFAULT;
        let now = Timestamp::EPOCH.after(limits.heartbeat_stale * 10);
        let beat = |ago| {
            let (boot, at) = (String::from("boot"), now.before(ago));
            let beat = Beat { seq: 1, at, phase: AgentPhase::Waiting, boot };
            Report { beat: Some(beat), ..Report::default() }
        };
        let (fresh, stale) = (beat(limits.heartbeat), beat(limits.heartbeat_stale * 2));
        let judge = |own, others: &[Option<&Report>]| {
            Silence::judge((own, Watch::Not), others.iter().copied(), now, &limits)
        };
        assert_eq!(judge(Some(&stale), &[]), Silence::Own);
        assert_eq!(judge(Some(&stale), &[Some(&stale), Some(&fresh)]), Silence::Own);
        assert_eq!(judge(Some(&stale), &[Some(&stale), None]), Silence::Shared);
        assert_eq!(judge(None, &[Some(&stale), Some(&stale)]), Silence::Shared);
        assert_eq!(judge(Some(&fresh), &[Some(&stale), Some(&stale)]), Silence::Unproven);
    }

    #[test]
    fn a_beat_during_a_watch_proves_life_on_any_clock() {
        let report = |seq, seconds| Report {
            beat: Some(Beat { at: at(seconds), ..beat(seq, at(0)) }),
            ..Report::default()
        };
        let judge = |first: Option<&Report>, last: Option<&Report>| {
            Silence::judge((last, Watch::Since(first)), [], at(900), &LIMITS)
        };
        assert_eq!(judge(None, None), Silence::Own);
        assert_eq!(judge(Some(&report(7, 0)), Some(&report(7, 0))), Silence::Own);
        let wrong = judge(Some(&report(7, 0)), Some(&report(8, 0)));
        assert_eq!(wrong, Silence::Unproven, "its clock is wrong");
        let lately = judge(Some(&report(7, 895)), Some(&report(7, 895)));
        assert_eq!(lately, Silence::Unproven, "it has just beaten");
        let begun = judge(None, Some(&report(1, 0)));
        assert_eq!(begun, Silence::Unproven, "it has begun to beat");
    }
}
