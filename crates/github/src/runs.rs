//! Calls about workflow runs and jobs, and their JSON.
//!
//! Not here: webhooks, which contain the same job JSON (`webhook`).

use std::collections::BTreeMap;

use bullpen_core::forge_rates::CallPurpose;
use bullpen_core::ids::{JobId, Repository, RunAttempt, RunnerName};
use bullpen_core::job::{
    Conclusion, JobDetails, JobFact, Origin, Provenance, ReportedStatus, Visibility,
};
use bullpen_core::ports::{Clock, Fault, UnfinishedRun};
use bullpen_core::time::Timestamp;
use serde::{Deserialize, Deserializer};

use crate::client::GitHub;
use crate::fault::NotFoundMeans;
use crate::forge::method_timed_out;
use crate::limits::{METHOD_TIMEOUT, PER_PAGE};
use crate::settings::is_name;
use crate::wire::{Answer, Call, within};

/// The status of a run or a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// Created, not queued yet.
    Requested,
    /// Waits for an environment's protection rule.
    Waiting,
    /// Waits for its concurrency group.
    Pending,
    /// Waits for a runner.
    Queued,
    /// Runs.
    InProgress,
    /// Has ended.
    Completed,
    /// A status that this version does not know.
    Other(String),
}

impl<'de> Deserialize<'de> for Status {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(match text.as_str() {
            "requested" => Self::Requested,
            "waiting" => Self::Waiting,
            "pending" => Self::Pending,
            "queued" => Self::Queued,
            "in_progress" => Self::InProgress,
            "completed" => Self::Completed,
            _ => Self::Other(text),
        })
    }
}

/// A workflow run.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct WorkflowRun {
    /// GitHub's id, the same for every attempt.
    pub id: u64,
    /// The attempt's number, from 1.
    #[serde(default = "first")]
    pub run_attempt: u32,
    /// The run's status.
    pub status: Status,
    /// GitHub's word for the result.
    pub conclusion: Option<String>,
    /// The commit.
    pub head_sha: String,
    /// The branch.
    #[serde(default)]
    pub head_branch: Option<String>,
    /// The event that triggered the run, such as `push`.
    pub event: String,
    /// The repository of the code that it runs; `None` if a user deleted that repository.
    pub head_repository: Option<HeadRepository>,
    /// The repository that it runs in.
    #[serde(default)]
    pub repository: Option<RunRepository>,
    /// The account that triggered the run; missing in old payloads.
    #[serde(default)]
    pub actor: Option<Actor>,
    /// The account that triggered this attempt.
    #[serde(default)]
    pub triggering_actor: Option<Actor>,
}

/// The repository that the code of a run came from.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct HeadRepository {
    /// `owner/repo`.
    pub full_name: String,
}

/// The repository that a run belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct RunRepository {
    /// Whether the repository is not public.
    #[serde(default)]
    pub private: Option<bool>,
}

/// An account that triggered a run.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Actor {
    /// The account's name.
    pub login: String,
}

/// Dependabot's account.
const DEPENDABOT: &str = "dependabot[bot]";
/// The prefix of Dependabot's branches: the actor may be a person who reopens or re-runs its
/// change.
const DEPENDABOTS_BRANCHES: &str = "dependabot/";

/// A repository's visibility, from GitHub's field `private`.
pub(crate) fn visibility(private: Option<bool>) -> Option<Visibility> {
    private.map(|private| if private { Visibility::Private } else { Visibility::Public })
}

impl WorkflowRun {
    /// Where the code of this run of `repository` comes from.
    pub fn provenance(&self, repository: &Repository) -> Provenance {
        // A run without a head repository comes from a deleted fork.
        let head = self.head_repository.as_ref().map(|head| head.full_name.as_str());
        let is_own = head.is_some_and(|head| head.eq_ignore_ascii_case(repository.as_str()));
        let actors = [&self.actor, &self.triggering_actor];
        let is_dependabot =
            actors.into_iter().flatten().any(|actor| actor.login.eq_ignore_ascii_case(DEPENDABOT))
                || self.head_branch.as_ref().is_some_and(|it| it.starts_with(DEPENDABOTS_BRANCHES));
        let origin = match (is_own, is_dependabot) {
            (false, _) => Origin::Fork,
            (true, true) => Origin::Dependabot,
            (true, false) if self.event.starts_with("pull_request") => Origin::PullRequest,
            (true, false) => Origin::Own,
        };
        let private = self.repository.as_ref().and_then(|repository| repository.private);
        Provenance { origin: Some(origin), visibility: visibility(private) }
    }
}

