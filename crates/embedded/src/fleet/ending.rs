//! Kills process trees by their marks, and by the users that belong to them alone.
//!
//! Not here: choosing the trees (`machines`, `supervisor`).

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use bullpen_agent::runner::tree;

use crate::write_gate::LockWait;

/// How long killed processes may take to end, in each round.
const GONE_WITHIN: Duration = Duration::from_secs(10);
/// Rounds of searching and killing: a process may fork while it is killed, and the next round finds
/// its child.
const ROUNDS_MAX: u32 = 100;
/// Rounds without a process before the tree counts as ended: a search may miss the child of a
/// process that forks meanwhile.
const QUIET_ROUNDS: u32 = 2;

/// Kills all processes with these marks or of these users, except this process, and waits until
/// they have ended.
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
        for process in &found {
            process.kill()?;
        }
        let mut patience = LockWait::new(GONE_WITHIN);
        for attempt in 0.. {
            found.retain(|process| process.is_alive());
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
