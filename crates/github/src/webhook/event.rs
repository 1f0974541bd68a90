//! What a signed body says, as a closed set of events. Fields that we do not know are passed over;
//! what old servers leave out may be missing.
//!
//! Not here: whether GitHub said it (`signature`).

use bullpen_core::ids::{Repository, RunAttempt};
use bullpen_core::job::{JobFact, RunFact};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Refusal;
use crate::runs::{WorkflowJob, WorkflowRun, visibility};

/// A webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Something about a job.
    Job(Box<JobEvent>),
    /// Where the code of a run comes from.
    Run(Box<RunEvent>),
    /// The webhook was set up.
    Ping,
    /// Somebody pushed: a configuration may have changed.
    Push(PushEvent),
    /// An event that is none of ours, by its name.
    Other(String),
}

/// Something about a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobEvent {
    /// GitHub's id of the delivery, for people; it proves nothing, and nothing is decided by it.
    pub delivery: Option<String>,
    /// GitHub's word for what happened. Nothing is decided by it either: a job that a gate holds
    /// back is announced as `queued`, and says only in its status that it waits.
    pub action: String,
    /// Which installation of the App was told; none for other webhooks.
    pub installation: Option<u64>,
    /// What is known of the job now.
    pub fact: JobFact,
}

/// Something about a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunEvent {
    /// Which installation of the App was told; none for other webhooks.
    pub installation: Option<u64>,
    /// Where its code comes from.
    pub fact: RunFact,
}

/// Somebody pushed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushEvent {
    /// Where.
    pub repository: Repository,
    /// Whether it was to the default branch.
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

/// A `ping` has to be JSON, and that is all.
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
