//! The public listener: GitHub's webhooks, answered when what they say is durable.
//!
//! A body is read only if its head may be right, up to the limit, and for so long; bodies larger than
//! any job's are read a few at a time, so that memory stays bounded whoever sends what.
//!
//! Not here: what a webhook is (`bullpen_github::webhook`), or what it does to a job's row
//! (`bullpen_engine::jobs`).

use std::time::Duration;

use bullpen_core::limits::WEBHOOK_BODY_BYTES_MAX;
use bullpen_core::ports::{Clock as _, Ports};
use bullpen_engine::jobs::{self, Service};
use bullpen_github::webhook::{
    DONE, Event, JobEvent, Refusal, Secrets, Verdict, WebhookHead, admit, judge,
};
use http_body_util::{BodyExt as _, Collected, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{HeaderValue, RETRY_AFTER};
use hyper::{Method, Request, StatusCode};
use tokio::sync::Semaphore;

use super::http::{Answer, Caller, text};
use super::metrics::Metrics;

/// Where GitHub is told to send them.
pub(super) const PATH: &str = "/webhook";
/// A job's webhook has some twenty thousand bytes. Every connection may send so much at once, signed
/// or not.
const SMALL_BYTES: u64 = 64 * 1024;
/// How many larger bodies are read at once.
const LARGE_AT_ONCE: usize = 8;
/// How long a body may take.
const BODY_WITHIN: Duration = Duration::from_secs(10);
/// When whoever asks us again should.
const ASK_AGAIN_S: &str = "10";

/// The listener's answers.
pub(super) struct Webhooks<'s, 'a, P, J> {
    service: &'s Service<'a, P, J>,
    secrets: Secrets,
    metrics: &'s Metrics,
    large: Semaphore,
}

impl<'s, 'a, P: Ports, J: Sync> Webhooks<'s, 'a, P, J> {
    /// For deliveries that are signed with one of these.
    pub(super) fn new(
        service: &'s Service<'a, P, J>,
        secrets: Secrets,
        metrics: &'s Metrics,
    ) -> Self {
        Self { service, secrets, metrics, large: Semaphore::new(LARGE_AT_ONCE) }
    }

    /// Answers one request.
    pub(super) async fn answer(&self, request: Request<Incoming>, caller: &Caller<'_>) -> Answer {
        if request.uri().path() != PATH {
            return text(StatusCode::NOT_FOUND, "webhooks are taken at /webhook");
        }
        if request.method() != Method::POST {
            return text(StatusCode::METHOD_NOT_ALLOWED, "webhooks are posted");
        }
        let answer = self.delivery(request, caller).await;
        self.metrics.webhook(answer.status());
        answer
    }

    async fn delivery(&self, request: Request<Incoming>, caller: &Caller<'_>) -> Answer {
        let head = WebhookHead::of(request.headers());
        if let Err(refusal) = admit(&head) {
            return refuse(&head, &refusal);
        }
        let body = match self.body(&head, request.into_body()).await {
            Ok(body) => body,
            Err(Unread::TooLarge) => return refuse(&head, &Refusal::TooLarge),
            Err(Unread::Slow) => {
                return text(StatusCode::REQUEST_TIMEOUT, "the body took too long");
            }
            Err(Unread::Broken) => return text(StatusCode::BAD_REQUEST, "the body broke off"),
        };
        let verdict = judge(&head, &body, &self.secrets);
        if verdict.is_signed() {
            caller.is_proven();
        }
        match verdict {
            Verdict::Accepted(Event::Job(event)) => {
                drop(body);
                Box::pin(self.job(*event)).await
            }
            Verdict::Accepted(Event::Run(event)) => {
                jobs::note_run(self.service, &event.fact, event.installation);
                done()
            }
            Verdict::Accepted(Event::Ping) => {
                tracing::info!(delivery = head.delivery, "GitHub says hello");
                done()
            }
            Verdict::Accepted(Event::Push(_) | Event::Other(_)) => done(),
            Verdict::Refused(refusal) => refuse(&head, &refusal),
        }
    }

    /// Reads a body, as much of it as may be.
    async fn body(&self, head: &WebhookHead, body: Incoming) -> Result<Bytes, Unread> {
        let small = head.content_length.is_some_and(|length| length <= SMALL_BYTES);
        let read = async {
            // Never closed, so there is always a permit sooner or later; too late is too slow.
            let _room = if small { None } else { self.large.acquire().await.ok() };
            Limited::new(body, WEBHOOK_BODY_BYTES_MAX).collect().await
        };
        tokio::select! {
            biased;
            read = read => read.map(Collected::to_bytes).map_err(|error| {
                if error.is::<LengthLimitError>() { Unread::TooLarge } else { Unread::Broken }
            }),
            () = self.service.stack.ports.clock().sleep(BODY_WITHIN) => Err(Unread::Slow),
        }
    }

    /// A job's fact, answered well only when it is durable: GitHub sends nothing again by itself.
    async fn job(&self, event: JobEvent) -> Answer {
        let JobEvent { delivery, action, fact, installation } = event;
        match jobs::deliver(self.service, &fact, installation).await {
            Ok(ingested) => {
                tracing::debug!(job_id = %fact.job, action, delivery, ?ingested, "a webhook");
                done()
            }
            Err(fault) => {
                tracing::warn!(job_id = %fact.job, action, delivery, %fault, "not stored");
                let said = "not stored; GitHub redelivers it, or the sweep recovers the job";
                let mut answer = text(StatusCode::SERVICE_UNAVAILABLE, said);
                answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(ASK_AGAIN_S));
                answer
            }
        }
    }
}

/// Why there is no body.
enum Unread {
    TooLarge,
    Slow,
    Broken,
}

fn done() -> Answer {
    text(status(DONE), "")
}

fn refuse(head: &WebhookHead, refusal: &Refusal) -> Answer {
    let delivery = head.delivery.as_deref().unwrap_or("none");
    if refusal.status() == StatusCode::BAD_REQUEST.as_u16() {
        // It is signed: GitHub and we do not understand each other.
        tracing::warn!(delivery, event = head.event, %refusal, "a webhook is refused");
    } else {
        // Anybody can send it, as often as they like.
        tracing::debug!(delivery, %refusal, "a request is refused");
    }
    text(status(refusal.status()), &refusal.to_string())
}

fn status(code: u16) -> StatusCode {
    StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}
