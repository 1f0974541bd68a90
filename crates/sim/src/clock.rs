//! Virtual time: the runtime's paused clock, seen through the `Clock` port.
//!
//! Every process of a world has its own [`SimClock`] on the same time, with its own skew. A
//! [`ManualClock`] is for tests of adapters that cannot run on virtual time.
//!
//! Not here: making time pass. The runtime does that when every task waits.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bullpen_core::ports::Clock;
use bullpen_core::time::Timestamp;

use tokio::sync::watch;

use crate::wire::Wire;

/// Where every simulated world begins: a Monday.
pub const WORLD_BEGINS: &str = "2026-01-05T00:00:00Z";

/// One process's view of virtual time.
#[derive(Clone, Debug)]
pub struct SimClock {
    started: tokio::time::Instant,
    begins: Timestamp,
    skew_millis: i64,
    unsteady: Option<Unsteady>,
    wire: Wire,
}

/// What is wrong with a clock beside a constant skew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unsteady {
    /// When the clock steps, in virtual time.
    pub steps_at: Duration,
    /// By how many milliseconds it steps.
    pub step_millis: i64,
    /// How many milliseconds it gains in a minute from then on.
    pub drift_millis: i64,
    /// The most that it gains or loses by that.
    pub drift_max: i64,
}

impl Unsteady {
    /// How far the clock is off at this time, in milliseconds.
    fn millis_at(&self, elapsed: Duration) -> i64 {
        let Some(since) = elapsed.checked_sub(self.steps_at) else { return 0 };
        let minutes = i64::try_from(since.as_secs() / 60).unwrap_or(i64::MAX);
        let gained = self.drift_millis.saturating_mul(minutes);
        self.step_millis + gained.clamp(-self.drift_max, self.drift_max)
    }
}

impl SimClock {
    /// A clock that begins now, for one process.
    pub fn new(wire: Wire, skew_millis: i64) -> Self {
        Self::beginning(world_begins(), wire, skew_millis)
    }

    /// A clock that begins now and shows this time.
    pub fn beginning(begins: Timestamp, wire: Wire, skew_millis: i64) -> Self {
        Self { started: instant(), begins, skew_millis, unsteady: None, wire }
    }

    /// The same time for another process, with another skew.
    #[must_use]
    pub fn for_process(&self, wire: Wire, skew_millis: i64) -> Self {
        Self { skew_millis, wire, unsteady: None, ..self.clone() }
    }

    /// The same clock, which steps and drifts besides.
    #[must_use]
    pub fn unsteady(self, unsteady: Option<Unsteady>) -> Self {
        Self { unsteady, ..self }
    }

    /// Virtual time since the world began.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// The true time, without this process's skew.
    pub fn true_now(&self) -> Timestamp {
        self.begins.after(self.elapsed())
    }
}

/// A clock that stands until it is moved, for adapters that run on real threads.
#[derive(Debug)]
pub struct ManualClock {
    now: watch::Sender<Timestamp>,
    began: Timestamp,
}

impl ManualClock {
    /// A clock that shows the beginning of every simulated world.
    pub fn new() -> Arc<Self> {
        Self::at(world_begins())
    }

    /// A clock that shows this time.
    pub fn at(began: Timestamp) -> Arc<Self> {
        Arc::new(Self { now: watch::Sender::new(began), began })
    }

    /// Moves the clock.
    pub fn advance(&self, by: Duration) {
        self.now.send_modify(|now| *now = now.after(by));
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.now.borrow()
    }

    fn monotonic(&self) -> Duration {
        self.now().since(self.began)
    }

    /// Counts from the call, not from the first poll.
    fn sleep(&self, wait: Duration) -> impl Future<Output = ()> + Send {
        let (until, mut moved) = (self.now().after(wait), self.now.subscribe());
        async move {
            moved.wait_for(|now| *now >= until).await.expect("the clock outlives its sleepers");
        }
    }
}

/// [`WORLD_BEGINS`] as a time.
pub fn world_begins() -> Timestamp {
    WORLD_BEGINS.parse().expect("the constant is RFC 3339")
}

/// The present, on the runtime's paused clock.
pub(crate) fn instant() -> tokio::time::Instant {
    #[expect(clippy::disallowed_methods, reason = "the runtime's clock is paused: virtual time")]
    tokio::time::Instant::now()
}

/// Lets virtual time pass. A process under test sleeps on its own clock instead.
pub async fn pass(wait: Duration) {
    #[expect(clippy::disallowed_methods, reason = "the runtime's clock is paused: virtual time")]
    tokio::time::sleep(wait).await;
}

/// Runs a future to its end on virtual time: the runtime's clock is paused and moves on when every
/// task waits.
pub fn on_virtual_time<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O always builds")
        .block_on(future)
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let elapsed = self.elapsed();
        let off = self.unsteady.map_or(0, |unsteady| unsteady.millis_at(elapsed));
        Timestamp::from_millis(self.begins.after(elapsed).as_millis() + self.skew_millis + off)
    }

    fn monotonic(&self) -> Duration {
        self.elapsed()
    }

    fn sleep(&self, wait: Duration) -> impl Future<Output = ()> + Send {
        let wire = self.wire.clone();
        async move {
            wire.step().await;
            pass(wait).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unsteady_clock_steps_once_and_drifts_up_to_a_limit() {
        let unsteady = Unsteady {
            steps_at: Duration::from_secs(60),
            step_millis: -4_000,
            drift_millis: 500,
            drift_max: 2_000,
        };
        let off = |secs| unsteady.millis_at(Duration::from_secs(secs));
        assert_eq!((off(59), off(60), off(179), off(180)), (0, -4_000, -3_500, -3_000));
        assert_eq!(off(3_600), -2_000);
    }
}
