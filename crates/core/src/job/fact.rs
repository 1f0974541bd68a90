//! What is known of a job: facts that only ever grow, merged in any order and however often.
//!
//! A [`JobFact`] is what one source (a webhook, or GitHub when it is asked) said of a job, once.
//! [`JobKnowledge`] is everything that was ever said: each field is joined by itself, by a rule that does
//! not care for order or repetition. So a fact that comes late, twice, or again under the same
//! delivery id after a crash changes nothing that it should not, and none has to be remembered as
//! "seen".
//!
//! Not here: what we do about a job (`transition`), or GitHub's JSON (`bullpen-github`).

use serde::{Deserialize, Serialize};

use super::origin::Provenance;
use crate::ids::{JobId, Repository, RunAttempt, RunnerName};
use crate::time::Timestamp;

/// What one source said of one job, once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFact {
    /// Which job.
    pub job: JobId,
    /// What stays the same for all its life.
    pub about: JobDetails,
    /// Where it stood.
    pub said: ReportedStatus,
}

/// What stays the same for all of a job's life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct JobDetails {
    /// Of which repository.
    pub repository: Repository,
    /// Of which attempt of which run.
    pub run: RunAttempt,
    /// Its name.
    pub name: String,
    /// What it asks of a runner. GitHub leaves them out of some of the last words on a job.
    pub labels: Vec<String>,
    /// Of which commit, to say something at.
    pub commit: String,
    /// When it was created, by GitHub's clock. Old servers do not say.
    pub created_at: Option<Timestamp>,
    /// Where its code comes from, as far as GitHub said.
    #[serde(default, skip_serializing_if = "Provenance::is_unknown")]
    pub provenance: Provenance,
}

/// Where a job stood when somebody looked.
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
        /// Who had it, if anybody did.
        runner: Option<RunnerName>,
        /// When.
        at: Option<Timestamp>,
    },
}

/// How a job went, in GitHub's words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Conclusion(String);

impl Conclusion {
    /// GitHub's word.
    pub fn new(word: &str) -> Self {
        Self(word.to_owned())
    }

    /// GitHub's word.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether somebody stopped it.
    pub fn is_cancelled(&self) -> bool {
        self.0 == "cancelled"
    }
}

/// Where a job stands, by everything that is known. It only ever moves down this list.
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

/// Everything that was ever said of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct JobKnowledge {
    /// What stays the same.
    pub about: JobDetails,
    /// That it was queued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued: Option<GithubTime>,
    /// That it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<JobStart>,
    /// That it is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed: Option<Completed>,
}

/// That something happened, and when, by GitHub's clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GithubTime {
    /// When, if it was said.
    pub at: Option<Timestamp>,
}

/// That a job started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobStart {
    /// On which runner, if it was said.
    pub runner: Option<RunnerName>,
    /// When, if it was said.
    pub at: Option<Timestamp>,
}

/// That a job is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completed {
    /// How it went.
    pub conclusion: Conclusion,
    /// When, if it was said.
    pub at: Option<Timestamp>,
}

impl JobKnowledge {
    /// What one fact says.
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
                // Who had it is a fact about its start, which may be the fact that was lost.
                known.started =
                    runner.clone().map(|runner| JobStart { runner: Some(runner), at: None });
                known.completed = Some(Completed { conclusion: conclusion.clone(), at: *at });
            }
        }
        known
    }

    /// What both say together: commutative, associative and idempotent, as each field is.
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

    /// Where the job stands.
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
    /// They are equal unless GitHub left something out, or a repository was renamed meanwhile; then
    /// any rule will do that does not depend on the order.
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
