//! Ending process trees by their marks, and by the users that only they have.
//!
//! Not here: which trees (`yard`, `supervisor`).

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use bullpen_agent::runner::tree;

use crate::write_gate::LockWait;

/// How long killed processes may take to be gone, in each round.
const GONE_WITHIN: Duration = Duration::from_secs(10);
/// Rounds of looking and killing: what forks while it is killed is found by the next one.
const ROUNDS_MAX: u32 = 100;
/// A process that forks while it is looked for may have its child behind the look.
const QUIET_ROUNDS: u32 = 2;

/// Ends everything under these marks, and of these users, but this process. What was killed is gone
/// on return.
pub(super) fn end_all(marks: &BTreeSet<String>, users: &BTreeSet<u32>) -> io::Result<()> {
    let mut quiet_rounds = 0;
    for _ in 0..ROUNDS_MAX {
        let mut found = tree::under(marks)?;
        found.extend(tree::of_users(users)?);
        if found.is_empty() {
            quiet_rounds += 1;
            if quiet_rounds == QUIET_ROUNDS {
                return Ok(());
            }
            std::thread::yield_now();
            continue;
        }
        quiet_rounds = 0;
        for one in &found {
            one.kill()?;
        }
        let mut patience = LockWait::new(GONE_WITHIN);
        for attempt in 0.. {
            found.retain(|one| one.is_alive());
            if found.is_empty() {
                break;
            }
            if !patience.nap(attempt) {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "killed processes do not end"));
            }
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "processes multiply faster than they are killed"))
}
