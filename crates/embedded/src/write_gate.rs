//! Lets several processes take turns at writing one file.
//!
//! SQLite's write lock has no queue, so a process that writes without pause starves the others.
//! Each writer therefore takes the *gate* first, an advisory lock on the `-door` file, waits for
//! the write lock while it holds the gate, and releases the gate once it has the write lock. A
//! writer that comes back finds the gate held by the next one. The kernel releases dead holders.
//!
//! Not here: transactions ([`crate::store`]).

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{io, process, thread};

/// How long to wait for one lock, in naps, before the caller gets an error.
pub(crate) const PATIENCE_MAX: Duration = Duration::from_secs(5);
/// The shortest nap: about the time of one commit without a disk flush.
const NAP_MICROS_MIN: u64 = 50;
/// The longest nap: short against one commit with a flush, so that little time passes between one
/// writer's end and the next writer's start.
const NAP_MICROS_MAX: u64 = 400;

/// Attempts before the first nap, which only yield. The kernel needs for the shortest nap a third
/// of the time of a commit on a good disk, and every turn would lose that time.
const YIELDS_MAX: i32 = 64;

/// Random numbers for naps. Their quality does not matter as long as two waiters do not nap in
/// step, so a different seed per waiter is enough, without the system's entropy.
struct Jitter(u64);

impl Jitter {
    fn new() -> Self {
        static WAITERS: AtomicU64 = AtomicU64::new(1);
        let waiter = WAITERS.fetch_add(1, Ordering::Relaxed);
        let seed = (u64::from(process::id()) << 32) ^ waiter;
        // An odd multiplier spreads neighbouring seeds. The state must not be zero: it would stay
        // zero.
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// xorshift64: a number from `low` to `high`.
    fn between(&mut self, low: u64, high: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        low + self.0 % (high - low + 1)
    }
}

/// One waiter's naps for one lock at a time: short, random and limited, so that a stopped process
/// that holds a lock costs the others only an error. SQLite's own waits grow to a tenth of a
/// second.
pub(crate) struct LockWait {
    jitter: Jitter,
    slept: Duration,
    max: Duration,
}

impl LockWait {
    /// A waiter that naps for at most `max` per lock.
    pub(crate) fn new(max: Duration) -> Self {
        Self { jitter: Jitter::new(), slept: Duration::ZERO, max }
    }

    /// Naps before another attempt; returns false without a nap when the time is used up. `attempt`
    /// counts from zero for each lock, like SQLite's busy handler.
    pub(crate) fn nap(&mut self, attempt: i32) -> bool {
        if attempt == 0 {
            self.slept = Duration::ZERO;
        }
        if self.slept >= self.max {
            return false;
        }
        if attempt < YIELDS_MAX {
            thread::yield_now();
            return true;
        }
        let nap = Duration::from_micros(self.jitter.between(NAP_MICROS_MIN, NAP_MICROS_MAX));
        #[expect(clippy::disallowed_methods, reason = "our own thread waits for another process")]
        thread::sleep(nap);
        self.slept += nap;
        true
    }
}

/// The lock in front of one database's write lock.
pub(crate) struct WriteGate {
    file: File,
    patience: LockWait,
}

/// Why a writer did not get the gate.
#[derive(Debug)]
pub(crate) enum GateClosed {
    /// Another process held it for too long.
    Busy,
    /// The lock file cannot be used.
    Io(io::Error),
}

impl WriteGate {
    /// The gate of this database; every opened gate is a separate waiter.
    pub(crate) fn open(database: &Path, patience: Duration) -> io::Result<Self> {
        let mut path = database.as_os_str().to_owned();
        path.push("-door");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)?;
        Ok(Self { file, patience: LockWait::new(patience) })
    }

    /// Runs `inside` while it holds the gate.
    pub(crate) fn pass<T>(&mut self, inside: impl FnOnce() -> T) -> Result<T, GateClosed> {
        for attempt in 0.. {
            match self.file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if self.patience.nap(attempt) => {}
                Err(TryLockError::WouldBlock) => return Err(GateClosed::Busy),
                Err(TryLockError::Error(error)) => return Err(GateClosed::Io(error)),
            }
        }
        let passed = inside();
        // Unlocking fails only for a closed descriptor; ours is open.
        self.file.unlock().map_err(GateClosed::Io)?;
        Ok(passed)
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn waiters_do_not_move_in_step_and_stay_within_bounds() {
        let naps = |mut jitter: Jitter| -> Vec<u64> {
            (0..100).map(|_| jitter.between(NAP_MICROS_MIN, NAP_MICROS_MAX)).collect()
        };
        let (one, two) = (naps(Jitter::new()), naps(Jitter::new()));
        assert_ne!(one, two);
        for nap in one.iter().chain(&two) {
            assert!((NAP_MICROS_MIN..=NAP_MICROS_MAX).contains(nap), "{nap}");
        }
        assert!(one.windows(2).any(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn patience_ends_and_begins_anew_with_each_lock() {
        let mut patience = LockWait::new(Duration::from_micros(2 * NAP_MICROS_MAX));
        for _ in 0..2 {
            let attempts = (0..1000).take_while(|attempt| patience.nap(*attempt)).count();
            let naps = attempts - usize::try_from(YIELDS_MAX).unwrap();
            assert!((2..=16).contains(&naps), "{naps}");
        }
    }

    #[test]
    fn one_waiter_at_a_time_holds_the_gate() {
        let directory = TempDir::new().unwrap();
        let database = directory.path().join("ledger.db");
        let mut first = WriteGate::open(&database, PATIENCE_MAX).unwrap();
        let mut second = WriteGate::open(&database, Duration::from_micros(1)).unwrap();
        let blocked = first.pass(|| second.pass(|| ())).unwrap();
        assert!(matches!(blocked, Err(GateClosed::Busy)));
        assert!(second.pass(|| ()).is_ok());
    }
}
