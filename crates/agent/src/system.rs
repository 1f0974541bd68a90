//! The wall clock, behind the `Clock` port.
//!
//! Only a binary makes one, and gives it to everybody else. It is in this room because it is the one
//! that every binary links, the smallest too.
//!
//! Not here: any other clock (`bullpen_sim` has those of tests), or entropy.

use std::time::{Duration, Instant};

use bullpen_core::ports::Clock;
use bullpen_core::time::Timestamp;

/// This machine's clock.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    began: Instant,
}

impl SystemClock {
    /// Monotonic time counts from now.
    #[expect(clippy::disallowed_methods, reason = "this is the clock that the others are given")]
    #[expect(clippy::new_without_default, reason = "a clock by default would be a clock by chance")]
    pub fn new() -> Self {
        Self { began: Instant::now() }
    }
}

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "this is the clock that the others are given"
    )]
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        // A clock before 1970 is a clock that was never set.
        Timestamp::EPOCH.after(since.unwrap_or_default())
    }

    fn monotonic(&self) -> Duration {
        self.began.elapsed()
    }

    #[expect(clippy::disallowed_methods, reason = "this is the clock that the others are given")]
    async fn sleep(&self, wait: Duration) {
        tokio::time::sleep(wait).await;
    }
}
