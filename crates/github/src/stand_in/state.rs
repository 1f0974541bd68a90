//! What the stand-in knows: tokens, runners, jobs. Everything here is synchronous and takes the time
//! as an argument; ids count up, so that the same calls make the same world.
//!
//! Not here: what runners do (`runners`), what happens to jobs (`jobs`), HTTP.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bullpen_core::mailbox::Secret;
use bullpen_core::time::Timestamp;
use ring::hmac;

use super::hooks::WebhookOutbox;
use super::json::RepositoryUrls;
use super::levers::Levers;
use super::protocol::{Conclusion, JobOrder, NoticeView};
use crate::settings::Scope;

/// Tokens of every kind are good for an hour, as GitHub's are.
const TOKEN_LIFE: Duration = Duration::from_secs(60 * 60);

/// The installation that announces jobs of accounts on which the App is not installed by name.
const ELSEWHERE: u64 = 1;

/// Everything.
#[derive(Debug)]
pub(super) struct State {
    /// What tokens are made of, so that only their holders know them.
    secret: Secret,
    pub(super) levers: Levers,
    /// The base of GitHub's interface, for what is sent unasked.
    pub(super) base: String,
    /// Where the first App is installed, by the account's name in lower case.
    pub(super) installations: BTreeMap<String, u64>,
    pub(super) outbox: WebhookOutbox,
    pub(super) notices: Vec<NoticeView>,
    /// By repository and path.
    pub(super) files: BTreeMap<(String, String), String>,
    pub(super) tokens: BTreeMap<String, Grant>,
    pub(super) runners: BTreeMap<u64, Runner>,
    pub(super) jobs: BTreeMap<u64, Job>,
    /// Calls of GitHub's interface so far, with any answer or none.
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
    pub(super) kind: GrantKind,
    pub(super) scope: Scope,
    pub(super) expires: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GrantKind {
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
    pub(super) stage: JobStage,
    pub(super) cancelling: bool,
    /// The id and name of the runner that has it or had it.
    pub(super) runner: Option<(u64, String)>,
    pub(super) created: Timestamp,
    pub(super) started: Option<Timestamp>,
    pub(super) completed: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobStage {
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
    pub(super) fn new(secret: Secret) -> Self {
        Self {
            secret,
            levers: Levers::default(),
            base: String::new(),
            installations: BTreeMap::new(),
            outbox: WebhookOutbox::default(),
            notices: Vec::new(),
            files: BTreeMap::new(),
            tokens: BTreeMap::new(),
            runners: BTreeMap::new(),
            jobs: BTreeMap::new(),
            calls: 0,
            answers: BTreeMap::new(),
            used: BTreeMap::new(),
            points: BTreeMap::new(),
            limited: 0,
            serial: 0,
        }
    }

    /// A text that begins like this, that is made once, and that a stranger cannot make.
    pub(super) fn unguessable(&mut self, stem: &str) -> String {
        let text = format!("{stem}{}", self.next());
        let tag = hmac::sign(&self.key(), text.as_bytes());
        format!("{text}.{}", BASE64_URL_SAFE_NO_PAD.encode(tag.as_ref()))
    }

    /// Whether such a text was made with this secret, by this process or one before it.
    pub(super) fn is_ours(&self, text: &str) -> bool {
        let parts = text.rsplit_once('.');
        let parts =
            parts.and_then(|(text, tag)| Some((text, BASE64_URL_SAFE_NO_PAD.decode(tag).ok()?)));
        parts.is_some_and(|(text, tag)| hmac::verify(&self.key(), text.as_bytes(), &tag).is_ok())
    }

    fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, self.secret.reveal().as_bytes())
    }

    /// A repository as the levers have it.
    pub(super) fn place<'a>(&'a self, repository: &'a str) -> RepositoryUrls<'a> {
        let is_it = |name: &String| name.eq_ignore_ascii_case(repository);
        let is_public = self.levers.public_repositories.iter().any(is_it);
        let owner = repository.split('/').next().unwrap_or_default();
        let installation = self.installations.get(&owner.to_ascii_lowercase());
        let installation = installation.copied().unwrap_or(ELSEWHERE);
        RepositoryUrls { repository, base: &self.base, is_public, installation }
    }

    pub(super) fn next(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// A new token and when it ends.
    pub(super) fn mint(
        &mut self,
        kind: GrantKind,
        scope: Scope,
        now: Timestamp,
    ) -> (String, Timestamp) {
        let stem = match kind {
            GrantKind::Registration => "registration-",
            GrantKind::Removal => "removal-",
            GrantKind::Installation => "ghs_installation_",
        };
        let token = self.unguessable(stem);
        let expires = now.after(TOKEN_LIFE);
        self.tokens.insert(token.clone(), Grant { kind, scope, expires });
        (token, expires)
    }

    /// The scope that a token of this kind is good for now.
    pub(super) fn granted(&self, token: &str, kind: GrantKind, now: Timestamp) -> Option<&Scope> {
        let grant = self.tokens.get(token)?;
        (grant.kind == kind && now < grant.expires).then_some(&grant.scope)
    }
}
