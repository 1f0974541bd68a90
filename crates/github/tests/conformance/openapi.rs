//! Every call of the client and every answer of the stand-in matches GitHub's `OpenAPI` document.
//!
//! Not here: tests of behaviour (`tests/loopback`).

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use bullpen_core::claim::Deletion;
use bullpen_core::class::Architecture;
use bullpen_core::ids::{JobId, RunAttempt};
use bullpen_core::job::{Origin, Reason};
use bullpen_core::mailbox::{Credential, Secret};
use bullpen_core::ports::{Fault, FileRead, Forge as _, JobForge, Notice, RunnerSpec};
use bullpen_core::time::Timestamp;
use bullpen_github::stand_in::protocol::JobOrder;
use bullpen_github::stand_in::{Hook, KnownApp, Options, StandIn};
use bullpen_github::{App, AppKey, GitHub, Login, Scope, Settings};
use bullpen_sim::clock::ManualClock;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::net::TcpListener;

use crate::prism::Prism;

const KEY: &str = include_str!("../../fixtures/test-app-key.pem");

const PATHS: &[&str] = &[
    "/app/hook/deliveries",
    "/app/hook/deliveries/{delivery_id}/attempts",
    "/app/installations/{installation_id}/access_tokens",
    "/orgs/{org}/installation",
    "/orgs/{org}/actions/runner-groups",
    "/orgs/{org}/actions/runners",
    "/orgs/{org}/actions/runners/downloads",
    "/orgs/{org}/actions/runners/generate-jitconfig",
    "/orgs/{org}/actions/runners/registration-token",
    "/orgs/{org}/actions/runners/remove-token",
    "/orgs/{org}/actions/runners/{runner_id}",
    "/repos/{owner}/{repo}/installation",
    "/repos/{owner}/{repo}/actions/runners",
    "/repos/{owner}/{repo}/actions/runners/downloads",
    "/repos/{owner}/{repo}/actions/runners/generate-jitconfig",
    "/repos/{owner}/{repo}/actions/runners/registration-token",
    "/repos/{owner}/{repo}/actions/runners/remove-token",
    "/repos/{owner}/{repo}/actions/runners/{runner_id}",
    "/repos/{owner}/{repo}/actions/jobs/{job_id}",
    "/repos/{owner}/{repo}/actions/runs",
    "/repos/{owner}/{repo}/actions/runs/{run_id}",
    "/repos/{owner}/{repo}/actions/runs/{run_id}/attempts/{attempt_number}/jobs",
    "/repos/{owner}/{repo}/actions/runs/{run_id}/cancel",
    "/repos/{owner}/{repo}/actions/runs/{run_id}/jobs",
    "/repos/{owner}/{repo}/check-runs",
    "/repos/{owner}/{repo}/commits/{ref}/check-runs",
    "/repos/{owner}/{repo}/contents/{path}",
    "/repos/{owner}/{repo}/statuses/{sha}",
];

fn app() -> Login {
    let key = AppKey::from_pem(KEY).expect("the fixture is a key");
    Login::App(App { id: "Iv1.app".to_owned(), key, installation: None })
}

fn pat() -> Login {
    Login::Token(Secret::new("ghp_for-tests"))
}

async fn stand_in(clock: &Arc<ManualClock>) -> StandIn {
    let public_key = AppKey::from_pem(KEY).expect("the fixture is a key").public_key();
    let known = KnownApp {
        id: "Iv1.app".to_owned(),
        public_key,
        installations: BTreeMap::from([(7, "acme".to_owned())]),
    };
    let options = Options { app: Some(known), ..Options::new(Secret::new("ghp_for-tests")) };
    let address = "127.0.0.1:0".parse().expect("the address is valid");
    StandIn::start(address, options, Arc::clone(clock)).await.expect("loopback has free ports")
}

fn client(
    prism: &Prism,
    scope: &str,
    login: Login,
    clock: &Arc<ManualClock>,
) -> GitHub<ManualClock> {
    let scope = Scope::parse(scope).expect("the scope is valid");
    let settings = Settings { base_url: prism.url.clone(), ..Settings::new(scope, login, "bp-") };
    GitHub::new(&settings, Arc::clone(clock)).expect("the settings are valid")
}

