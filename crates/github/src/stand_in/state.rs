//! What the stand-in knows: tokens, runners, jobs. Everything here is synchronous and takes the time
//! as an argument; ids count up, so that the same calls make the same world.
//!
//! Not here: what runners do (`runners`), what happens to jobs (`jobs`), HTTP.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bullpen_core::time::Timestamp;

use super::hooks::Outbox;
use super::levers::Levers;
use super::protocol::{Conclusion, JobOrder, NoticeView};
use crate::settings::Scope;

/// Tokens of every kind are good for an hour, as GitHub's are.
const TOKEN_LIFE: Duration = Duration::from_secs(60 * 60);

/// Everything.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) levers: Levers,
    /// The base of GitHub's interface, for what is sent unasked.
    pub(super) base: String,
    pub(super) outbox: Outbox,
    pub(super) notices: Vec<NoticeView>,
    /// By repository and path.
    pub(super) files: BTreeMap<(String, String), String>,
    pub(super) tokens: BTreeMap<String, Grant>,
    pub(super) runners: BTreeMap<u64, Runner>,
    pub(super) jobs: BTreeMap<u64, Job>,
    /// Calls of GitHub's interface so far, whatever they were answered.
    pub(super) calls: u64,
    /// By kind of call and status: how often that was answered.
    pub(super) answers: BTreeMap<(String, u16), u64>,
    /// By bearer: the hour, and the calls in it.
    pub(super) used: BTreeMap<String, (i64, u64)>,
    /// By bearer: the points of the last minute, oldest first.
    pub(super) points: BTreeMap<String, VecDeque<(Timestamp, u32)>>,
    /// Calls that were refused for their number.
    pub(super) limited: u64,
    serial: u64,
}

/// What a token is good for.
#[derive(Clone, Debug)]
pub(super) struct Grant {
    pub(super) kind: Kind,
    pub(super) scope: Scope,
    pub(super) expires: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Registration,
    Removal,
    Installation,
}

#[derive(Debug)]
pub(super) struct Runner {
    pub(super) id: u64,
    pub(super) name: String,
    pub(super) scope: Scope,
    pub(super) group: u64,
    pub(super) labels: Vec<String>,
    pub(super) ephemeral: bool,
    /// What it can still be started with.
    pub(super) jit: Option<String>,
    pub(super) session: Option<String>,
    /// When it was last heard of.
    pub(super) seen: Timestamp,
    /// How many of its requests are waiting here right now.
    pub(super) polls: u32,
    pub(super) job: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Job {
    pub(super) id: u64,
    pub(super) run: u64,
    pub(super) attempt: u32,
    pub(super) name: String,
    pub(super) order: JobOrder,
    pub(super) stage: Stage,
    pub(super) cancelling: bool,
    /// The id and name of the runner that has it or had it.
    pub(super) runner: Option<(u64, String)>,
    pub(super) created: Timestamp,
    pub(super) started: Option<Timestamp>,
    pub(super) completed: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// A gate holds it back.
    Held,
    Queued,
    /// Told to a runner, which has not started it yet.
    Given {
        at: Timestamp,
    },
    Running,
    Over(Conclusion),
}

/// Why something was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The credential is not good for this.
    Credential,
    /// There is no such thing.
    Missing,
    /// There was, and it was deleted.
    Gone,
    /// The name is taken, or the job is another's.
    Conflict,
    /// A job runs.
    Busy,
}

impl State {
    pub(super) fn next(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// A new token and when it ends.
    pub(super) fn mint(&mut self, kind: Kind, scope: Scope, now: Timestamp) -> (String, Timestamp) {
        let stem = match kind {
            Kind::Registration => "registration-",
            Kind::Removal => "removal-",
            Kind::Installation => "ghs_installation_",
        };
        let token = format!("{stem}{}", self.next());
        let expires = now.after(TOKEN_LIFE);
        self.tokens.insert(token.clone(), Grant { kind, scope, expires });
        (token, expires)
    }

    /// The scope that a token of this kind is good for now.
    pub(super) fn granted(&self, token: &str, kind: Kind, now: Timestamp) -> Option<&Scope> {
        let grant = self.tokens.get(token)?;
        (grant.kind == kind && now < grant.expires).then_some(&grant.scope)
    }
}
