//! The facts known of a job. They only grow, and merge in any order and any number of times.
//!
//! A [`JobFact`] is one report about a job, from a webhook or from an answer of GitHub's.
//! [`JobKnowledge`] is the merge of all reports: each field has a join that ignores order and
//! repetition. So a fact that comes late, twice, or again under the same delivery id after a crash
//! changes nothing that it should not, and the service keeps no list of deliveries that it has
//! seen.
//!
//! Not here: what we do about a job (`transition`), or GitHub's JSON (`bullpen-github`).

use serde::{Deserialize, Serialize};

use super::origin::Provenance;
use crate::ids::{JobId, Repository, RunAttempt, RunnerName};
use crate::time::Timestamp;

/// One report about one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFact {
    /// Which job.
    pub job: JobId,
    /// The job's details.
    pub about: JobDetails,
    /// The job's status at that time.
    pub said: ReportedStatus,
}

/// The details of a job, which stay the same for all its life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct JobDetails {
    /// Its repository.
    pub repository: Repository,
    /// The attempt of the workflow run that it belongs to.
    pub run: RunAttempt,
    /// Its name.
    pub name: String,
    /// The labels of its `runs-on`. GitHub leaves them out of some final reports.
    pub labels: Vec<String>,
    /// Its commit, where its author reads about a failure.
    pub commit: String,
    /// When it was created, by GitHub's clock; old servers leave it out.
    pub created_at: Option<Timestamp>,
    /// Where its code comes from, as far as GitHub reported it.
    #[serde(default, skip_serializing_if = "Provenance::is_unknown")]
    pub provenance: Provenance,
}

/// A job's status in one report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportedStatus {
    /// It exists and wants no runner yet: a gate or a concurrency group holds it back, or its
    /// status is a word that we do not know.
    Held,
    /// It wants a runner.
    Queued {
        /// Since when.
        at: Option<Timestamp>,
    },
    /// A runner has it.
    Started {
        /// Which one.
        runner: Option<RunnerName>,
        /// Since when.
        at: Option<Timestamp>,
    },
    /// It is over.
    Completed {
        /// How it went.
        conclusion: Conclusion,
        /// The runner that had it, if any.
        runner: Option<RunnerName>,
        /// When.
        at: Option<Timestamp>,
    },
}

/// How a job ended, in GitHub's word.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Conclusion(String);

impl Conclusion {
    /// From GitHub's word.
    pub fn new(word: &str) -> Self {
        Self(word.to_owned())
    }

    /// GitHub's word.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the job was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0 == "cancelled"
    }
}

/// How far a job is, by all known facts. It only ever moves down this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobPhase {
    /// It wants no runner yet.
    Held,
    /// It wants one.
    Queued,
    /// It has one.
    Started,
    /// It is over.
    Completed,
}

/// All that GitHub has reported about a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct JobKnowledge {
    /// Its details.
    pub about: JobDetails,
    /// Set once it was queued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued: Option<GithubTime>,
    /// Set once it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<JobStart>,
    /// Set once it is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed: Option<Completed>,
}

/// That something happened, with the time by GitHub's clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GithubTime {
    /// The time, if GitHub reported it.
    pub at: Option<Timestamp>,
}

/// A job's start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobStart {
    /// The runner, if GitHub reported it.
    pub runner: Option<RunnerName>,
    /// The time, if GitHub reported it.
    pub at: Option<Timestamp>,
}

/// A job's end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completed {
    /// How it went.
    pub conclusion: Conclusion,
    /// The time, if GitHub reported it.
    pub at: Option<Timestamp>,
}

impl JobKnowledge {
    /// The knowledge from one fact.
    pub fn of(fact: &JobFact) -> Self {
        let mut known =
            Self { about: fact.about.clone(), queued: None, started: None, completed: None };
        match &fact.said {
            ReportedStatus::Held => {}
            ReportedStatus::Queued { at } => known.queued = Some(GithubTime { at: *at }),
            ReportedStatus::Started { runner, at } => {
                known.started = Some(JobStart { runner: runner.clone(), at: *at });
            }
            ReportedStatus::Completed { conclusion, runner, at } => {
                // The runner belongs to the job's start, and that fact may have been lost.
                known.started =
                    runner.clone().map(|runner| JobStart { runner: Some(runner), at: None });
                known.completed = Some(Completed { conclusion: conclusion.clone(), at: *at });
            }
        }
        known
    }

    /// Merges both: commutative, associative and idempotent, because each field's join is.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        Self {
            about: self.about.join(other.about),
            queued: either(self.queued, other.queued, |a, b| GithubTime {
                at: earlier(a.at, b.at),
            }),
            started: either(self.started, other.started, |a, b| JobStart {
                runner: a.runner.max(b.runner),
                at: earlier(a.at, b.at),
            }),
            completed: either(self.completed, other.completed, |a, b| Completed {
                conclusion: a.conclusion.max(b.conclusion),
                at: earlier(a.at, b.at),
            }),
        }
    }

    /// How far the job is.
    pub const fn phase(&self) -> JobPhase {
        if self.completed.is_some() {
            JobPhase::Completed
        } else if self.started.is_some() {
            JobPhase::Started
        } else if self.queued.is_some() {
            JobPhase::Queued
        } else {
            JobPhase::Held
        }
    }

    /// The runner that GitHub gave it to.
    pub fn runner(&self) -> Option<&RunnerName> {
        self.started.as_ref()?.runner.as_ref()
    }

    /// Since when it wants a runner, by GitHub's clock.
    pub fn queued_at(&self) -> Option<Timestamp> {
        self.queued.as_ref()?.at.or(self.about.created_at)
    }
}

impl JobDetails {
    /// Both are equal unless GitHub left a field out or the repository was renamed. Then any rule
    /// works that ignores the order.
    fn join(self, other: Self) -> Self {
        Self {
            repository: self.repository.max(other.repository),
            run: self.run.max(other.run),
            name: self.name.max(other.name),
            labels: self.labels.max(other.labels),
            commit: self.commit.max(other.commit),
            created_at: earlier(self.created_at, other.created_at),
            provenance: self.provenance.join(other.provenance),
        }
    }
}

fn either<T>(one: Option<T>, other: Option<T>, both: impl FnOnce(T, T) -> T) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(both(one, other)),
        (one, other) => one.or(other),
    }
}

fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    either(one, other, Timestamp::min)
}
