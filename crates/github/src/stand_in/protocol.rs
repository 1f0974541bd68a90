//! What the stand-in *runner* and the stand-in *server* say to each other, and how tests steer the
//! server. GitHub's own protocol for runners is private; this one is small, and has the same turns.
//!
//! All bodies are JSON, and a request with a body says `content-type: application/json`. Times are
//! RFC 3339. Refusals look like GitHub's: `{"message", "documentation_url", "status"}`.
//!
//! # A runner's life
//!
//! 1. `POST /_stand-in/runners/register` with [`Register`]: a JIT configuration, or a registration
//!    token with a name and labels. `201` with [`Registered`]; from here on the runner is online, and
//!    each request carries `Authorization: Bearer <session>`.
//!    `401`: the token or JIT configuration is unknown, expired, used, or its runner was deleted.
//!    `409`: the name is taken (and `replace` is not set, or that runner runs a job).
//!    The labels are taken as they are: a runner program that has default labels sends them.
//! 2. `GET /_stand-in/runners/{id}/message?wait=SECONDS` waits up to that long, at most 50.
//!    `200` with a [`Message`]; `204`: nothing, ask again; `410`: the runner was deleted, end;
//!    `401`: another session has taken its place, end.
//!    A job is told again until it is started. A runner keeps asking while its job runs: that is how
//!    it hears of a cancellation, and how the server knows that it is alive. A runner that has not
//!    asked for [`ONLINE_FOR`](super::ONLINE_FOR) is offline.
//! 3. `POST /_stand-in/runners/{id}/jobs/{job}/started`, no body. `204`; `409`: the job was given to
//!    another runner or cancelled, go on asking.
//! 4. `POST /_stand-in/runners/{id}/jobs/{job}/completed` with [`Completed`]. `204`; `409` as above.
//!    A runner for one job is gone with it: its next request answers `410`.
//! 5. `DELETE /_stand-in/runners/{id}/session` when the program is told to stop. `204`. The runner is
//!    offline and stays registered; a job that was running has failed.
//! 6. `POST /_stand-in/runners/{id}/remove` with [`Remove`], as `config.sh remove --token` does.
//!    `204`; `401`; `404`; `422` while it runs a job.
//!
//! While GitHub is down by a lever these answer `503`, or not at all.
//!
//! # A JIT configuration
//!
//! As GitHub's: base64 of a JSON object from file names to base64 of their contents. The file
//! `.runner` has `AgentId`, `AgentName`, `Ephemeral`, `ServerUrl` (the base of this protocol) and
//! `WorkFolder`. A runner started with a registration token is told the URL instead.
//!
//! # A test's requests
//!
//! Each carries `Authorization: Bearer <token>` with the stand-in's one token; `401` without it.
//!
//! - `POST /_stand-in/jobs` with [`JobOrder`]: `201` with [`JobView`].
//! - `GET /_stand-in/jobs`, all of them; `GET /_stand-in/jobs/{id}?wait=SECONDS`, one, as soon as it
//!   is over or when the time has passed; `POST /_stand-in/jobs/{id}/cancel`: `202`.
//! - `POST /_stand-in/jobs/{id}/approve`: `202`; opens the gate of a job that is held.
//! - `PUT /_stand-in/hook` with [`Hook`](super::Hook): where webhooks go from now on. `204`.
//! - `PUT /_stand-in/files` with [`FileOrder`]: a file of a repository. `204`.
//! - `GET /_stand-in/notices`: a list of [`NoticeView`].
//! - `GET /_stand-in/runners`: a list of [`RunnerView`].
//! - `GET` and `PUT /_stand-in/levers` with [`Levers`](super::Levers).
//!
//! Not here: GitHub's own interface (`rest`).

use std::collections::BTreeMap;

use bullpen_core::mailbox::Secret;
use bullpen_core::time::Timestamp;
use serde::{Deserialize, Serialize};

/// A runner comes up.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Register {
    /// The JIT configuration; then nothing else is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jit: Option<Secret>,
    /// Or a registration token, with a name and labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Secret>,
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// All its labels.
    #[serde(default)]
    pub labels: Vec<String>,
    /// Whether it serves one job only.
    #[serde(default)]
    pub ephemeral: bool,
    /// Whether it takes the place of an idle runner of the same name.
    #[serde(default)]
    pub replace: bool,
}

/// It may listen.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Registered {
    /// Its id at GitHub.
    pub runner_id: u64,
    /// Its name.
    pub name: String,
    /// What its further requests carry.
    pub session: Secret,
}