fn spec(name: &str) -> RunnerSpec {
    RunnerSpec { name: name.into(), labels: vec!["x".to_owned()], group: None, ephemeral: true }
}

/// The answer of a call; panics with Prism's complaints if it failed.
fn succeeded<T>(prism: &Prism, what: &str, answer: Result<T, Fault>) -> T {
    match answer {
        Ok(answer) => answer,
        Err(fault) => panic!("{what}: {fault}\n{}", prism.complaints()),
    }
}

async fn runners(prism: &Prism, github: &GitHub<ManualClock>) {
    let jit = succeeded(prism, "jit", github.credential(&spec("bp-1")).await);
    assert!(matches!(jit, Credential::Jit(_)));
    // The second runner replaces the first, which has the same name.
    succeeded(prism, "jit again", github.jit(&spec("bp-1")).await);
    succeeded(prism, "tokens", github.tokens().await);
    let offered = succeeded(prism, "downloads", github.offered_runner(Architecture::Arm64).await);
    assert_eq!(offered.as_deref(), Some("2.999.0"));
    let lacking = succeeded(prism, "permissions", github.lacking_permissions().await);
    assert_eq!(lacking.unwrap_or_default(), Vec::<String>::new());
    let listed = succeeded(prism, "runners", github.list().await);
    assert_eq!(listed.len(), 1);
    let name = "bp-1".into();
    let deleted = github.delete_known(&name, listed[0].id).await;
    assert_eq!(succeeded(prism, "delete", deleted), Deletion::Deleted);
    let gone = github.delete_known(&name, listed[0].id).await;
    assert_eq!(succeeded(prism, "delete again", gone), Deletion::NotFound);
}

async fn jobs(prism: &Prism, github: &GitHub<ManualClock>, stand_in: &StandIn) {
    let order = JobOrder {
        repository: "acme/app".to_owned(),
        labels: vec!["x".to_owned()],
        ..JobOrder::default()
    };
    let job = stand_in.submit(order);
    let repository = "acme/app".into();
    let run = RunAttempt::new(format!("{}.1", job.run_id));
    let id = JobId::new(job.id.to_string());
    succeeded(prism, "job", JobForge::job(github, &repository, &id).await);
    assert_eq!(succeeded(prism, "jobs", github.jobs_of(&repository, &run).await).len(), 1);
    let unfinished = github.unfinished_runs(&repository).await;
    assert!(!succeeded(prism, "unfinished runs", unfinished).is_empty());
    assert!(!succeeded(prism, "search", github.search_run(&repository, &run).await).is_empty());
    let found = succeeded(prism, "provenance", github.provenance(&repository, &run).await);
    assert_eq!(found.origin, Some(Origin::Own));
    succeeded(prism, "cancel", github.cancel(&repository, &run).await);
    succeeded(prism, "cancel a run that is over", github.cancel_run(&repository, job.run_id).await);
    succeeded(prism, "over", github.is_over(&repository, &run).await);
    succeeded(prism, "job", JobForge::job(github, &repository, &id).await);
    let unknown = JobForge::job(github, &repository, &JobId::new("999999")).await;
    assert_eq!(unknown, Err(Fault::NotFound), "{}", prism.complaints());
    let notice = Notice {
        job: id,
        name: "build".to_owned(),
        repository: repository.clone(),
        commit: "0a1b2c".to_owned(),
        reason: Reason::Vanished,
    };
    succeeded(prism, "tell", github.tell(&notice).await);
    succeeded(prism, "tell again", github.tell(&notice).await);
}

