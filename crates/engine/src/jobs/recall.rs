//! What one process remembers so that GitHub is not asked twice: credentials that no agent was given
//! yet, and where the code of a run comes from.
//!
//! Forgetting any of it costs a call. What another process minted under the same name is replaced by
//! minting again.
//!
//! Not here: asking (`super::assign`, `super::ends`).

use std::collections::BTreeMap;
use std::time::Duration;

use bullpen_core::ids::{Repository, RunAttempt, RunnerName};
use bullpen_core::mailbox::Credential;
use bullpen_core::time::Timestamp;

/// How long an unused credential is good: GitHub says an hour, and has been seen to forget sooner.
const CREDENTIAL_LASTS: Duration = Duration::from_secs(5 * 60);
/// How many of each are remembered: more than one process works on in that time.
const REMEMBERED_MAX: usize = 1_000;

/// What was learned and may be needed again.
#[derive(Debug, Default)]
pub(super) struct Recall {
    minted: BTreeMap<RunnerName, (Timestamp, Credential)>,
    forks: BTreeMap<(Repository, RunAttempt), bool>,
}

impl Recall {
    /// A credential that was minted under this name and not used.
    pub(super) fn credential(&mut self, name: &RunnerName, now: Timestamp) -> Option<Credential> {
        self.minted.retain(|_, (at, _)| now.since(*at) < CREDENTIAL_LASTS);
        self.minted.get(name).map(|(_, credential)| credential.clone())
    }

    /// A credential was minted.
    pub(super) fn minted(&mut self, name: RunnerName, credential: Credential, now: Timestamp) {
        if self.minted.len() < REMEMBERED_MAX {
            self.minted.insert(name, (now, credential));
        }
    }

    /// It is given to an agent, and is nobody else's.
    pub(super) fn used(&mut self, name: &RunnerName) {
        self.minted.remove(name);
    }

    /// Whether code of a fork runs in this run, if that was asked before. It never changes.
    pub(super) fn is_from_fork(&self, repository: &Repository, run: &RunAttempt) -> Option<bool> {
        self.forks.get(&(repository.clone(), run.clone())).copied()
    }

    /// GitHub said where a run's code comes from.
    pub(super) fn came_from(&mut self, repository: &Repository, run: &RunAttempt, fork: bool) {
        if self.forks.len() >= REMEMBERED_MAX {
            self.forks.pop_first();
        }
        self.forks.insert((repository.clone(), run.clone()), fork);
    }
}

#[cfg(test)]
mod tests {
    use bullpen_core::mailbox::Secret;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    fn name(name: usize) -> RunnerName {
        RunnerName::new(format!("bp-{name}-0"))
    }

    fn credential(text: &str) -> Credential {
        Credential::Jit(Secret::new(text))
    }

    #[test]
    fn a_credential_is_good_until_it_is_used_or_old() {
        let mut recall = Recall::default();
        recall.minted(name(1), credential("one"), NOW);
        recall.minted(name(2), credential("two"), NOW);
        assert_eq!(recall.credential(&name(1), NOW), Some(credential("one")));
        recall.used(&name(1));
        assert_eq!(recall.credential(&name(1), NOW), None);
        let almost = NOW.after(CREDENTIAL_LASTS).before(Duration::from_millis(1));
        assert_eq!(recall.credential(&name(2), almost), Some(credential("two")));
        assert_eq!(recall.credential(&name(2), NOW.after(CREDENTIAL_LASTS)), None);
    }

    #[test]
    fn nothing_grows_without_end() {
        let (mut recall, repository) = (Recall::default(), Repository::new("acme/app"));
        for number in 0..2 * REMEMBERED_MAX {
            recall.minted(name(number), credential("x"), NOW);
            recall.came_from(&repository, &RunAttempt::new(format!("{number}.1")), false);
        }
        assert_eq!(recall.minted.len(), REMEMBERED_MAX);
        assert_eq!(recall.forks.len(), REMEMBERED_MAX);
    }
}
