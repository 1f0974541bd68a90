//! Runners at GitHub: the tokens that make and remove them, JIT configurations, listing, deleting.
//!
//! Not here: which of these the port uses when (`forge`).

use std::collections::BTreeMap;

use bullpen_core::claim::Deletion;
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

/// A token that registers or removes runners of the scope.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Token {
    /// The token.
    pub token: Secret,
    /// When it ends.
    pub expires_at: Timestamp,
}

/// A runner made for one job, and what starts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jit {
    /// The runner's id at GitHub.
    pub runner_id: u64,
    /// What the runner program is started with.
    pub config: Secret,
}

/// A runner as GitHub lists it, with its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// GitHub's id, never used twice.
    pub id: u64,
    /// Its name.
    pub name: RunnerName,
    /// Whether its listener is connected.
    pub online: bool,
    /// Whether it runs a job.
    pub busy: bool,
    /// Its labels.
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

    /// A token that any number of runners can register with. One is kept and given out again until
    /// half its hour is over.
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

    /// A token that a runner program can remove its own registration with.
    pub async fn removal_token(&self) -> Result<Token, Fault> {
        self.token("remove-token").await
    }

    pub(crate) async fn token(&self, kind: &str) -> Result<Token, Fault> {
        let call = Call::post(format!("{}/{kind}", self.runners_path()), None);
        self.call(&call.urgent()).await?.accepted(NotFoundMeans::Scope)?.read(kind)
    }

    /// A runner for one job. An idle runner of the same name is replaced: whoever asked before has
    /// died, or lost the answer.
    pub async fn jit(&self, runner: &RunnerSpec) -> Result<Jit, Fault> {
        self.must_be_ours(&runner.name)?;
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
        let call = Call::post(path, Some(body)).urgent();
        for _ in 0..JIT_TRIES {
            let answer = self.call(&call).await?;
            if answer.status != 409 {
                let made: JitJson =
                    answer.accepted(NotFoundMeans::Scope)?.read("JIT configuration")?;
                return Ok(Jit { runner_id: made.runner.id, config: made.encoded_jit_config });
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
        // Somebody else keeps asking under this name, or the listing that is deleted from lags.
        Err(Fault::Unavailable(format!("a runner named {} keeps coming back", runner.name)))
    }

    /// All runners whose name begins with the stack's prefix, all pages.
    pub async fn list(&self) -> Result<Vec<Listed>, Fault> {
        let mut runners = self.listing(Call::housekeeping, "").await?;
        runners.retain(|runner| runner.name.as_str().starts_with(&self.prefix));
        Ok(runners)
    }

    async fn listing(&self, rank: fn(Call) -> Call, filter: &str) -> Result<Vec<Listed>, Fault> {
        let path = format!("{}?per_page={PER_PAGE}{filter}", self.runners_path());
        let read = |answer: &Answer| Ok(answer.read::<RunnersJson>("list of runners")?.runners);
        let runners = self.pages(rank(Call::get(path)), NotFoundMeans::Scope, read).await?;
        // Pages shift while they are read, so that a runner may be on two of them.
        let by_id: BTreeMap<u64, Listed> =
            runners.into_iter().map(|json| (json.id, Listed::from(json))).collect();
        Ok(by_id.into_values().collect())
    }

    /// Deletes the runner of this name, unless it runs a job. A fault means that GitHub did not
    /// answer, or refused us.
    pub async fn delete_named(&self, name: &RunnerName) -> Result<Deletion, Fault> {
        self.must_be_ours(name)?;
        let mut listed =
            self.listing(Call::urgent, &format!("&name={}", escaped(name.as_str()))).await?;
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

    /// Like [`GitHub::delete_named`], without looking the id up first when it is known. A runner
    /// that came back under the same name has another id and is found by its name.
    pub async fn delete_known(&self, name: &RunnerName, id: u64) -> Result<Deletion, Fault> {
        self.must_be_ours(name)?;
        match self.delete_id(id).await? {
            Deletion::NotFound => self.delete_named(name).await,
            other => Ok(other),
        }
    }

    async fn delete_id(&self, id: u64) -> Result<Deletion, Fault> {
        let answer = self.call(&Call::delete(format!("{}/{id}", self.runners_path()))).await?;
        match answer.status {
            204 => Ok(Deletion::Deleted),
            404 => Ok(Deletion::NotFound),
            422 => Ok(Deletion::Busy),
            _ => Err(classify(&answer, NotFoundMeans::Thing)),
        }
    }

    /// Nothing we do may touch a runner without the stack's prefix.
    fn must_be_ours(&self, name: &RunnerName) -> Result<(), Fault> {
        if name.as_str().starts_with(&self.prefix) {
            return Ok(());
        }
        let prefix = &self.prefix;
        Err(Fault::Denied(format!("the runner {name} is not of this stack: no prefix {prefix:?}")))
    }
}
