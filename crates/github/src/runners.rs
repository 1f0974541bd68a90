//! Calls about runners: registration and removal tokens, JIT configurations, listing, deleting.
//!
//! Not here: when the port uses each (`forge`).

use std::collections::BTreeMap;

use bullpen_core::claim::Deletion;
use bullpen_core::forge_rates::{CallPriority, CallPurpose};
use bullpen_core::ids::RunnerName;
use bullpen_core::mailbox::Secret;
use bullpen_core::ports::{Clock, Fault, RunnerSpec};
use bullpen_core::time::Timestamp;
use serde::Deserialize;
use serde_json::json;

use crate::client::GitHub;
use crate::fault::{NotFoundMeans, classify};
use crate::limits::{JIT_TRIES, PER_PAGE, REGISTRATION_EARLY};
use crate::wire::{Answer, Call, escaped};

/// A token for registering or removing runners of the scope.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Token {
    /// The token.
    pub token: Secret,
    /// When the token ends.
    pub expires_at: Timestamp,
}

/// A runner made for one job, with its JIT configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jit {
    /// The runner's id at GitHub.
    pub runner_id: u64,
    /// The configuration that the runner program starts with.
    pub config: Secret,
}

/// A runner as GitHub lists it, with its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// GitHub's id, never reused.
    pub id: u64,
    /// The runner's name.
    pub name: RunnerName,
    /// Whether its listener is connected.
    pub online: bool,
    /// Whether it runs a job.
    pub busy: bool,
    /// The runner's labels.
    pub labels: Vec<String>,
}

#[derive(Deserialize)]
struct RunnerJson {
    id: u64,
    name: String,
    status: String,
    busy: bool,
    #[serde(default)]
    labels: Vec<LabelJson>,
}

#[derive(Deserialize)]
struct LabelJson {
    name: String,
}

#[derive(Deserialize)]
struct RunnersJson {
    runners: Vec<RunnerJson>,
}

#[derive(Deserialize)]
struct JitJson {
    runner: RunnerId,
    encoded_jit_config: Secret,
}

#[derive(Deserialize)]
struct RunnerId {
    id: u64,
}

impl From<RunnerJson> for Listed {
    fn from(json: RunnerJson) -> Self {
        Self {
            id: json.id,
            name: RunnerName::new(json.name),
            online: json.status == "online",
            busy: json.busy,
            labels: json.labels.into_iter().map(|label| label.name).collect(),
        }
    }
}

impl<C: Clock> GitHub<C> {
    fn runners_path(&self) -> String {
        format!("{}/actions/runners", self.scope.path())
    }

    /// A token that any number of runners can register with. The client keeps one and returns it
    /// until half its hour is over.
    pub async fn registration_token(&self) -> Result<Token, Fault> {
        let mut kept = self.registration.lock().await;
        let now = self.wire.clock().now();
        if let Some(token) = &*kept
            && now.after(REGISTRATION_EARLY) < token.expires_at
        {
            return Ok(token.clone());
        }
        let token = self.token("registration-token").await?;
        *kept = Some(token.clone());
        Ok(token)
    }

    /// A token with which a runner program can remove its own registration.
    pub async fn removal_token(&self) -> Result<Token, Fault> {
        self.token("remove-token").await
    }

    pub(crate) async fn token(&self, kind: &str) -> Result<Token, Fault> {
        let call = Call::post(CallPurpose::Mint, format!("{}/{kind}", self.runners_path()), None);
        self.call(&call.urgent()).await?.accepted(NotFoundMeans::Scope)?.read(kind)
    }