/// A job of a run.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct WorkflowJob {
    /// GitHub's id, a new one for every attempt.
    pub id: u64,
    /// The run's id.
    pub run_id: u64,
    /// The attempt of the run.
    #[serde(default = "first")]
    pub run_attempt: u32,
    /// The job's name.
    pub name: String,
    /// The job's status.
    pub status: Status,
    /// GitHub's word for the result.
    pub conclusion: Option<String>,
    /// The labels that the runner must have (`runs-on`).
    #[serde(default)]
    pub labels: Vec<String>,
    /// The commit.
    #[serde(default)]
    pub head_sha: String,
    /// The id of the job's runner, once GitHub has assigned the job.
    pub runner_id: Option<u64>,
    /// The name of the job's runner; before the assignment GitHub sends null or an empty text.
    pub runner_name: Option<String>,
    /// When GitHub created the job; missing on old servers.
    pub created_at: Option<Timestamp>,
    /// When the job started; GitHub sets it even while the job is queued.
    pub started_at: Option<Timestamp>,
    /// When the job ended.
    pub completed_at: Option<Timestamp>,
}

impl WorkflowJob {
    /// The core's form of this job of `repository`.
    pub fn fact(self, repository: &Repository) -> JobFact {
        let runner = self.runner_name.filter(|name| !name.is_empty()).map(RunnerName::new);
        let status = match self.status {
            Status::Queued => ReportedStatus::Queued { at: self.started_at.or(self.created_at) },
            Status::InProgress => ReportedStatus::Started { runner, at: self.started_at },
            Status::Completed => {
                // GitHub always sends a conclusion with `completed`; the default is a precaution.
                let word = self.conclusion.as_deref().unwrap_or("neutral");
                ReportedStatus::Completed {
                    conclusion: Conclusion::new(word),
                    runner,
                    at: self.completed_at,
                }
            }
            Status::Requested | Status::Waiting | Status::Pending | Status::Other(_) => {
                ReportedStatus::Held
            }
        };
        JobFact {
            job: JobId::new(self.id.to_string()),
            about: JobDetails {
                repository: repository.clone(),
                run: RunAttempt::new(format!("{}.{}", self.run_id, self.run_attempt)),
                name: self.name,
                labels: self.labels,
                commit: self.head_sha,
                created_at: self.created_at,
                provenance: Provenance::default(),
            },
            said: status,
        }
    }
}

const fn first() -> u32 {
    1
}

#[derive(Deserialize)]
struct RunsJson {
    workflow_runs: Vec<UnfinishedJson>,
}

#[derive(Deserialize)]
struct UnfinishedJson {
    id: u64,
    #[serde(default = "first")]
    run_attempt: u32,
    #[serde(default)]
    created_at: Option<Timestamp>,
    /// When this attempt began; missing on old servers.
    #[serde(default)]
    run_started_at: Option<Timestamp>,
}

impl From<UnfinishedJson> for UnfinishedRun {
    fn from(json: UnfinishedJson) -> Self {
        Self {
            run: RunAttempt::new(format!("{}.{}", json.id, json.run_attempt)),
            began: json.run_started_at.or(json.created_at),
        }
    }
}

#[derive(Deserialize)]
struct JobsJson {
    jobs: Vec<WorkflowJob>,
}

impl<C: Clock> GitHub<C> {
    /// Reads the latest attempt of a run.
    pub async fn run(
        &self,
        repository: &Repository,
        run: u64,
        purpose: CallPurpose,
    ) -> Result<WorkflowRun, Fault> {
        let call = Call::get(purpose, format!("{}/runs/{run}", actions(repository)?));
        // A job or a machine waits for its origin.
        let call = if purpose == CallPurpose::Origin { call.urgent() } else { call };
        self.call(&call).await?.accepted(NotFoundMeans::Thing)?.read("run")
    }

    /// The runs of a repository that may have a queued job. Runs in progress are among them: a run
    /// is in progress as soon as one of its jobs is.
    pub(crate) async fn unfinished(
        &self,
        repository: &Repository,
    ) -> Result<Vec<UnfinishedRun>, Fault> {
        let mut found = BTreeMap::new();
        for status in ["queued", "in_progress"] {
            let path = format!("{}/runs?status={status}&per_page={PER_PAGE}", actions(repository)?);
            let call = Call::get(CallPurpose::Look, path).housekeeping();
            let read = |answer: &Answer| {
                let runs = answer.read::<RunsJson>("list of runs")?.workflow_runs;
                Ok(runs.into_iter().map(UnfinishedRun::from).collect())
            };
            let runs = self.changed_pages(&self.seen_runs, call, read).await?;
            found.extend(runs.into_iter().map(|run| (run.run.clone(), run)));
        }
        Ok(found.into_values().collect())
    }

