//! Taking turns at a file that several processes write.
//!
//! SQLite has one write lock and no queue in front of it: whoever asks at the right moment gets it,
//! and a process that writes without pause asks at every right moment. So each writer first takes
//! the *door*, an advisory lock on a file beside the database, waits for the write lock while
//! holding it, and lets go of the door once inside. Whoever leaves finds the door taken by the next
//! one, and cannot overtake. The kernel drops the lock of a process that dies.
//!
//! [`LockWait`] is how anyone here waits: short random naps, added up, until too many. Naps and not
//! a blocking lock call, because a stopped process that holds the lock must cost the others an
//! error and not forever. Random and not SQLite's own ladder, whose steps grow to a tenth of a
//! second while others come and go.
//!
//! Not here: transactions ([`crate::store`]).

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{io, process, thread};

/// How long one lock is waited for, in naps, before the caller is told to come back later.
pub(crate) const PATIENCE_MAX: Duration = Duration::from_secs(5);
/// The shortest nap: about what one commit without a disk flush takes.
const NAP_MICROS_MIN: u64 = 50;
/// The longest nap: short against one commit with a flush, so that little time is lost between one
/// writer's end and the next one's start.
const NAP_MICROS_MAX: u64 = 400;

/// Attempts before the first nap, which only let others run. The shortest nap takes the kernel as
/// long as a third of a commit on a good disk, and that would be lost between any two turns.
const YIELDS_MAX: i32 = 64;

/// A stream of numbers for naps. Nothing depends on their quality, only on two waiters not moving
/// in step, so the seed is what tells waiters apart: no entropy of the system is asked for.
struct Jitter(u64);

impl Jitter {
    fn new() -> Self {
        static WAITERS: AtomicU64 = AtomicU64::new(1);
        let waiter = WAITERS.fetch_add(1, Ordering::Relaxed);
        let seed = (u64::from(process::id()) << 32) ^ waiter;
        // An odd multiplier spreads neighbouring seeds; zero would stay zero for ever.
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

/// One waiter's naps for one lock at a time.
pub(crate) struct LockWait {
    jitter: Jitter,
    slept: Duration,
    max: Duration,
}

impl LockWait {
    /// A waiter that naps for `max` in all.
    pub(crate) fn new(max: Duration) -> Self {
        Self { jitter: Jitter::new(), slept: Duration::ZERO, max }
    }

    /// Naps before another attempt; false, without a nap, when there have been enough. `attempt`
    /// counts from zero for each lock, as SQLite's busy handler does.
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
        #[expect(
            clippy::disallowed_methods,
            reason = "a thread of our own waits for another process"
        )]
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

/// Why the door stayed shut.
#[derive(Debug)]
pub(crate) enum GateClosed {
    /// Somebody else held it for too long.
    Busy,
    /// The lock file cannot be used.
    Io(io::Error),
}

impl WriteGate {
    /// The door of the database at `database`; each one opened is a waiter of its own.
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

    /// Runs `inside` while holding the door.
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
        // An unlock can only fail for a descriptor that is not open; ours is.
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
    fn one_at_a_time_passes_a_door() {
        let directory = TempDir::new().unwrap();
        let database = directory.path().join("ledger.db");
        let mut first = WriteGate::open(&database, PATIENCE_MAX).unwrap();
        let mut second = WriteGate::open(&database, Duration::from_micros(1)).unwrap();
        let blocked = first.pass(|| second.pass(|| ())).unwrap();
        assert!(matches!(blocked, Err(GateClosed::Busy)));
        assert!(second.pass(|| ()).is_ok());
    }
}
