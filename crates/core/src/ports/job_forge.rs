//! The port to GitHub, for jobs, their authors and webhooks.
//!
//! Not here: runners (`forge`).

use std::future::Future;

use super::Fault;
use crate::forge_rates::CallCounts;
use crate::ids::{JobId, Repository, RunAttempt};
use crate::job::{JobFact, Provenance, Reason};
use crate::time::Timestamp;

/// The message to the author of a job that the service cannot serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The job's id. Repeating a notice for a job has no effect.
    pub job: JobId,
    /// The job's name.
    pub name: String,
    /// The job's repository.
    pub repository: Repository,
    /// The commit that the run is for.
    pub commit: String,
    /// Why the service cannot serve it.
    pub reason: Reason,
}

/// The result of reading a file of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileRead {
    /// Its present text.
    Read {
        /// The text.
        text: String,
        /// The tag to send with the next read.
        tag: Option<String>,
    },
    /// It has not changed since the tag was issued.
    Unchanged,
    /// There is no such file or repository, or the service may not see it.
    Absent,
}

/// A webhook that GitHub reports as not delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostDelivery {
    /// GitHub's id of the delivery attempt.
    pub id: u64,
    /// The event's id; the same for every attempt to deliver it.
    pub guid: String,
    /// When GitHub made the attempt.
    pub at: Timestamp,
}

/// A run that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfinishedRun {
    /// The run and its latest attempt.
    pub run: RunAttempt,
    /// When the attempt began, if GitHub says.
    pub began: Option<Timestamp>,
}

/// The forge, for the service: lists jobs and sends notices to their authors.
///
/// Contract: answers about jobs are facts, which the service merges like those of webhooks. `tell`,
/// `cancel` and `redeliver` may be repeated. Weak arm: answers may lag, and GitHub may be down,
/// throttle or refuse for minutes.
pub trait JobForge: Send + Sync {
    /// One job's present state; [`Fault::NotFound`] if GitHub does not know the job (any more).
    fn job(
        &self,
        repository: &Repository,
        job: &JobId,
    ) -> impl Future<Output = Result<JobFact, Fault>> + Send;
    /// All jobs of one attempt of a run.
    fn jobs_of(
        &self,
        repository: &Repository,
        run: &RunAttempt,
    ) -> impl Future<Output = Result<Vec<JobFact>, Fault>> + Send;
    /// The runs of a repository that have not ended, with or without a webhook. The search calls
    /// this and [`JobForge::search_run`] again and again; they are refused with
    /// [`Fault::Throttled`] before they take from GitHub's limits what runners may need, and cost
    /// nothing of the hour while the answer is the same as before.
    fn unfinished_runs(
        &self,
        repository: &Repository,
    ) -> impl Future<Output = Result<Vec<UnfinishedRun>, Fault>> + Send;
    /// All jobs of one attempt of a run that [`JobForge::unfinished_runs`] listed.
    fn search_run(
        &self,
        repository: &Repository,
        run: &RunAttempt,
    ) -> impl Future<Output = Result<Vec<JobFact>, Fault>> + Send;
    /// The origin of this run's code, by one call. The answer has both parts.
    fn provenance(
        &self,
        repository: &Repository,
        run: &RunAttempt,
    ) -> impl Future<Output = Result<Provenance, Fault>> + Send;
    /// Reports at the commit why the service cannot serve a job.
    fn tell(&self, notice: &Notice) -> impl Future<Output = Result<(), Fault>> + Send;
    /// Cancels a run. Succeeds if the run is over already, or a later attempt of it has begun.
    fn cancel(
        &self,
        repository: &Repository,
        run: &RunAttempt,
    ) -> impl Future<Output = Result<(), Fault>> + Send;
    /// A file on the default branch; `seen` is the tag of the last read.
    fn file(
        &self,
        repository: &Repository,
        path: &str,
        seen: Option<&str>,
    ) -> impl Future<Output = Result<FileRead, Fault>> + Send;
    /// Webhooks since `since` that no attempt delivered. Webhooks that GitHub never tried to
    /// deliver are missing; [`JobForge::unfinished_runs`] finds their jobs.
    fn lost_deliveries(
        &self,
        since: Timestamp,
    ) -> impl Future<Output = Result<Vec<LostDelivery>, Fault>> + Send;
    /// Asks GitHub to send a webhook again.
    fn redeliver(&self, delivery: &LostDelivery) -> impl Future<Output = Result<(), Fault>> + Send;
    /// How many calls this process has made at the forge, by purpose; those of [`super::Forge`] too.
    fn calls(&self) -> CallCounts;
}
