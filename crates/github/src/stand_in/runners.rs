//! Runners' lives: registered, connected, deleted.
//!
//! A runner is *online* while it has a session and was heard of lately; it is *busy* from the moment
//! a job is given to it.
//!
//! Not here: which runner gets which job (`jobs`).

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bullpen_core::mailbox::Secret;
use bullpen_core::time::Timestamp;
use serde_json::json;

use super::protocol::{Conclusion, Message, Register, Registered, RunnerView};
use super::state::{GrantKind, JobStage, Refused, Runner, State};
use crate::settings::Scope;

/// A runner that has not asked for messages for this long is offline.
pub const ONLINE_FOR: Duration = Duration::from_secs(60);

impl Runner {
    pub(super) fn is_online(&self, now: Timestamp) -> bool {
        self.session.is_some() && (self.polls > 0 || now.since(self.seen) < ONLINE_FOR)
    }

    fn has(&self, session: &str) -> bool {
        self.session.as_deref() == Some(session)
    }

    pub(super) fn view(&self, now: Timestamp) -> RunnerView {
        RunnerView {
            id: self.id,
            name: self.name.clone(),
            scope: self.scope.to_string(),
            labels: self.labels.clone(),
            group: self.group,
            ephemeral: self.ephemeral,
            online: self.is_online(now),
            waiting: self.polls > 0,
            job: self.job,
        }
    }
}

impl State {
    fn named(&self, scope: &Scope, name: &str) -> Option<&Runner> {
        self.runners.values().find(|runner| runner.scope == *scope && runner.name == name)
    }

    /// A runner for one job that is not connected yet.
    pub(super) fn make_jit(
        &mut self,
        scope: Scope,
        name: &str,
        labels: Vec<String>,
        group: u64,
        url: &str,
        now: Timestamp,
    ) -> Result<&Runner, Refused> {
        if self.named(&scope, name).is_some() {
            return Err(Refused::Conflict);
        }
        let id = self.next();
        let jit = jit_config(id, name, url, &self.unguessable("jit-"));
        let runner = Runner {
            id,
            name: name.to_owned(),
            scope,
            group,
            labels,
            ephemeral: true,
            jit: Some(jit),
            session: None,
            seen: now,
            polls: 0,
            job: None,
        };
        Ok(self.runners.entry(id).or_insert(runner))
    }

    /// A runner program comes up.
    pub(super) fn register(
        &mut self,
        wish: &Register,
        now: Timestamp,
    ) -> Result<Registered, Refused> {
        let id = match (&wish.jit, &wish.token) {
            (Some(jit), None) => self.use_jit(jit.reveal())?,
            (None, Some(token)) => self.use_token(token.reveal(), wish, now)?,
            _ => return Err(Refused::Credential),
        };
        let session = self.unguessable("session-");
        let runner = self.runners.get_mut(&id).ok_or(Refused::Missing)?;
        runner.session = Some(session.clone());
        runner.seen = now;
        let registered =
            Registered { runner_id: id, name: runner.name.clone(), session: Secret::new(&session) };
        self.assign(now);
        Ok(registered)
    }

    /// A JIT configuration starts one listener, once.
    fn use_jit(&mut self, jit: &str) -> Result<u64, Refused> {
        let mut runners = self.runners.values_mut();
        let runner = runners.find(|runner| runner.jit.as_deref() == Some(jit));
        let runner = runner.ok_or(Refused::Credential)?;
        runner.jit = None;
        Ok(runner.id)
    }

    fn use_token(&mut self, token: &str, wish: &Register, now: Timestamp) -> Result<u64, Refused> {
        let scope = self.granted(token, GrantKind::Registration, now).cloned();
        let scope = scope.ok_or(Refused::Credential)?;
        if let Some(taken) = self.named(&scope, &wish.name) {
            if !wish.replace || taken.job.is_some() {
                return Err(Refused::Conflict);
            }
            let id = taken.id;
            self.runners.remove(&id);
        }
        let id = self.next();
        let runner = Runner {
            id,
            name: wish.name.clone(),
            scope,
            group: 1,
            labels: wish.labels.clone(),
            ephemeral: wish.ephemeral,
            jit: None,
            session: None,
            seen: now,
            polls: 0,
            job: None,
        };
        self.runners.insert(id, runner);
        Ok(id)
    }