    /// Makes a runner for one job. Replaces an idle runner of the same name: the process that
    /// requested it has died, or did not receive the answer.
    pub async fn jit(&self, runner: &RunnerSpec) -> Result<Jit, Fault> {
        self.check_prefix(&runner.name)?;
        let group = match &runner.group {
            Some(name) => self.group_id(name).await?,
            None => self.runner_group,
        };
        let body = json!({
            "name": runner.name,
            "runner_group_id": group,
            "labels": runner.labels,
            "work_folder": "_work",
        });
        let path = format!("{}/generate-jitconfig", self.runners_path());
        let call = Call::post(CallPurpose::Mint, path, Some(body)).urgent();
        for _ in 0..JIT_TRIES {
            let answer = self.call(&call).await?;
            if answer.status != 409 {
                let json: JitJson =
                    answer.accepted(NotFoundMeans::Scope)?.read("JIT configuration")?;
                return Ok(Jit { runner_id: json.runner.id, config: json.encoded_jit_config });
            }
            match self.delete_named(&runner.name).await? {
                Deletion::Deleted | Deletion::NotFound => {}
                Deletion::Busy => {
                    let name = &runner.name;
                    return Err(Fault::Unclassified(format!("the runner {name} runs a job")));
                }
                Deletion::Unavailable => {
                    return Err(Fault::unavailable("GitHub did not delete a runner of that name"));
                }
            }
        }
        // Another process keeps requesting this name, or the listing lags behind the deletion.
        Err(Fault::Unavailable(format!("a runner named {} keeps coming back", runner.name)))
    }

    /// All runners whose name begins with the stack's prefix.
    pub async fn list(&self) -> Result<Vec<Listed>, Fault> {
        let mut runners = self.listing(CallPurpose::List, CallPriority::Read, "").await?;
        runners.retain(|runner| runner.name.as_str().starts_with(&self.prefix));
        Ok(runners)
    }

    async fn listing(
        &self,
        purpose: CallPurpose,
        priority: CallPriority,
        filter: &str,
    ) -> Result<Vec<Listed>, Fault> {
        let path = format!("{}?per_page={PER_PAGE}{filter}", self.runners_path());
        let read = |answer: &Answer| Ok(answer.read::<RunnersJson>("list of runners")?.runners);
        let call = Call { priority, ..Call::get(purpose, path) };
        let runners = self.pages(call, NotFoundMeans::Scope, read).await?;
        // Entries move between pages during the reads, so a runner may be on two pages.
        let by_id: BTreeMap<u64, Listed> =
            runners.into_iter().map(|json| (json.id, Listed::from(json))).collect();
        Ok(by_id.into_values().collect())
    }

    /// Deletes the runner of this name, unless it runs a job. Faults if GitHub does not answer or
    /// refuses the call.
    pub async fn delete_named(&self, name: &RunnerName) -> Result<Deletion, Fault> {
        self.check_prefix(name)?;
        let filter = format!("&name={}", escaped(name.as_str()));
        let mut listed = self.listing(CallPurpose::Remove, CallPriority::Urgent, &filter).await?;
        listed.retain(|runner| runner.name == *name);
        let mut outcome = Deletion::NotFound;
        for runner in listed {
            match self.delete_id(runner.id).await? {
                Deletion::NotFound => {}
                Deletion::Busy => return Ok(Deletion::Busy),
                other => outcome = other,
            }
        }
        Ok(outcome)
    }

    /// Deletes the runner of this id without a listing. If the id is gone, deletes by name: a
    /// runner that registered again under the same name has another id.
    pub async fn delete_known(&self, name: &RunnerName, id: u64) -> Result<Deletion, Fault> {
        self.check_prefix(name)?;
        match self.delete_id(id).await? {
            Deletion::NotFound => self.delete_named(name).await,
            other => Ok(other),
        }
    }

    async fn delete_id(&self, id: u64) -> Result<Deletion, Fault> {
        let path = format!("{}/{id}", self.runners_path());
        let answer = self.call(&Call::delete(CallPurpose::Remove, path)).await?;
        match answer.status {
            204 => Ok(Deletion::Deleted),
            404 => Ok(Deletion::NotFound),
            422 => Ok(Deletion::Busy),
            _ => Err(classify(&answer, NotFoundMeans::Thing)),
        }
    }

    /// Refuses a runner without the stack's prefix: it belongs to another stack.
    fn check_prefix(&self, name: &RunnerName) -> Result<(), Fault> {
        if name.as_str().starts_with(&self.prefix) {
            return Ok(());
        }
        let prefix = &self.prefix;
        Err(Fault::Denied(format!("the runner {name} lacks the prefix {prefix:?} of this stack")))
    }
}
