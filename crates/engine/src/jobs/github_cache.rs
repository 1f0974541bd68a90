//! What one process remembers so that GitHub is not asked twice: credentials that no agent was given
//! yet, and where the code of a run comes from.
//!
//! Forgetting any of it costs a call. What another process minted under the same name is replaced by
//! minting again.
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

/// How long an unused credential is good: GitHub says an hour, and has been seen to forget sooner.
const CREDENTIAL_LASTS: Duration = Duration::from_secs(5 * 60);
/// How many of each are remembered: more than one process works on in that time.
const REMEMBERED_MAX: usize = 1_000;
/// How many runs are remembered: more than webhooks announce while the jobs of one wait.
const RUNS_MAX: usize = 10_000;
/// How long GitHub is not asked again about a run after it did not answer.
const SILENT_FOR: Duration = Duration::from_secs(15);

/// One attempt of a run of a repository.
type Run = (Repository, RunAttempt);

/// What was learned and may be needed again.
#[derive(Debug, Default)]
pub(super) struct GithubCache {
    minted: BTreeMap<RunnerName, (Timestamp, Credential)>,
    runs: BTreeMap<Run, Provenance>,
    /// The same runs, the one heard of longest ago first.
    active_repositories: VecDeque<Run>,
    /// Runs that somebody asks about.
    asking: BTreeMap<Run, Arc<Mutex<()>>>,
    /// Runs that GitHub did not answer about, and when.
    silent: BTreeMap<Run, Timestamp>,
}

impl GithubCache {
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

    /// Where the code of a run comes from, as far as GitHub said.
    pub(super) fn provenance(
        &self,
        repository: &Repository,
        run: &RunAttempt,
    ) -> Option<Provenance> {
        self.runs.get(&(repository.clone(), run.clone())).copied()
    }

    /// GitHub said where a run's code comes from.
    pub(super) fn came_from(
        &mut self,
        repository: &Repository,
        run: &RunAttempt,
        said: Provenance,
    ) {
        let run = (repository.clone(), run.clone());
        self.silent.remove(&run);
        if let Some(known) = self.runs.get_mut(&run) {
            *known = known.join(said);
            return;
        }
        if self.runs.len() >= RUNS_MAX
            && let Some(oldest) = self.active_repositories.pop_front()
        {
            self.runs.remove(&oldest);
        }
        self.active_repositories.push_back(run.clone());
        self.runs.insert(run, said);
    }

    /// The turn to ask about a run: whoever has it asks for all that wait.
    pub(super) fn turn(&mut self, repository: &Repository, run: &RunAttempt) -> Arc<Mutex<()>> {
        // Nobody else has those that only this map holds.
        self.asking.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(self.asking.entry((repository.clone(), run.clone())).or_default())
    }

    /// GitHub did not say where a run's code comes from.
    pub(super) fn was_silent(&mut self, repository: &Repository, run: &RunAttempt, now: Timestamp) {
        self.silent.retain(|_, at| now.since(*at) < SILENT_FOR);
        self.silent.insert((repository.clone(), run.clone()), now);
    }

    /// Whether GitHub has just not answered about this run.
    pub(super) fn is_silent(
        &self,
        repository: &Repository,
        run: &RunAttempt,
        now: Timestamp,
    ) -> bool {
        let at = self.silent.get(&(repository.clone(), run.clone()));
        at.is_some_and(|at| now.since(*at) < SILENT_FOR)
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
        for number in 0..2 * REMEMBERED_MAX.max(RUNS_MAX) {
            github_cache.minted(name(number), credential("x"), NOW);
            let run = RunAttempt::new(format!("{number}.1"));
            github_cache.came_from(&repository, &run, Provenance::default());
        }
        assert_eq!(github_cache.minted.len(), REMEMBERED_MAX);
        assert_eq!(
            (github_cache.runs.len(), github_cache.active_repositories.len()),
            (RUNS_MAX, RUNS_MAX)
        );
    }
}
