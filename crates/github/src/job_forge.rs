//! The `JobForge` port on GitHub.
//!
//! Not here: the single calls (`runs`, `notices`, `contents`, `deliveries`).

use bullpen_core::ids::{JobId, Repository, RunAttempt};
use bullpen_core::job::{JobFact, Provenance, ReportedStatus};
use bullpen_core::ports::{Clock, Fault, FileRead, JobForge, LostDelivery, Notice};
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

    async fn queued_jobs(&self, repository: &Repository) -> Result<Vec<JobFact>, Fault> {
        // Boxed because this future is large, and would make its callers' futures large.
        self.in_time(Box::pin(async {
            let mut found = Vec::new();
            for run in self.unfinished_runs(repository).await? {
                let jobs = match self.jobs(repository, run, None).await {
                    // A user deleted the run meanwhile.
                    Err(Fault::NotFound) => continue,
                    other => other?,
                };
                found.extend(facts(jobs, repository));
            }
            found.retain(|fact| matches!(fact.said, ReportedStatus::Queued { .. }));
            Ok(found)
        }))
        .await
    }

    async fn provenance(
        &self,
        repository: &Repository,
        run: &RunAttempt,
    ) -> Result<Provenance, Fault> {
        let (id, _) = at_github(run)?;
        let run = self.in_time(self.urgent_run(repository, id)).await?;
        Ok(run.provenance(repository))
    }

    async fn tell(&self, notice: &Notice) -> Result<(), Fault> {
        self.in_time(self.notify(notice)).await
    }

    async fn cancel(&self, repository: &Repository, run: &RunAttempt) -> Result<(), Fault> {
        let (id, attempt) = at_github(run)?;
        self.in_time(async {
            let found = match self.run(repository, id).await {
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
