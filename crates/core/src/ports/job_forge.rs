//! GitHub, as far as jobs and their authors are concerned.

use std::future::Future;

use super::Fault;
use crate::ids::{JobId, Repository, RunAttempt};
use crate::job::{JobFact, Provenance, Reason};
use crate::time::Timestamp;

/// What is said to the author of a job that cannot be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Which job. Saying it again about the same job says it once.
    pub job: JobId,
    /// The job's name.
    pub name: String,
    /// Where.
    pub repository: Repository,
    /// At which commit.
    pub commit: String,
    /// Why.
    pub reason: Reason,
}

/// A file of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileRead {
    /// This is what it says now.
    Read {
        /// The text.
        text: String,
        /// What to show the next time.
        tag: Option<String>,
    },
    /// It is as it was when the tag was given.
    Unchanged,
    /// There is no such file, or no such repository, or we may not see it.
    Absent,
}

/// A webhook that GitHub says did not arrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostDelivery {
    /// GitHub's id of the attempt.
    pub id: u64,
    /// Which event; the same for every attempt to deliver it.
    pub guid: String,
    /// When it was tried.
    pub at: Timestamp,
}

/// The forge, for the service: what jobs are there, and a word to their authors.
///
/// Contract: what is asked is answered as facts, which are merged like those of webhooks. `tell`,
/// `cancel` and `redeliver` may be repeated. Weak arm: everything may lag, and may be down,
/// throttled or refused for minutes.
pub trait JobForge: Send + Sync {
    /// One job as it is now; [`Fault::NotFound`] if GitHub does not know it (any more).
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
    /// All jobs of a repository that want a runner now, announced or not.
    fn queued_jobs(
        &self,
        repository: &Repository,
    ) -> impl Future<Output = Result<Vec<JobFact>, Fault>> + Send;
    /// Where the code of this run comes from, by one call. An answer says both parts.
    fn provenance(
        &self,
        repository: &Repository,
        run: &RunAttempt,
    ) -> impl Future<Output = Result<Provenance, Fault>> + Send;
    /// Says at the commit why a job was not served.
    fn tell(&self, notice: &Notice) -> impl Future<Output = Result<(), Fault>> + Send;
    /// Cancels a run. Succeeds if it is over already, or a later attempt of it has begun.
    fn cancel(
        &self,
        repository: &Repository,
        run: &RunAttempt,
    ) -> impl Future<Output = Result<(), Fault>> + Send;
    /// A file on the default branch; `seen` is the tag of what is known already.
    fn file(
        &self,
        repository: &Repository,
        path: &str,
        seen: Option<&str>,
    ) -> impl Future<Output = Result<FileRead, Fault>> + Send;
    /// Webhooks since `since` that never arrived, by any attempt. Those that GitHub never tried are
    /// not among them; [`JobForge::queued_jobs`] finds their jobs.
    fn lost_deliveries(
        &self,
        since: Timestamp,
    ) -> impl Future<Output = Result<Vec<LostDelivery>, Fault>> + Send;
    /// Has a webhook sent again.
    fn redeliver(&self, delivery: &LostDelivery) -> impl Future<Output = Result<(), Fault>> + Send;
}
