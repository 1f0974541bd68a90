//! Bounds the error of the machine's clock by the issue times of orders.
//!
//! The agent cannot read an order before the control plane wrote it. So the machine's clock is
//! ahead of the control plane's by at most the smallest age at which the agent read an order. If
//! that age is negative, the clock is behind by at least as much. Nothing else is certain: a late
//! read looks the same as a clock that is ahead.
//!
//! Not here: setting a clock.

use std::time::Duration;

use bullpen_core::time::Timestamp;

/// How far the clock is ahead of the control plane's, at most, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Offset(pub(super) Option<i64>);

impl Offset {
    /// Records that the agent read an order with this issue time.
    pub(super) fn note(&mut self, issued_at: Option<Timestamp>, now: Timestamp) {
        let Some(issued_at) = issued_at else { return };
        let age = now.as_millis().saturating_sub(issued_at.as_millis());
        self.0 = Some(self.0.map_or(age, |least| least.min(age)));
    }

    /// The time of this machine's clock at which the control plane's clock has certainly reached
    /// `time`.
    pub(super) fn certainly(self, time: Timestamp) -> Timestamp {
        Timestamp::from_millis(time.as_millis().saturating_add(self.0.unwrap_or(0)))
    }

    /// How far the clock is behind, if that is certainly more than `tolerated`.
    pub(super) fn behind(self, tolerated: Duration) -> Option<Duration> {
        let behind = Duration::from_millis(u64::try_from(self.0?.saturating_neg()).ok()?);
        (behind > tolerated).then_some(behind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Timestamp {
        Timestamp::EPOCH.after(Duration::from_secs(secs))
    }

    #[test]
    fn only_the_youngest_order_counts() {
        let mut offset = Offset::default();
        assert_eq!(offset.certainly(at(100)), at(100));
        offset.note(Some(at(100)), at(160));
        offset.note(Some(at(200)), at(203));
        offset.note(Some(at(300)), at(390));
        offset.note(None, at(0));
        assert_eq!(offset.certainly(at(1_000)), at(1_003));
        assert_eq!(offset.behind(Duration::ZERO), None);
    }

    #[test]
    fn an_order_from_the_future_is_proof_of_a_clock_that_is_behind() {
        let mut offset = Offset::default();
        offset.note(Some(at(400)), at(100));
        assert_eq!(offset.behind(Duration::from_secs(30)), Some(Duration::from_secs(300)));
        assert_eq!(offset.behind(Duration::from_secs(300)), None);
        assert_eq!(offset.certainly(at(1_000)), at(700));
    }
}