    /// Reads all jobs of one attempt of a run for the search, which is in no hurry.
    pub(crate) async fn searched_jobs(
        &self,
        repository: &Repository,
        (run, attempt): (u64, u32),
    ) -> Result<Vec<WorkflowJob>, Fault> {
        let path = jobs_path(repository, run, Some(attempt))?;
        let call = Call::get(CallPurpose::Look, path).housekeeping();
        self.changed_pages(&self.seen_jobs, call, read_jobs).await
    }

    /// Cancels the latest attempt of a run; does nothing if it has ended or does not exist.
    pub async fn cancel_run(&self, repository: &Repository, run: u64) -> Result<(), Fault> {
        let path = format!("{}/runs/{run}/cancel", actions(repository)?);
        let answer = self.call(&Call::post(CallPurpose::Cancel, path, None)).await?;
        match answer.status {
            404 | 409 => Ok(()),
            _ => answer.accepted(NotFoundMeans::Thing).map(drop),
        }
    }

    /// Reads one job.
    pub async fn job(&self, repository: &Repository, job: u64) -> Result<WorkflowJob, Fault> {
        let path = format!("{}/jobs/{job}", actions(repository)?);
        let call = Call::get(CallPurpose::Job, path);
        self.call(&call).await?.accepted(NotFoundMeans::Thing)?.read("job")
    }

    /// Reads all jobs of one attempt of a run, or of its latest attempt.
    pub async fn jobs(
        &self,
        repository: &Repository,
        run: u64,
        attempt: Option<u32>,
    ) -> Result<Vec<WorkflowJob>, Fault> {
        let call = Call::get(CallPurpose::Job, jobs_path(repository, run, attempt)?);
        let all = self.pages(call, NotFoundMeans::Thing, read_jobs);
        let all = within(self.wire.clock(), METHOD_TIMEOUT, all).await;
        all.unwrap_or_else(|| Err(method_timed_out()))
    }
}

fn jobs_path(repository: &Repository, run: u64, attempt: Option<u32>) -> Result<String, Fault> {
    let attempt = attempt.map(|number| format!("/attempts/{number}")).unwrap_or_default();
    let path = format!("{}/runs/{run}{attempt}/jobs", actions(repository)?);
    Ok(format!("{path}?per_page={PER_PAGE}"))
}

fn read_jobs(answer: &Answer) -> Result<Vec<WorkflowJob>, Fault> {
    Ok(answer.read::<JobsJson>("list of jobs")?.jobs)
}

fn actions(repository: &Repository) -> Result<String, Fault> {
    Ok(format!("{}/actions", repository_path(repository)?))
}

/// The path prefix of a repository's resources.
pub(crate) fn repository_path(repository: &Repository) -> Result<String, Fault> {
    match repository.as_str().split_once('/') {
        Some((owner, name)) if is_name(owner) && is_name(name) => {
            Ok(format!("/repos/{owner}/{name}"))
        }
        _ => Err(Fault::Denied(format!("{repository} is not OWNER/NAME of a repository"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_of_an_old_server_and_of_a_new_one_are_read() {
        let old = r#"{"id":1,"run_id":2,"name":"a","status":"queued","conclusion":null,
                      "labels":[],"runner_id":null,"runner_name":null}"#;
        let old: WorkflowJob = serde_json::from_str(old).unwrap();
        assert_eq!((old.run_attempt, old.status), (1, Status::Queued));
        let new = r#"{"id":1,"run_id":2,"run_attempt":3,"name":"a","status":"blocked",
                      "conclusion":null,"labels":["x"],"runner_id":0,"runner_name":"",
                      "created_at":"2026-05-31T12:00:00Z","new_field":1}"#;
        let new: WorkflowJob = serde_json::from_str(new).unwrap();
        assert_eq!((new.run_attempt, new.status), (3, Status::Other("blocked".to_owned())));
    }

    #[test]
    fn only_a_repository_becomes_part_of_a_path() {
        assert_eq!(actions(&"acme/app".into()).unwrap(), "/repos/acme/app/actions");
        for bad in ["acme", "acme/", "a/b/c", "../x", "a/?"] {
            assert!(actions(&bad.into()).is_err(), "{bad}");
        }
    }
}
