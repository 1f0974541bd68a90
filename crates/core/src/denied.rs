//! Machines that the cloud denies to end, by a protection or a policy: when a process asks again for each.
//!
//! Not here: asking, or what else holds up the end of a machine (`bullpen-engine`).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ids::InstanceId;
use crate::limits::{DENIED_PAUSE, DENIED_PAUSE_MAX};
use crate::sabotage;

/// The denied machines of one process. Times are on its monotonic clock.
#[derive(Clone, Debug, Default)]
pub struct DeniedEnds(BTreeMap<InstanceId, DeniedEnd>);

#[derive(Clone, Copy, Debug, Default)]
struct DeniedEnd {
    times: u32,
    again_at: Duration,
}

impl DeniedEnds {
    /// Notes that the cloud denied to end a machine; each further denial doubles the pause. Forgets
    /// machines for which no process asked again in time: they are gone.
    pub fn note(&mut self, id: &InstanceId, now: Duration) {
        self.0.retain(|_, denied| !denied.is_over(now));
        let denied = self.0.entry(id.clone()).or_default();
        let factor = 1_u32 << denied.times.min(16);
        denied.times = denied.times.saturating_add(1);
        denied.again_at = now + DENIED_PAUSE.saturating_mul(factor).min(DENIED_PAUSE_MAX);
    }

    /// Whether the process may ask the cloud to end this machine now.
    pub fn may_ask(&self, id: &InstanceId, now: Duration) -> bool {
        let pauses = self.0.get(id).is_some_and(|denied| now < denied.again_at);
        !pauses || sabotage!("denials-are-forgotten")
    }

    /// Forgets a machine that has ended.
    pub fn forget(&mut self, id: &InstanceId) {
        self.0.remove(id);
    }

    /// How many machines the cloud denies to end.
    pub fn count(&self, now: Duration) -> usize {
        self.0.values().filter(|denied| !denied.is_over(now)).count()
    }
}

impl DeniedEnd {
    fn is_over(self, now: Duration) -> bool {
        now >= self.again_at + DENIED_PAUSE_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_denial_doubles_the_pause_up_to_the_longest() {
        let (mut ends, id) = (DeniedEnds::default(), InstanceId::new("i-1"));
        let (mut now, mut pauses) = (Duration::ZERO, Vec::new());
        for _ in 0..7 {
            ends.note(&id, now);
            let mut pause = 0;
            while !ends.may_ask(&id, now) {
                now += Duration::from_secs(1);
                pause += 1;
            }
            pauses.push(pause);
        }
        assert_eq!(pauses, [30, 60, 120, 240, 480, 600, 600]);
        assert_eq!(ends.count(now), 1);
        ends.forget(&id);
        assert_eq!(ends.count(now), 0);
    }

    #[test]
    fn a_machine_that_is_not_asked_for_again_is_forgotten() {
        let mut ends = DeniedEnds::default();
        ends.note(&InstanceId::new("i-1"), Duration::ZERO);
        let later = DENIED_PAUSE + DENIED_PAUSE_MAX;
        assert_eq!((ends.count(Duration::ZERO), ends.count(later)), (1, 0));
        ends.note(&InstanceId::new("i-2"), later);
        assert_eq!(ends.0.len(), 1);
    }
}
