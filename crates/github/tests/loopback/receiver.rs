//! A receiver of webhooks: it judges real requests, and merges their facts into job rows.
//!
//! Not here: tests.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bullpen_core::ids::JobId;
use bullpen_core::job::Job;
use bullpen_core::limits::Limits;
use bullpen_core::mailbox::Secret;
use bullpen_core::time::Timestamp;
use bullpen_github::stand_in::Hook;
use bullpen_github::webhook::{DONE, Event, JobEvent, Secrets, Verdict, WebhookHead, admit, judge};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub(crate) const SECRET: &str = "for webhooks";

#[derive(Default)]
struct Received {
    events: Vec<JobEvent>,
    /// How many webhooks to answer with 503 first, as if their row could not be stored.
    failures_left: u32,
}

/// A running receiver; dropping it stops it.
pub(crate) struct Receiver {
    pub(crate) url: String,
    received: Arc<Mutex<Received>>,
    task: JoinHandle<()>,
}

impl Receiver {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
        let address = listener.local_addr().expect("the listener is bound");
        let url = format!("http://{address}/webhook");
        let received = Arc::new(Mutex::new(Received::default()));
        #[expect(clippy::disallowed_methods, reason = "the receiver holds the task and ends it")]
        let task = tokio::spawn(serve(listener, Arc::clone(&received)));
        Self { url, received, task }
    }

    pub(crate) fn hook(&self) -> Hook {
        Hook { url: self.url.clone(), secret: Secret::new(SECRET), runs: false }
    }

    pub(crate) fn fail(&self, count: u32) {
        self.received.lock().expect("no handler panics").failures_left = count;
    }

    pub(crate) fn events(&self) -> Vec<JobEvent> {
        self.received.lock().expect("no handler panics").events.clone()
    }

    pub(crate) fn actions(&self) -> Vec<String> {
        self.events().into_iter().map(|event| event.action).collect()
    }

    /// The job rows that result from the events.
    pub(crate) fn rows(&self, now: Timestamp) -> BTreeMap<JobId, Job> {
        let limits = Limits::DEFAULT;
        let mut rows: BTreeMap<JobId, Job> = BTreeMap::new();
        for JobEvent { fact, .. } in self.events() {
            let row = match rows.remove(&fact.job) {
                None => Job::first(&fact, now, &limits),
                Some(row) => row.learn(&fact, now, &limits).expect("the row is of this job"),
            };
            rows.insert(fact.job.clone(), row);
        }
        rows
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, received: Arc<Mutex<Received>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let service = service_fn(|request| answer(request, &received));
        // The stand-in uses one connection at a time.
        let builder = http1::Builder::new().keep_alive(false).clone();
        let _ = builder.serve_connection(TokioIo::new(stream), service).await;
    }
}

async fn answer(
    request: Request<Incoming>,
    received: &Mutex<Received>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let secrets = Secrets::new(&Secret::new(SECRET), None).expect("the secret is not empty");
    let (parts, body) = request.into_parts();
    let head = WebhookHead::of(&parts.headers);
    assert_eq!(admit(&head), Ok(()));
    let body = body.collect().await.expect("the body is complete").to_bytes();
    let verdict = judge(&head, &body, &secrets);
    let mut received = received.lock().expect("no handler panics");
    let status = match verdict {
        _ if received.failures_left > 0 => {
            received.failures_left -= 1;
            503
        }
        Verdict::Accepted(Event::Job(event)) => {
            received.events.push(*event);
            DONE
        }
        other => other.status().expect("only a job's verdict has no status"),
    };
    let mut response = Response::new(Full::default());
    *response.status_mut() = hyper::StatusCode::from_u16(status).expect("the status is valid");
    Ok(response)
}
