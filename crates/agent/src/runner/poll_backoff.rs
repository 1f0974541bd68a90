//! The waits between looks at something that will happen soon, where no event can wake the agent.
//!
//! Not here: the looks.

use std::time::Duration;

/// The first wait: the runner program may be done within a few milliseconds, and an owner waits.
const FIRST: Duration = Duration::from_millis(1);
/// The longest wait.
const LONGEST: Duration = Duration::from_millis(20);

/// Short waits at first, longer waits the longer it takes: the delay of a look is at most a third
/// of the time it took, and at most the longest wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PollBackoff {
    next: Duration,
}

impl PollBackoff {
    /// The state before the first look.
    pub(crate) const fn new() -> Self {
        Self { next: FIRST }
    }

    /// The wait before the next look.
    pub(crate) fn wait(&mut self) -> Duration {
        let wait = self.next;
        self.next = (wait + wait / 2).min(LONGEST);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_come_soon_at_first_and_never_further_apart_than_the_longest_wait() {
        let mut looks = PollBackoff::new();
        let mut passed = Duration::ZERO;
        for _ in 0..6 {
            let wait = looks.wait();
            assert!(wait <= FIRST + passed / 2, "{wait:?} after {passed:?}");
            passed += wait;
        }
        assert!(passed < Duration::from_millis(25), "{passed:?}");
        let waits: Vec<Duration> = (0..20).map(|_| looks.wait()).collect();
        assert!(waits.is_sorted() && waits.last() == Some(&LONGEST));
    }
}
