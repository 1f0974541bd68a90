//! The public listener: GitHub's webhooks, answered when their facts are durable.
//!
//! A body is read only if its head may be right, up to the limit, and for a limited time; bodies larger
//! than any job's are read a few at a time, so that memory stays bounded.
//!
//! Not here: parsing webhooks (`bullpen_github::webhook`), or their effect on a job's row
//! (`bullpen_engine::jobs`).

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{HeaderMap, HeaderValue, RETRY_AFTER};
use axum::response::Response;
use axum::routing::any;
use axum::{Extension, Router};
use bullpen_core::limits::WEBHOOK_BODY_BYTES_MAX;
use bullpen_core::ports::Clock as _;
use bullpen_embedded::system::SystemClock;
use bullpen_github::webhook::{
    DONE, Event, JobEvent, Refusal, Secrets, Verdict, WebhookHead, admit, judge,
};
use futures_util::FutureExt as _;
use http_body_util::{BodyExt as _, Collected, LengthLimitError, Limited};
use tokio::sync::Semaphore;

use super::calls::ServiceCaller;
use super::http::{Caller, text};
use super::metrics::Metrics;

/// The path that GitHub sends webhooks to.
pub(super) const PATH: &str = "/webhook";
/// A job's webhook has some twenty thousand bytes. Every connection may send so much at once, signed
/// or not.
const SMALL_BYTES: u64 = 64 * 1024;
/// How many larger bodies are read at once.
const LARGE_AT_ONCE: usize = 8;
/// How long a body may take.
const BODY_WITHIN: Duration = Duration::from_secs(10);
/// When a sender whose delivery was not stored may send again.
const RETRY_AFTER_S: &str = "10";

/// What the handler shares between deliveries.
pub(super) struct Webhooks {
    service: ServiceCaller,
    secrets: Secrets,
    metrics: Arc<Metrics>,
    clock: SystemClock,
    large: Semaphore,
}

impl Webhooks {
    /// For deliveries that are signed with one of these secrets.
    pub(super) fn new(
        service: ServiceCaller,
        secrets: Secrets,
        metrics: Arc<Metrics>,
        clock: SystemClock,
    ) -> Self {
        Self { service, secrets, metrics, clock, large: Semaphore::new(LARGE_AT_ONCE) }
    }
}

/// The listener's one route.
pub(super) fn router(webhooks: Webhooks) -> Router {
    let not_posted = async || text(StatusCode::METHOD_NOT_ALLOWED, "webhooks are posted");
    let unknown_path = async || text(StatusCode::NOT_FOUND, "webhooks are taken at /webhook");
    Router::new()
        .route(PATH, any(not_posted).post(take))
        .fallback(unknown_path)
        .with_state(Arc::new(webhooks))
}

/// Answers one delivery, and counts the answer.
async fn take(
    State(webhooks): State<Arc<Webhooks>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let head = WebhookHead::of(&headers);
    let delivery = AssertUnwindSafe(webhooks.delivery(&head, body, &caller)).catch_unwind();
    let answer = delivery.await.unwrap_or_else(|_panic| {
        let (delivery, event) = (&head.delivery, &head.event);
        tracing::error!(?delivery, ?event, "a defect ended a webhook; the process goes on");
        text(StatusCode::INTERNAL_SERVER_ERROR, "this webhook met a defect of the service")
    });
    webhooks.metrics.webhook(answer.status());
    answer
}

impl Webhooks {
    async fn delivery(&self, head: &WebhookHead, body: Body, caller: &Caller) -> Response {
        if let Err(refusal) = admit(head) {
            return refuse(head, &refusal);
        }
        let body = match self.body(head, body).await {
            Ok(body) => body,
            Err(Unread::TooLarge) => return refuse(head, &Refusal::TooLarge),
            Err(Unread::Slow) => {
                return text(StatusCode::REQUEST_TIMEOUT, "the body took too long");
            }
            Err(Unread::Broken) => return text(StatusCode::BAD_REQUEST, "the body broke off"),
        };
        let verdict = judge(head, &body, &self.secrets);
        drop(body);
        if verdict.is_signed() {
            caller.set_proven();
        }
        match verdict {
            Verdict::Accepted(Event::Job(event)) => self.job(*event).await,
            Verdict::Accepted(Event::Run(event)) => {
                self.service.note_run(event.fact, event.installation).await;
                done()
            }
            Verdict::Accepted(Event::Ping) => {
                tracing::info!(delivery = head.delivery, "GitHub pinged the webhook");
                done()
            }
            Verdict::Accepted(Event::Push(_) | Event::Other(_)) => done(),
            Verdict::Refused(refusal) => refuse(head, &refusal),
        }
    }

    /// Reads a body within its limits.
    async fn body(&self, head: &WebhookHead, body: Body) -> Result<Bytes, Unread> {
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
            () = self.clock.sleep(BODY_WITHIN) => Err(Unread::Slow),
        }
    }

    /// Answers well only when the job's fact is durable: GitHub sends nothing again by itself.
    async fn job(&self, event: JobEvent) -> Response {
        let JobEvent { delivery, action, fact, installation } = event;
        let job = fact.job.clone();
        match self.service.deliver(fact, installation).await {
            Ok(ingested) => {
                tracing::debug!(job_id = %job, action, delivery, ?ingested, "webhook ingested");
                done()
            }
            Err(fault) => {
                tracing::warn!(job_id = %job, action, delivery, %fault, "webhook not stored");
                let said = "not stored; GitHub redelivers it, or the sweep recovers the job";
                let mut answer = text(StatusCode::SERVICE_UNAVAILABLE, said);
                let wait = HeaderValue::from_static(RETRY_AFTER_S);
                answer.headers_mut().insert(RETRY_AFTER, wait);
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

fn done() -> Response {
    text(status(DONE), "")
}

fn refuse(head: &WebhookHead, refusal: &Refusal) -> Response {
    let delivery = head.delivery.as_deref().unwrap_or("none");
    if refusal.status() == StatusCode::BAD_REQUEST.as_u16() {
        // The signature is good: GitHub and this version do not understand each other.
        tracing::warn!(delivery, event = head.event, %refusal, "signed webhook refused");
    } else {
        // Any stranger can send it, any number of times.
        tracing::debug!(delivery, %refusal, "request refused");
    }
    text(status(refusal.status()), &refusal.to_string())
}

fn status(code: u16) -> StatusCode {
    StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}
