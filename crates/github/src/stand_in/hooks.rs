//! Webhooks: signed, sent over HTTP in order, once, and logged, as GitHub does; with levers that
//! lose, double, delay, hold and reverse them.
//!
//! GitHub never sends a webhook again by itself, even if the answer was not 2xx. A receiver that asks
//! for it again gets the same bytes under the same id.
//!
//! Not here: what they say (`json`), or asking about them (`repository`).

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bullpen_core::mailbox::Secret;
use bullpen_core::time::Timestamp;
use futures_util::future::{Either, select};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Request, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;

use super::json;
use super::state::{Refused, State};
use super::world::World;
use crate::settings::is_loopback;
use crate::webhook::sign;

/// How long a receiver may take.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);
/// What GitHub notes for a receiver that it did not reach.
const UNREACHED: u16 = 502;

type Sender = Client<HttpConnector, Full<Bytes>>;

/// Where webhooks go.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hook {
    /// An address on loopback, by plain HTTP.
    pub url: String,
    /// What they are signed with.
    pub secret: Secret,
    /// Whether it gets webhooks about runs too (`workflow_run`), and not only about jobs.
    #[serde(default)]
    pub runs: bool,
}

impl Hook {
    pub(super) fn is_local(&self) -> bool {
        let uri = self.url.parse::<Uri>().ok();
        uri.is_some_and(|uri| {
            uri.scheme_str() == Some("http") && uri.host().is_some_and(is_loopback)
        })
    }
}

/// One attempt to deliver one webhook.
#[derive(Clone, Debug)]
pub(super) struct WebhookAttempt {
    pub(super) id: u64,
    pub(super) guid: String,
    pub(super) event: &'static str,
    pub(super) action: &'static str,
    pub(super) redelivery: bool,
    body: String,
    due: Timestamp,
    /// When it was tried, and the status it was answered with.
    pub(super) tried: Option<(Timestamp, u16)>,
}

/// Webhooks that are to be sent, and those that were.
#[derive(Debug, Default)]
pub(super) struct WebhookOutbox {
    pub(super) hook: Option<Hook>,
    waiting: VecDeque<WebhookAttempt>,
    under_way: bool,
    /// Oldest first.
    pub(super) log: Vec<WebhookAttempt>,
}

impl WebhookOutbox {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && !self.under_way
    }
}

/// What the sender does next.
enum Next {
    Send(Hook, Box<WebhookAttempt>),
    Wait(Option<Duration>),
}

impl State {
    /// Something happened to a job.
    pub(super) fn announce(&mut self, job: u64, action: &'static str, now: Timestamp) {
        if self.outbox.hook.is_none() {
            return;
        }
        let lose = &mut self.levers.webhooks.lose;
        if *lose > 0 {
            *lose -= 1;
            return;
        }
        let Some(row) = self.jobs.get(&job) else { return };
        let body = json::workflow_job(action, row, self.place(&row.order.repository)).to_string();
        self.send("workflow_job", action, &body, now);
    }

    /// A run was made, of which this is the first job.
    pub(super) fn announce_run(&mut self, job: u64, now: Timestamp) {
        if !self.outbox.hook.as_ref().is_some_and(|hook| hook.runs) {
            return;
        }
        let Some(row) = self.jobs.get(&job) else { return };
        let body = json::workflow_run(row, self.place(&row.order.repository)).to_string();
        self.send("workflow_run", "requested", &body, now);
    }

    fn send(&mut self, event: &'static str, action: &'static str, body: &str, now: Timestamp) {
        let due = now.after(Duration::from_millis(self.levers.webhooks.delay_ms));
        let copies = if self.levers.webhooks.double { 2 } else { 1 };
        let number = self.next();
        let guid = format!("{number:08x}-cc78-11e3-81ab-4c9367dc0958");
        for _ in 0..copies {
            let (id, guid, body) = (self.next(), guid.clone(), body.to_owned());
            let (redelivery, tried) = (false, None);
            let attempt = WebhookAttempt { id, guid, event, action, redelivery, body, due, tried };
            self.outbox.waiting.push_back(attempt);
        }
    }

    /// A webhook is to be sent again.
    pub(super) fn redeliver(&mut self, id: u64, now: Timestamp) -> Result<(), Refused> {
        let found = self.outbox.log.iter().find(|attempt| attempt.id == id);
        let attempt = found.ok_or(Refused::Missing)?.clone();
        let id = self.next();
        let again = WebhookAttempt { id, redelivery: true, due: now, tried: None, ..attempt };
        self.outbox.waiting.push_back(again);
        Ok(())
    }

    fn next_attempt(&mut self, now: Timestamp) -> Next {
        let levers = &self.levers.webhooks;
        let Some(hook) = self.outbox.hook.clone().filter(|_| !levers.hold) else {
            return Next::Wait(None);
        };
        let waiting = &mut self.outbox.waiting;
        let mut due = (0..waiting.len()).filter(|&index| waiting[index].due <= now);
        let chosen = if levers.newest_first { due.next_back() } else { due.next() };
        match chosen.and_then(|index| waiting.remove(index)) {
            Some(attempt) => {
                self.outbox.under_way = true;
                Next::Send(hook, Box::new(attempt))
            }
            None => Next::Wait(waiting.iter().map(|attempt| attempt.due.since(now)).min()),
        }
    }
}

/// Sends webhooks for as long as it is polled.
pub(super) async fn send_forever(world: Arc<World>) {
    let client = Client::builder(TokioExecutor::new()).build_http();
    loop {
        let mut changes = world.changes();
        match world.look(State::next_attempt) {
            Next::Send(hook, mut attempt) => {
                let status = send_once(&world, &client, &hook, &attempt).await;
                world.act(|state, now| {
                    attempt.tried = Some((now, status));
                    state.outbox.log.push(*attempt);
                    state.outbox.under_way = false;
                });
            }
            Next::Wait(Some(wait)) => {
                select(pin!(changes.changed()), pin!(world.sleep(wait))).await;
            }
            // The sender of changes is the world's and outlives this wait.
            Next::Wait(None) => drop(changes.changed().await),
        }
    }
}

async fn send_once(world: &World, client: &Sender, hook: &Hook, attempt: &WebhookAttempt) -> u16 {
    let sent = pin!(deliver(client, hook, attempt));
    match select(sent, pin!(world.sleep(ANSWERED_WITHIN))).await {
        Either::Left((status, _)) => status,
        Either::Right(_) => UNREACHED,
    }
}

async fn deliver(client: &Sender, hook: &Hook, attempt: &WebhookAttempt) -> u16 {
    let request = Request::post(&hook.url)
        .header("content-type", "application/json")
        .header("user-agent", "GitHub-Hookshot/stand-in")
        .header("x-github-event", attempt.event)
        .header("x-github-delivery", &attempt.guid)
        .header("x-github-hook-id", "1")
        .header("x-github-hook-installation-target-type", "integration")
        .header("x-hub-signature-256", sign(&hook.secret, attempt.body.as_bytes()))
        .body(Full::new(Bytes::from(attempt.body.clone())));
    let Ok(request) = request else { return UNREACHED };
    client.request(request).await.map_or(UNREACHED, |response| response.status().as_u16())
}
