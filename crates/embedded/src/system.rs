//! The operating system's entropy behind the `Ids` port, and the system's clock. Only a binary
//! constructs them and passes them to all other code.
//!
//! Not here: the clock's code ([`bullpen_agent::system`]: agents link no database).

pub use bullpen_agent::system::SystemClock;
use bullpen_core::ids::{ClaimId, HolderId, StopOp};
use bullpen_core::mailbox::Secret;
use bullpen_core::ports::Ids;
use rustix::rand::{GetRandomFlags, getrandom};

/// Ids from the operating system's entropy.
#[derive(Clone, Debug)]
pub struct SystemIds {
    holder: HolderId,
}

impl SystemIds {
    /// This process's ids.
    #[expect(clippy::new_without_default, reason = "only a binary may construct ids")]
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

    fn label_bits(&self) -> u128 {
        u128::from_le_bytes(entropy())
    }

    fn jitter(&self, bound: u64) -> u64 {
        // The modulo's bias is too small to matter for a wait.
        u64::from_le_bytes(entropy()) % bound.max(1)
    }
}

/// A secret that cannot be guessed.
pub fn fresh_secret() -> Secret {
    Secret::new(&(id() + &id()))
}

/// An id with so many random bits that two processes never draw the same.
fn id() -> String {
    format!("{:032x}", u128::from_le_bytes(entropy()))
}

fn entropy<const BYTES: usize>() -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    // The kernel returns so few bytes at once, and no signal interrupts the call.
    let drawn = getrandom(&mut bytes[..], GetRandomFlags::empty());
    assert_eq!(drawn, Ok(BYTES), "a system without entropy can make no ids");
    bytes
}
