//! Parses a signed body into an [`Event`]. Ignores unknown fields, and accepts bodies that lack the
//! fields that old servers do not send.
//!
//! Not here: verifying the signature (`signature`).

use bullpen_core::ids::{Repository, RunAttempt};
use bullpen_core::job::{JobFact, RunFact};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Refusal;
use crate::runs::{WorkflowJob, WorkflowRun, visibility};

/// A webhook's event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// `workflow_job`: a job changed.
    Job(Box<JobEvent>),
    /// `workflow_run`: tells where the code of a run comes from.
    Run(Box<RunEvent>),
    /// `ping`: an administrator set the webhook up.
    Ping,
    /// `push`: the configuration in the repository may have changed.
    Push(PushEvent),
    /// An event that we do not use, by its name.
    Other(String),
}

/// A change of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobEvent {
    /// GitHub's id of the delivery, for logs only: the signature does not cover it.
    pub delivery: Option<String>,
    /// GitHub's word for the change, for logs only: GitHub announces a job that waits for a
    /// protection rule as `queued`, and tells only in the job's status that it waits.
    pub action: String,
    /// The App's installation that receives the webhook; `None` for webhooks of other kinds.
    pub installation: Option<u64>,
    /// The job as GitHub describes it now.
    pub fact: JobFact,
}

/// The origin of a run's code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunEvent {
    /// The App's installation that receives the webhook; `None` for webhooks of other kinds.
    pub installation: Option<u64>,
    /// The run, and where its code comes from.
    pub fact: RunFact,
}

/// A push to a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushEvent {
    /// The repository.
    pub repository: Repository,
    /// Whether the push changed the default branch.
    pub to_default_branch: bool,
}

#[derive(Deserialize)]
struct JobJson {
    action: String,
    workflow_job: WorkflowJob,
    repository: RepositoryJson,
    #[serde(default)]
    installation: Option<InstallationJson>,
}

#[derive(Deserialize)]
struct RunJson {
    workflow_run: WorkflowRun,
    repository: RepositoryJson,
    #[serde(default)]
    installation: Option<InstallationJson>,
}

#[derive(Deserialize)]
struct PushJson {
    #[serde(rename = "ref")]
    reference: String,
    repository: RepositoryJson,
}

#[derive(Deserialize)]
struct RepositoryJson {
    full_name: String,
    #[serde(default)]
    default_branch: Option<String>,
    #[serde(default)]
    private: Option<bool>,
}

#[derive(Deserialize)]
struct InstallationJson {
    id: u64,
}

/// A `ping` must be a JSON object; its fields do not matter.
#[derive(Deserialize)]
struct PingJson {}

pub(super) fn parse(name: &str, delivery: Option<&str>, body: &[u8]) -> Result<Event, Refusal> {
    match name {
        "workflow_job" => {
            let json: JobJson = read("workflow_job", body)?;
            let repository = Repository::new(json.repository.full_name);
            let mut fact = json.workflow_job.fact(&repository);
            fact.about.provenance.visibility = visibility(json.repository.private);
            Ok(Event::Job(Box::new(JobEvent {
                delivery: delivery.map(str::to_owned),
                action: json.action,
                installation: json.installation.map(|it| it.id),
                fact,
            })))
        }
        "workflow_run" => {
            let json: RunJson = read("workflow_run", body)?;
            let repository = Repository::new(json.repository.full_name);
            let run = &json.workflow_run;
            let mut provenance = run.provenance(&repository);
            provenance.visibility = visibility(json.repository.private);
            let run = RunAttempt::new(format!("{}.{}", run.id, run.run_attempt));
            Ok(Event::Run(Box::new(RunEvent {
                installation: json.installation.map(|it| it.id),
                fact: RunFact { repository, run, provenance },
            })))
        }
        "ping" => read::<PingJson>("ping", body).map(|_| Event::Ping),
        "push" => {
            let json: PushJson = read("push", body)?;
            let branch = json.reference.strip_prefix("refs/heads/");
            let to_default_branch =
                branch.is_some() && branch == json.repository.default_branch.as_deref();
            let repository = Repository::new(json.repository.full_name);
            Ok(Event::Push(PushEvent { repository, to_default_branch }))
        }
        other => Ok(Event::Other(other.to_owned())),
    }
}

fn read<T: DeserializeOwned>(event: &'static str, body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| {
        let place = format!("line {} column {}", error.line(), error.column());
        Refusal::Unreadable { event, place }
    })
}
