//! How long a hot machine lives: its pool's lifetime, a little more or less by its own id, so that
//! machines that were launched together are not replaced together. By its id and not by chance: every
//! process that asks gets the same answer.
//!
//! Not here: what becomes of one whose time has come (`supply`, `standing`).

use std::time::Duration;

use crate::ids::InstanceId;
use crate::limits::{LIFETIME_SPREAD_PERMILLE, Limits};
use crate::time::Timestamp;

/// This machine's share of the pool's lifetime.
pub fn lifetime(id: &InstanceId, base: Duration) -> Duration {
    let share = spread(id.as_str()) % (2 * LIFETIME_SPREAD_PERMILLE + 1);
    let permille = 1_000 - LIFETIME_SPREAD_PERMILLE + share;
    let millis = base.as_millis().saturating_mul(u128::from(permille)) / 1_000;
    Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
}

/// FNV-1a, and a last mixing because ids differ in their last characters: even enough, and cheap
/// enough to ask of every machine in every plan.
fn spread(text: &str) -> u64 {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mixed = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 32)
}

/// When a machine that is hot since then ends, replaced or not: what its record's deadline is to be.
pub fn hot_deadline(
    id: &InstanceId,
    since: Timestamp,
    base: Duration,
    limits: &Limits,
) -> Timestamp {
    since.after(lifetime(id, base)).after(limits.hot_hard_end)
}
