//! How long a hot machine lives: its pool's lifetime, varied a little by the machine's id, so that
//! machines that were launched together are not replaced together. The id decides and not chance,
//! so that every process gets the same answer.
//!
//! Not here: what happens to a machine at the end of its lifetime (`role`, `supply`).

use std::time::Duration;

use crate::ids::InstanceId;
use crate::limits::{LIFETIME_SPREAD_PERMILLE, Limits};
use crate::sabotage;
use crate::time::Timestamp;

/// This machine's lifetime, from its pool's.
pub fn lifetime(id: &InstanceId, base: Duration) -> Duration {
    let share = spread(id.as_str()) % (2 * LIFETIME_SPREAD_PERMILLE + 1);
    let permille = 1_000 - LIFETIME_SPREAD_PERMILLE + share;
    let millis = base.as_millis().saturating_mul(u128::from(permille)) / 1_000;
    let millis = if sabotage!("lifetimes-are-short") { millis / 4 } else { millis };
    Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
}

/// FNV-1a, then one mixing step because ids differ in their last characters. Even enough, and cheap
/// enough for every machine in every plan.
fn spread(text: &str) -> u64 {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mixed = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 32)
}

/// The deadline in the record of a machine that is hot since then: it ends then, replaced or not.
pub fn hot_deadline(
    id: &InstanceId,
    since: Timestamp,
    base: Duration,
    limits: &Limits,
) -> Timestamp {
    since.after(lifetime(id, base)).after(limits.hot_hard_end)
}
