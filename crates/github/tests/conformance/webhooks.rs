//! Every webhook that the stand-in sends is as GitHub's schema says.
//!
//! Not here: whether they are understood (`tests/loopback`).

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bullpen_core::mailbox::Secret;
use bullpen_github::stand_in::protocol::JobOrder;
use bullpen_github::stand_in::{Hook, Options, StandIn};
use bullpen_github::{GitHub, Login, Scope, Settings};
use bullpen_sim::clock::ManualClock;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::tools::ask;

type Heard = Arc<Mutex<Vec<(String, String)>>>;

async fn listen(listener: TcpListener, heard: Heard) {
    while let Ok((stream, _)) = listener.accept().await {
        let hear = |request: Request<Incoming>| {
            let heard = Arc::clone(&heard);
            async move {
                let signature = request.headers()["x-hub-signature-256"].to_str();
                let signature = signature.expect("it is text").to_owned();
                let body = request.into_body().collect().await.expect("it is whole").to_bytes();
                let body = String::from_utf8(body.to_vec()).expect("it is text");
                heard.lock().expect("nobody panics with it").push((signature, body));
                Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
            }
        };
        let connection = http1::Builder::new().keep_alive(false).clone();
        let _ = connection.serve_connection(TokioIo::new(stream), service_fn(hear)).await;
    }
}

fn order() -> JobOrder {
    let (repository, labels) = ("acme/app".to_owned(), vec!["x".to_owned()]);
    JobOrder { repository, labels, ..JobOrder::default() }
}

/// A call of the runners' protocol.
async fn post(url: String, session: &str, body: Value) -> Value {
    let request = Request::post(url)
        .header("authorization", format!("Bearer {session}"))
        .header("content-type", "application/json")
        .body(Full::<Bytes>::new(body.to_string().into()))
        .expect("it is a request");
    let http = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let response = http.request(request).await.expect("it answers");
    assert!(response.status().is_success(), "{}", response.status());
    let said = response.into_body().collect().await.expect("it is whole").to_bytes();
    serde_json::from_slice(&said).unwrap_or_default()
}

/// A runner comes up, starts this job and ends it.
async fn run(stand_in: &StandIn, clock: &Arc<ManualClock>, job: u64) {
    let scope = Scope::parse("acme").expect("it is one");
    let settings = Settings::new(scope, Login::Token(Secret::new("ghp_x")), "bp-");
    let settings = Settings { base_url: stand_in.url(), ..settings };
    let github = GitHub::new(&settings, Arc::clone(clock)).expect("settings are good");
    let token = github.registration_token().await.expect("the weather is good");
    let runners = format!("{}/_stand-in/runners", stand_in.url());
    let wish = json!({"token": token.token.reveal(), "name": "bp-1", "labels": ["x"]});
    let up = post(format!("{runners}/register"), "", wish).await;
    let session = up["session"].as_str().expect("it has one");
    let path = format!("{runners}/{}/jobs/{job}", up["runner_id"]);
    post(format!("{path}/started"), session, json!({})).await;
    post(format!("{path}/completed"), session, json!({"conclusion": "failure"})).await;
}

/// A gate, an approval, a cancellation, and a life: every action.
async fn heard() -> Vec<(String, String)> {
    let address = "127.0.0.1:0".parse().expect("it is an address");
    let clock = ManualClock::new();
    let stand_in =
        StandIn::start(address, Options::new(Secret::new("ghp_x")), Arc::clone(&clock)).await;
    let stand_in = stand_in.expect("loopback has free ports");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
    let url = format!("http://{}/", listener.local_addr().expect("it is bound"));
    stand_in.hook(Hook { url, secret: Secret::new("s"), runs: true }).expect("it is on loopback");
    let heard = Heard::default();
    let play = async {
        let job = stand_in.submit(JobOrder { held: true, ..order() });
        assert!(stand_in.approve(job.id) && stand_in.cancel(job.id));
        let job = stand_in.submit(order());
        run(&stand_in, &clock, job.id).await;
        stand_in.webhooks_sent().await;
    };
    tokio::select! {
        () = play => {}
        () = listen(listener, Arc::clone(&heard)) => panic!("it listens for ever"),
    }
    std::mem::take(&mut *heard.lock().expect("nobody panics with it"))
}

#[tokio::test]
async fn what_is_sent_is_githubs_and_githubs_signature() {
    let heard = heard().await;
    let mut questions = Vec::new();
    let mut actions = Vec::new();
    for (signature, text) in &heard {
        let body: Value = serde_json::from_str(text).unwrap();
        let action = body["action"].as_str().expect("it says what happened").to_owned();
        let event =
            if body.get("workflow_run").is_some() { "workflow_run" } else { "workflow_job" };
        let schema = format!("{event}${action}");
        questions.push(json!({"ask": "validate", "schema": schema, "body": body}));
        questions
            .push(json!({"ask": "verify", "secret": "s", "body": text, "signature": signature}));
        actions.push(action);
    }
    let gated = ["requested", "waiting", "queued", "queued", "completed"];
    assert_eq!(actions[..5], gated);
    assert_eq!(actions[5..], ["requested", "queued", "in_progress", "completed"]);
    let mut broken: Value = serde_json::from_str(&heard[1].1).unwrap();
    broken["workflow_job"]["id"] = json!("seven");
    questions.push(json!({"ask": "validate", "schema": "workflow_job$waiting", "body": broken}));
    let answers = ask(&questions);
    let (control, answers) = answers.split_last().expect("there are some");
    assert_ne!(*control, json!([]), "a schema that finds nothing proves nothing");
    for (said, action) in answers.chunks(2).zip(actions) {
        assert_eq!(said[0], json!([]), "{action}");
        assert_eq!(said[1], json!(true), "{action}");
    }
}
