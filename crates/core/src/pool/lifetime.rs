//! How long a hot machine lives: its pool's lifetime, a little more or less by its own id, so that
//! machines that were launched together are not replaced together. By its id and not by chance: every
//! process that asks gets the same answer.
//!
//! Not here: what becomes of one whose time has come (`supply`, `standing`).

use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::ids::InstanceId;
use crate::limits::{LIFETIME_SPREAD_PERMILLE, Limits};
use crate::time::Timestamp;

/// This machine's share of the pool's lifetime.
pub fn lifetime(id: &InstanceId, base: Duration) -> Duration {
    let digest = Sha256::digest(id.as_str().as_bytes());
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    let share = u64::from_be_bytes(first) % (2 * LIFETIME_SPREAD_PERMILLE + 1);
    let permille = 1_000 - LIFETIME_SPREAD_PERMILLE + share;
    let millis = base.as_millis().saturating_mul(u128::from(permille)) / 1_000;
    Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
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