    /// The runner behind a session.
    pub(super) fn connected(&mut self, id: u64, session: &str) -> Result<&mut Runner, Refused> {
        // No id is used twice, so a missing id that a session knows was deleted.
        let known = self.is_ours(session);
        let gone = if known { Refused::Gone } else { Refused::Credential };
        let runner = self.runners.get_mut(&id).ok_or(gone)?;
        if runner.has(session) { Ok(runner) } else { Err(Refused::Credential) }
    }

    /// What there is to tell a runner now.
    pub(super) fn message(&mut self, id: u64, session: &str) -> Result<Option<Message>, Refused> {
        let Some(job) = self.connected(id, session)?.job else { return Ok(None) };
        let Some(job) = self.jobs.get(&job) else { return Ok(None) };
        Ok(match job.stage {
            JobStage::Given { .. } => Some(Message::Job(job.message())),
            JobStage::Running if job.cancelling => Some(Message::Cancel { job: job.id }),
            JobStage::Running | JobStage::Held | JobStage::Queued | JobStage::Over(_) => None,
        })
    }

    /// A runner program ends. Its job ends with it; its registration stays.
    pub(super) fn disconnect(
        &mut self,
        id: u64,
        session: &str,
        now: Timestamp,
    ) -> Result<(), Refused> {
        let runner = self.connected(id, session)?;
        runner.session = None;
        if let Some(job) = runner.job {
            self.abandon(id, job, now);
        }
        self.assign(now);
        Ok(())
    }

    /// The job of a runner that is not there any more: back to the queue if it never started.
    pub(super) fn abandon(&mut self, runner: u64, job: u64, now: Timestamp) {
        let stage = self.jobs.get(&job).map(|job| job.stage);
        if stage == Some(JobStage::Running) {
            self.finish(runner, job, Conclusion::Failure, now);
        } else {
            self.requeue(runner, job);
        }
    }

    /// GitHub's deletion: never under a job.
    pub(super) fn delete(&mut self, scope: &Scope, id: u64) -> Result<(), Refused> {
        let runner = self.runners.get(&id).filter(|runner| runner.scope == *scope);
        match runner {
            None => Err(Refused::Missing),
            Some(runner) if runner.job.is_some() => Err(Refused::Busy),
            Some(_) => {
                self.runners.remove(&id);
                Ok(())
            }
        }
    }

    /// A runner program removes its own registration.
    pub(super) fn remove(&mut self, id: u64, token: &str, now: Timestamp) -> Result<(), Refused> {
        let scope = self.granted(token, GrantKind::Removal, now).cloned();
        self.delete(&scope.ok_or(Refused::Credential)?, id)
    }
}

/// As GitHub packs it: file names to contents, in base64 twice. `client` makes each one different.
fn jit_config(id: u64, name: &str, url: &str, client: &str) -> String {
    let runner = json!({
        "AgentId": id.to_string(),
        "AgentName": name,
        "Ephemeral": "True",
        "DisableUpdate": "True",
        "PoolId": "1",
        "PoolName": "Default",
        "ServerUrl": url,
        "WorkFolder": "_work",
    });
    let credentials = json!({"Scheme": "OAuth", "Data": {"ClientId": client}});
    let packed = |text: String| BASE64_STANDARD.encode(text);
    let files = json!({
        ".runner": packed(runner.to_string()),
        ".credentials": packed(credentials.to_string()),
        ".credentials_rsaparams": packed("{}".to_owned()),
    });
    packed(files.to_string())
}