/// What a runner is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Message {
    /// Run this.
    Job(JobMessage),
    /// Stop running this, and report it as `cancelled`.
    Cancel {
        /// Which job.
        job: u64,
    },
}

/// A job to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobMessage {
    /// Its id.
    pub job: u64,
    /// Its name.
    pub name: String,
    /// `owner/repo`.
    pub repository: String,
    /// Its run.
    pub run_id: u64,
    /// Its run's attempt.
    pub run_attempt: u32,
    /// What started its run.
    #[serde(default)]
    pub event: String,
    /// What it asked of a runner.
    #[serde(default)]
    pub labels: Vec<String>,
    /// A shell script; an empty one succeeds at once.
    pub script: String,
    /// The workflow file that it is of; then it is run by `act`, and the script is nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// Variables that it sees besides.
    pub env: BTreeMap<String, String>,
}

/// A job is over.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Completed {
    /// How it went.
    pub conclusion: Conclusion,
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Conclusion {
    /// Well.
    Success,
    /// Badly.
    Failure,
    /// A user or GitHub stopped it.
    Cancelled,
}

impl Conclusion {
    /// GitHub's word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A runner program removes its own registration.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Remove {
    /// A removal token.
    pub token: Secret,
}

/// A job that is to be queued.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobOrder {
    /// `owner/repo`.
    pub repository: String,
    /// What it asks of a runner. `${{ github.run_id }}` in a label is its run's id.
    pub labels: Vec<String>,
    /// Its name; `job-<id>` if it has none.
    #[serde(default)]
    pub name: Option<String>,
    /// Its run; a new one if there is none.
    #[serde(default)]
    pub run_id: Option<u64>,
    /// Its run's attempt; the first if there is none.
    #[serde(default)]
    pub run_attempt: Option<u32>,
    /// The shell script it is; an empty one succeeds at once.
    #[serde(default)]
    pub script: String,
    /// The text of a workflow file that has a job of this name, which `act` runs in the script's
    /// place.
    #[serde(default)]
    pub workflow: Option<String>,
    /// Variables that it sees.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Whether a gate holds it back until it is approved.
    #[serde(default)]
    pub held: bool,
    /// The fork whose code it runs; its own repository if there is none.
    #[serde(default)]
    pub fork: Option<String>,
    /// What caused its run; `push` if nothing else is said.
    #[serde(default)]
    pub event: Option<String>,
    /// The user that caused its run; the repository's owner by default.
    #[serde(default)]
    pub actor: Option<String>,
}

/// A file of a repository.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileOrder {
    /// `owner/repo`.
    pub repository: String,
    /// Where in it.
    pub path: String,
    /// What it says.
    pub text: String,
}

/// A check run or a commit status, as a test sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoticeView {
    /// Its id.
    pub id: u64,
    /// `owner/repo`.
    pub repository: String,
    /// At which commit.
    pub commit: String,
    /// Whether it is a check run.
    pub is_check: bool,
    /// What it is called.
    pub name: String,
    /// What its author calls it.
    pub external_id: Option<String>,
    /// GitHub's word for how it stands.
    pub outcome: String,
    /// Its title.
    pub title: String,
    /// What it says.
    pub text: String,
    /// When it was said.
    pub at: Timestamp,
}

/// A job as a test sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobView {
    /// Its id.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// `owner/repo`.
    pub repository: String,
    /// Its run.
    pub run_id: u64,
    /// Its run's attempt.
    pub run_attempt: u32,
    /// What it asks of a runner.
    pub labels: Vec<String>,
    /// `waiting`, `queued`, `in_progress` or `completed`.
    pub status: String,
    /// How it ended.
    pub conclusion: Option<Conclusion>,
    /// The name of the runner that has it or had it.
    pub runner: Option<String>,
    /// When it was queued.
    pub created_at: Timestamp,
    /// When it started.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub completed_at: Option<Timestamp>,
}

/// A runner as a test sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerView {
    /// Its id.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// `org`, or `owner/repo`.
    pub scope: String,
    /// Its labels.
    pub labels: Vec<String>,
    /// The id of its group.
    pub group: u64,
    /// Whether it serves one job only.
    pub ephemeral: bool,
    /// Whether it is connected.
    pub online: bool,
    /// Whether it waits for a message right now.
    pub waiting: bool,
    /// The job it has.
    pub job: Option<u64>,
}