async fn files(prism: &Prism, github: &GitHub<ManualClock>, stand_in: &StandIn) {
    stand_in.put_file("acme/app", "runs-on.yml", "pools: {}\n");
    let repository = "acme/app".into();
    let read = succeeded(prism, "file", github.file(&repository, "runs-on.yml", None).await);
    let FileRead::Read { tag, .. } = read else { panic!("{read:?}") };
    let again = github.file(&repository, "runs-on.yml", tag.as_deref()).await;
    assert_eq!(succeeded(prism, "file again", again), FileRead::Unchanged);
    let absent = github.file(&repository, "other.yml", None).await;
    assert_eq!(succeeded(prism, "no file", absent), FileRead::Absent);
}

async fn deliveries(prism: &Prism, github: &GitHub<ManualClock>, stand_in: &StandIn) {
    // No process listens on this port.
    let url = "http://127.0.0.1:9/webhook".to_owned();
    let hook = Hook { url, secret: Secret::new("s"), runs: false };
    stand_in.hook(hook).expect("the URL is on loopback");
    let order = JobOrder { repository: "acme/app".to_owned(), ..JobOrder::default() };
    stand_in.submit(order);
    stand_in.webhooks_sent().await;
    let lost = succeeded(prism, "deliveries", github.lost_deliveries(Timestamp::EPOCH).await);
    assert_eq!(lost.len(), 1);
    succeeded(prism, "redeliver", github.redeliver(&lost[0]).await);
}

#[tokio::test]
async fn the_clients_calls_and_the_stand_ins_answers_match_the_document() {
    let clock = ManualClock::new();
    let stand_in = stand_in(&clock).await;
    let prism = Prism::start("all", &stand_in.url(), PATHS);
    for (scope, login) in [("acme", app()), ("acme/app", app()), ("acme/app", pat())] {
        let github = client(&prism, scope, login, &clock);
        runners(&prism, &github).await;
        jobs(&prism, &github, &stand_in).await;
    }
    let github = client(&prism, "acme", app(), &clock);
    let builders = RunnerSpec { group: Some("builders".into()), ..spec("bp-2") };
    succeeded(&prism, "jit in a group", github.jit(&builders).await);
    files(&prism, &github, &stand_in).await;
    deliveries(&prism, &github, &stand_in).await;
    prism_rejects_a_bad_request(&prism).await;
}

/// The control: without it, a Prism that checks nothing would pass the test.
async fn prism_rejects_a_bad_request(prism: &Prism) {
    let url = format!("{}/orgs/acme/actions/runners/generate-jitconfig", prism.url);
    let body = json!({"name": "bp-1", "labels": []}).to_string();
    let request = Request::post(url)
        .header("authorization", "Bearer ghp_for-tests")
        .header("user-agent", "test")
        .header("content-type", "application/json")
        .body(Full::<Bytes>::new(body.into()))
        .expect("the request is well-formed");
    let http = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let response = http.request(request).await.expect("Prism answers");
    assert_eq!(response.status(), 422);
    let body = response.into_body().collect().await.expect("the body is complete").to_bytes();
    let text = String::from_utf8_lossy(&body);
    assert!(text.contains("runner_group_id") && text.contains("labels"), "{text}");
}

#[tokio::test]
async fn prism_rejects_a_wrong_answer() {
    let clock = ManualClock::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
    let upstream = format!("http://{}", listener.local_addr().expect("the listener is bound"));
    let path = "/repos/{owner}/{repo}/actions/runners";
    let prism = Prism::start("one", &upstream, &[path]);
    let github = client(&prism, "acme/app", pat(), &clock);
    let serving = async {
        while let Ok((stream, _)) = listener.accept().await {
            let wrong = |_: Request<Incoming>| async {
                let body = json!({"total_count": "none", "runners": [{"id": 1}]}).to_string();
                let response = Response::builder().header("content-type", "application/json");
                let response = response.body(Full::<Bytes>::new(body.into()));
                Ok::<_, Infallible>(response.expect("the response is valid"))
            };
            let io = TokioIo::new(stream);
            let _ = http1::Builder::new().serve_connection(io, service_fn(wrong)).await;
        }
    };
    tokio::select! {
        listed = github.list() => assert!(matches!(listed, Err(Fault::Unavailable(_)))),
        () = serving => panic!("the server never ends"),
    }
}
