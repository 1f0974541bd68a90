//! Every webhook that the stand-in sends matches GitHub's schema.
//!
//! Not here: parsing them (`tests/loopback`).

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

/// Signatures and bodies, in the order of their arrival.
type Received = Arc<Mutex<Vec<(String, String)>>>;

async fn receive(listener: TcpListener, received: Received) {
    while let Ok((stream, _)) = listener.accept().await {
        let store = |request: Request<Incoming>| {
            let received = Arc::clone(&received);
            async move {
                let signature = request.headers()["x-hub-signature-256"].to_str();
                let signature = signature.expect("the signature is text").to_owned();
                let body = request.into_body().collect().await;
                let body = body.expect("the body is complete").to_bytes();
                let body = String::from_utf8(body.to_vec()).expect("the body is text");
                received.lock().expect("no handler panics").push((signature, body));
                Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
            }
        };
        let connection = http1::Builder::new().keep_alive(false).clone();
        let _ = connection.serve_connection(TokioIo::new(stream), service_fn(store)).await;
    }
}

fn order() -> JobOrder {
    let (repository, labels) = ("acme/app".to_owned(), vec!["x".to_owned()]);
    JobOrder { repository, labels, ..JobOrder::default() }
}

/// Calls the runners' protocol.
async fn post(url: String, session: &str, body: Value) -> Value {
    let request = Request::post(url)
        .header("authorization", format!("Bearer {session}"))
        .header("content-type", "application/json")
        .body(Full::<Bytes>::new(body.to_string().into()))
        .expect("the request is valid");
    let http = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let response = http.request(request).await.expect("the stand-in answers");
    assert!(response.status().is_success(), "{}", response.status());
    let body = response.into_body().collect().await.expect("the body is complete").to_bytes();
    serde_json::from_slice(&body).unwrap_or_default()
}

/// Registers a runner that starts this job and ends it.
async fn run(stand_in: &StandIn, clock: &Arc<ManualClock>, job: u64) {
    let scope = Scope::parse("acme").expect("the scope is valid");
    let settings = Settings::new(scope, Login::Token(Secret::new("ghp_x")), "bp-");
    let settings = Settings { base_url: stand_in.url(), ..settings };
    let github = GitHub::new(&settings, Arc::clone(clock)).expect("the settings are valid");
    let token = github.registration_token().await.expect("the stand-in answers");
    let runners = format!("{}/_stand-in/runners", stand_in.url());
    let request = json!({"token": token.token.reveal(), "name": "bp-1", "labels": ["x"]});
    let up = post(format!("{runners}/register"), "", request).await;
    let session = up["session"].as_str().expect("a registered runner has a session");
    let path = format!("{runners}/{}/jobs/{job}", up["runner_id"]);
    post(format!("{path}/started"), session, json!({})).await;
    post(format!("{path}/completed"), session, json!({"conclusion": "failure"})).await;
}

/// Plays a held job that is approved and cancelled, and a job that runs: every action occurs.
async fn webhooks_of_two_jobs() -> Vec<(String, String)> {
    let address = "127.0.0.1:0".parse().expect("the address is valid");
    let clock = ManualClock::new();
    let stand_in =
        StandIn::start(address, Options::new(Secret::new("ghp_x")), Arc::clone(&clock)).await;
    let stand_in = stand_in.expect("loopback has free ports");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
    let url = format!("http://{}/", listener.local_addr().expect("the listener is bound"));
    let hook = Hook { url, secret: Secret::new("s"), runs: true };
    stand_in.hook(hook).expect("the receiver is on loopback");
    let received = Received::default();
    let play = async {
        let job = stand_in.submit(JobOrder { held: true, ..order() });
        assert!(stand_in.approve(job.id) && stand_in.cancel(job.id));
        let job = stand_in.submit(order());
        run(&stand_in, &clock, job.id).await;
        stand_in.webhooks_sent().await;
    };
    tokio::select! {
        () = play => {}
        () = receive(listener, Arc::clone(&received)) => panic!("the receiver never ends"),
    }
    std::mem::take(&mut *received.lock().expect("no handler panics"))
}

#[tokio::test]
async fn the_stand_ins_webhooks_match_githubs_schemas_and_signature() {
    let received = webhooks_of_two_jobs().await;
    let mut questions = Vec::new();
    let mut actions = Vec::new();
    for (signature, text) in &received {
        let body: Value = serde_json::from_str(text).unwrap();
        let action = body["action"].as_str().expect("the body has an action").to_owned();
        let event =
            if body.get("workflow_run").is_some() { "workflow_run" } else { "workflow_job" };
        let schema = format!("{event}${action}");
        questions.push(json!({"ask": "validate", "schema": schema, "body": body}));
        questions
            .push(json!({"ask": "verify", "secret": "s", "body": text, "signature": signature}));
        actions.push(action);
    }
    let held = ["requested", "waiting", "queued", "queued", "completed"];
    assert_eq!(actions[..5], held);
    assert_eq!(actions[5..], ["requested", "queued", "in_progress", "completed"]);
    let mut broken: Value = serde_json::from_str(&received[1].1).unwrap();
    broken["workflow_job"]["id"] = json!("seven");
    questions.push(json!({"ask": "validate", "schema": "workflow_job$waiting", "body": broken}));
    let answers = ask(&questions);
    let (control, answers) = answers.split_last().expect("there are answers");
    assert_ne!(*control, json!([]), "the schema accepts a broken body, so the test proves nothing");
    for (answer, action) in answers.chunks(2).zip(actions) {
        assert_eq!(answer[0], json!([]), "{action}");
        assert_eq!(answer[1], json!(true), "{action}");
    }
}
