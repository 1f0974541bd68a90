//! One process's cache of GitHub's answers: credentials that no agent has yet, and where the code
//! of a run comes from.
//!
//! A lost entry costs one call. Minting replaces a credential that another process minted under the
//! same name.
//!
//! Not here: asking (`super::assign`, `super::origin`).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bullpen_core::ids::{Repository, RunAttempt, RunnerName};
use bullpen_core::job::Provenance;
use bullpen_core::mailbox::Credential;
use bullpen_core::time::Timestamp;
use tokio::sync::Mutex;

/// How long an unused credential is used: GitHub documents an hour, but has expired some sooner.
const CREDENTIAL_LASTS: Duration = Duration::from_secs(5 * 60);
/// How many credentials the cache holds: more jobs than one process serves in that time.
const CREDENTIALS_MAX: usize = 1_000;
/// How many runs the cache holds: more than webhooks announce while the jobs of one run wait.
const RUNS_MAX: usize = 10_000;
/// How long the service waits before it asks again about a run for which GitHub gave no answer.
const UNANSWERED_FOR: Duration = Duration::from_secs(15);

/// One attempt of a run of a repository.
type Run = (Repository, RunAttempt);

/// GitHub's answers that may be needed again.
#[derive(Debug, Default)]
pub(super) struct GithubCache {
    minted: BTreeMap<RunnerName, (Timestamp, Credential)>,
    runs: BTreeMap<Run, Provenance>,
    /// The same runs, in the order in which they were added.
    runs_by_age: VecDeque<Run>,
    /// The lock of each run that a worker asks about.
    asking: BTreeMap<Run, Arc<Mutex<()>>>,
    /// Runs for which GitHub gave no answer, and when.
    unanswered: BTreeMap<Run, Timestamp>,
}

impl GithubCache {
    /// Returns the credential that was minted under this name and not used.
    pub(super) fn credential(&mut self, name: &RunnerName, now: Timestamp) -> Option<Credential> {
        self.minted.retain(|_, (at, _)| now.since(*at) < CREDENTIAL_LASTS);
        self.minted.get(name).map(|(_, credential)| credential.clone())
    }

    /// Keeps a credential that was just minted.
    pub(super) fn minted(&mut self, name: RunnerName, credential: Credential, now: Timestamp) {
        if self.minted.len() < CREDENTIALS_MAX {
            self.minted.insert(name, (now, credential));
        }
    }

    /// Removes a credential before a worker gives it to an agent.
    pub(super) fn used(&mut self, name: &RunnerName) {
        self.minted.remove(name);
    }

    /// Returns where the code of a run comes from, as far as GitHub has said.
    pub(super) fn provenance(
        &self,
        repository: &Repository,
        run: &RunAttempt,
    ) -> Option<Provenance> {
        self.runs.get(&(repository.clone(), run.clone())).copied()
    }

    /// Keeps GitHub's answer on where a run's code comes from.
    pub(super) fn note_provenance(
        &mut self,
        repository: &Repository,
        run: &RunAttempt,
        answer: Provenance,
    ) {
        let run = (repository.clone(), run.clone());
        self.unanswered.remove(&run);
        if let Some(known) = self.runs.get_mut(&run) {
            *known = known.join(answer);
            return;
        }
        if self.runs.len() >= RUNS_MAX
            && let Some(oldest) = self.runs_by_age.pop_front()
        {
            self.runs.remove(&oldest);
        }
        self.runs_by_age.push_back(run.clone());
        self.runs.insert(run, answer);
    }

    /// Returns the lock for asking about a run. The worker that holds it asks for all that wait.
    pub(super) fn asking(&mut self, repository: &Repository, run: &RunAttempt) -> Arc<Mutex<()>> {
        // Drops the locks that no worker holds or waits for.
        self.asking.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(self.asking.entry((repository.clone(), run.clone())).or_default())
    }

    /// Notes that GitHub did not say where a run's code comes from.
    pub(super) fn note_unanswered(
        &mut self,
        repository: &Repository,
        run: &RunAttempt,
        now: Timestamp,
    ) {
        self.unanswered.retain(|_, at| now.since(*at) < UNANSWERED_FOR);
        self.unanswered.insert((repository.clone(), run.clone()), now);
    }

    /// Whether GitHub gave no answer about this run a moment ago.
    pub(super) fn is_unanswered(
        &self,
        repository: &Repository,
        run: &RunAttempt,
        now: Timestamp,
    ) -> bool {
        let at = self.unanswered.get(&(repository.clone(), run.clone()));
        at.is_some_and(|at| now.since(*at) < UNANSWERED_FOR)
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
        let mut github_cache = GithubCache::default();
        github_cache.minted(name(1), credential("one"), NOW);
        github_cache.minted(name(2), credential("two"), NOW);
        assert_eq!(github_cache.credential(&name(1), NOW), Some(credential("one")));
        github_cache.used(&name(1));
        assert_eq!(github_cache.credential(&name(1), NOW), None);
        let almost = NOW.after(CREDENTIAL_LASTS).before(Duration::from_millis(1));
        assert_eq!(github_cache.credential(&name(2), almost), Some(credential("two")));
        assert_eq!(github_cache.credential(&name(2), NOW.after(CREDENTIAL_LASTS)), None);
    }

    #[test]
    fn nothing_grows_without_end() {
        let (mut github_cache, repository) = (GithubCache::default(), Repository::new("acme/app"));
        for number in 0..2 * CREDENTIALS_MAX.max(RUNS_MAX) {
            github_cache.minted(name(number), credential("x"), NOW);
            let run = RunAttempt::new(format!("{number}.1"));
            github_cache.note_provenance(&repository, &run, Provenance::default());
        }
        assert_eq!(github_cache.minted.len(), CREDENTIALS_MAX);
        assert_eq!((github_cache.runs.len(), github_cache.runs_by_age.len()), (RUNS_MAX, RUNS_MAX));
    }
}
