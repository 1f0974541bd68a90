//! The `JobForge` port on GitHub.
//!
//! Not here: the single calls (`runs`, `notices`, `contents`, `deliveries`).

use bullpen_core::forge_rates::{CallCounts, CallPurpose};
use bullpen_core::ids::{JobId, Repository, RunAttempt};
use bullpen_core::job::{JobFact, Provenance};
use bullpen_core::ports::{Clock, Fault, FileRead, JobForge, LostDelivery, Notice, UnfinishedRun};
use bullpen_core::time::Timestamp;

use crate::client::GitHub;
use crate::runs::{Status, WorkflowJob};

impl<C: Clock> JobForge for GitHub<C> {
    async fn job(&self, repository: &Repository, job: &JobId) -> Result<JobFact, Fault> {
        let id = job.as_str().parse::<u64>();
        let id = id.map_err(|_| Fault::Denied(format!("{job} is not a job of GitHub's")))?;
        Ok(self.in_time(GitHub::job(self, repository, id)).await?.fact(repository))
    }

    async fn jobs_of(
        &self,
        repository: &Repository,
        run: &RunAttempt,
    ) -> Result<Vec<JobFact>, Fault> {
        let (id, attempt) = at_github(run)?;
        let jobs = self.jobs(repository, id, Some(attempt)).await?;
        Ok(facts(jobs, repository))
    }

    async fn unfinished_runs(&self, repository: &Repository) -> Result<Vec<UnfinishedRun>, Fault> {
        self.in_time(self.unfinished(repository)).await
    }

    async fn search_run(
        &self,
        repository: &Repository,
        run: &RunAttempt,
    ) -> Result<Vec<JobFact>, Fault> {
        let jobs = self.searched_jobs(repository, at_github(run)?);
        Ok(facts(self.in_time(jobs).await?, repository))
    }

    async fn provenance(
        &self,
        repository: &Repository,
        run: &RunAttempt,
    ) -> Result<Provenance, Fault> {
        let (id, _) = at_github(run)?;
        let run = self.in_time(self.run(repository, id, CallPurpose::Origin)).await?;
        Ok(run.provenance(repository))
    }

    async fn tell(&self, notice: &Notice) -> Result<(), Fault> {
        self.in_time(self.notify(notice)).await
    }

    async fn cancel(&self, repository: &Repository, run: &RunAttempt) -> Result<(), Fault> {
        let (id, attempt) = at_github(run)?;
        self.in_time(async {
            let found = match self.run(repository, id, CallPurpose::Cancel).await {
                Err(Fault::NotFound) => return Ok(()),
                other => other?,
            };
            // GitHub cancels the latest attempt, which may be another one.
            if found.run_attempt != attempt || found.status == Status::Completed {
                return Ok(());
            }
            self.cancel_run(repository, id).await
        })
        .await
    }

    async fn file(
        &self,
        repository: &Repository,
        path: &str,
        seen: Option<&str>,
    ) -> Result<FileRead, Fault> {
        self.in_time(self.contents(repository, path, seen)).await
    }

    async fn lost_deliveries(&self, since: Timestamp) -> Result<Vec<LostDelivery>, Fault> {
        self.in_time(self.undelivered(since)).await
    }

    fn calls(&self) -> CallCounts {
        Self::calls(self)
    }

    async fn redeliver(&self, delivery: &LostDelivery) -> Result<(), Fault> {
        self.in_time(self.request_redelivery(delivery.id)).await
    }
}

fn facts(jobs: Vec<WorkflowJob>, repository: &Repository) -> Vec<JobFact> {
    jobs.into_iter().map(|job| job.fact(repository)).collect()
}

fn at_github(run: &RunAttempt) -> Result<(u64, u32), Fault> {
    run.at_github().ok_or_else(|| Fault::Denied(format!("{run} is not a workflow run of GitHub's")))
}
