//! A receiver of webhooks: the door's verdicts on real requests, and a row that merges their facts.
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
    /// So many are answered badly first, as if their row could not be stored.
    broken: u32,
}

/// It ends when it is dropped.
pub(crate) struct Receiver {
    pub(crate) url: String,
    received: Arc<Mutex<Received>>,
    task: JoinHandle<()>,
}

impl Receiver {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
        let url = format!("http://{}/webhook", listener.local_addr().expect("it is bound"));
        let received = Arc::new(Mutex::new(Received::default()));
        #[expect(clippy::disallowed_methods, reason = "the receiver holds the task and ends it")]
        let task = tokio::spawn(serve(listener, Arc::clone(&received)));
        Self { url, received, task }
    }

    pub(crate) fn hook(&self) -> Hook {
        Hook { url: self.url.clone(), secret: Secret::new(SECRET), runs: false }
    }

    pub(crate) fn fail(&self, count: u32) {
        self.received.lock().expect("no handler panics").broken = count;
    }

    pub(crate) fn events(&self) -> Vec<JobEvent> {
        self.received.lock().expect("no handler panics").events.clone()
    }

    pub(crate) fn actions(&self) -> Vec<String> {
        self.events().into_iter().map(|event| event.action).collect()
    }

    /// The rows that these events make.
    pub(crate) fn rows(&self, now: Timestamp) -> BTreeMap<JobId, Job> {
        let limits = Limits::DEFAULT;
        let mut rows: BTreeMap<JobId, Job> = BTreeMap::new();
        for JobEvent { fact, .. } in self.events() {
            let row = match rows.remove(&fact.job) {
                None => Job::first(&fact, now, &limits),
                Some(row) => row.learn(&fact, now, &limits).expect("it is its row"),
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
        // One connection at a time is what the stand-in needs.
        let builder = http1::Builder::new().keep_alive(false).clone();
        let _ = builder.serve_connection(TokioIo::new(stream), service).await;
    }
}

async fn answer(
    request: Request<Incoming>,
    received: &Mutex<Received>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let secrets = Secrets::new(&Secret::new(SECRET), None).expect("it is not empty");
    let (parts, body) = request.into_parts();
    let head = WebhookHead::of(&parts.headers);
    assert_eq!(admit(&head), Ok(()));
    let body = body.collect().await.expect("it is whole").to_bytes();
    let verdict = judge(&head, &body, &secrets);
    let mut received = received.lock().expect("no handler panics");
    let status = match verdict {
        _ if received.broken > 0 => {
            received.broken -= 1;
            503
        }
        Verdict::Accepted(Event::Job(event)) => {
            received.events.push(*event);
            DONE
        }
        other => other.status().expect("only jobs have none"),
    };
    let mut response = Response::new(Full::default());
    *response.status_mut() = hyper::StatusCode::from_u16(status).expect("it is one");
    Ok(response)
}
