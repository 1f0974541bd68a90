//! The system's clock, behind the `Clock` port.
//!
//! Only a binary constructs it and passes it to all other code. It is in this crate because every
//! binary links it, also the smallest.
//!
//! Not here: the clocks of tests (`bullpen_sim`), or entropy.

use std::time::{Duration, Instant};

use bullpen_core::ports::Clock;
use bullpen_core::time::Timestamp;

/// This machine's clock.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    began: Instant,
}

impl SystemClock {
    /// A clock whose monotonic time counts from now.
    #[expect(clippy::disallowed_methods, reason = "this is the clock that other code is given")]
    #[expect(clippy::new_without_default, reason = "only a binary may construct a clock")]
    pub fn new() -> Self {
        Self { began: Instant::now() }
    }
}

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "this is the clock that other code is given"
    )]
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        // A clock before 1970 was never set: take it for 1970.
        Timestamp::EPOCH.after(since.unwrap_or_default())
    }

    fn monotonic(&self) -> Duration {
        self.began.elapsed()
    }

    #[expect(clippy::disallowed_methods, reason = "this is the clock that other code is given")]
    async fn sleep(&self, wait: Duration) {
        tokio::time::sleep(wait).await;
    }
}
