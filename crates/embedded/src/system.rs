//! The wall clock and the operating system's entropy, behind the `Clock` and `Ids` ports.
//!
//! Only a binary makes one of these, and gives it to everybody else.
//!
//! Not here: any other clock (`bullpen_sim` has those of tests).

use std::time::{Duration, Instant};

use bullpen_core::ids::{ClaimId, HolderId, StopOp};
use bullpen_core::ports::{Clock, Ids};
use bullpen_core::time::Timestamp;
use rustix::rand::{GetRandomFlags, getrandom};

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

/// Ids from the operating system's entropy.
#[derive(Clone, Debug)]
pub struct SystemIds {
    holder: HolderId,
}

impl SystemIds {
    /// This process's ids.
    #[expect(clippy::new_without_default, reason = "a holder by default would be one by chance")]
    pub fn new() -> Self {
        Self { holder: HolderId::new(id()) }
    }
}

impl Ids for SystemIds {
    fn claim(&self) -> ClaimId {
        ClaimId::new(id())
    }

    fn stop_op(&self) -> StopOp {
        StopOp::new(id())
    }

    fn holder(&self) -> HolderId {
        self.holder.clone()
    }

    fn jitter(&self, bound: u64) -> u64 {
        // The bias is below anything that a wait could show.
        u64::from_le_bytes(entropy()) % bound.max(1)
    }
}

/// So many bits that two processes never draw the same.
fn id() -> String {
    format!("{:032x}", u128::from_le_bytes(entropy()))
}

fn entropy<const BYTES: usize>() -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    // So few bytes are never given in parts, and no signal interrupts them.
    let drawn = getrandom(&mut bytes[..], GetRandomFlags::empty());
    assert_eq!(drawn, Ok(BYTES), "a system without entropy can make no ids");
    bytes
}
