//! The test setup: a stand-in, a clock, clients, and plain HTTP calls.
//!
//! Not here: tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use bullpen_core::mailbox::Secret;
use bullpen_core::ports::RunnerSpec;
use bullpen_github::stand_in::protocol::{JobOrder, JobView, Register, Registered};
use bullpen_github::stand_in::{KnownApp, Options, StandIn};
use bullpen_github::{App, AppKey, GitHub, Login, Scope, Settings};
use bullpen_sim::clock::ManualClock;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

pub(crate) const APP_ID: &str = "Iv1.stand-in";
pub(crate) const TOKEN: &str = "ghp_for-tests";
pub(crate) const PREFIX: &str = "bp-";
const APP_KEY: &str = include_str!("../../fixtures/test-app-key.pem");

/// A fresh stand-in with nothing but an App, installed on `acme`.
pub(crate) struct World {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) stand_in: StandIn,
    http: Client<HttpConnector, Full<Bytes>>,
}

pub(crate) fn key() -> AppKey {
    AppKey::from_pem(APP_KEY).expect("the fixture is a key")
}

pub(crate) fn app() -> Login {
    Login::App(App { id: APP_ID.to_owned(), key: key(), installation: None })
}

pub(crate) fn pat() -> Login {
    Login::Token(Secret::new(TOKEN))
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Options)) -> Self {
        let clock = ManualClock::new();
        let app = KnownApp {
            id: APP_ID.to_owned(),
            public_key: key().public_key(),
            installations: BTreeMap::from([(7, "acme".to_owned())]),
        };
        let mut options = Options { app: Some(app), ..Options::new(Secret::new(TOKEN)) };
        change(&mut options);
        let address = "127.0.0.1:0".parse().expect("the address is valid");
        let stand_in = StandIn::start(address, options, Arc::clone(&clock)).await;
        let http = Client::builder(TokioExecutor::new()).build_http();
        Self { clock, stand_in: stand_in.expect("loopback has free ports"), http }
    }

    pub(crate) fn settings(&self, scope: &str, login: Login) -> Settings {
        let scope = Scope::parse(scope).expect("tests name valid scopes");
        Settings { base_url: self.stand_in.url(), ..Settings::new(scope, login, PREFIX) }
    }

    pub(crate) fn client(&self, scope: &str, login: Login) -> GitHub<ManualClock> {
        GitHub::new(&self.settings(scope, login), Arc::clone(&self.clock))
            .expect("the settings are valid")
    }

    /// Sends a request; returns the answer's status, headers and body.
    pub(crate) async fn raw(
        &self,
        request: hyper::http::request::Builder,
        path: &str,
        body: Option<Value>,
    ) -> (u16, hyper::HeaderMap, Value) {
        let mut request = request.uri(format!("{}{path}", self.stand_in.url()));
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let request = request.body(Full::new(body.into())).expect("tests build valid requests");
        let response = self.http.request(request).await.expect("the stand-in answers");
        let (parts, body) = response.into_parts();
        let body = body.collect().await.expect("the answer is whole").to_bytes();
        let body = if body.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&body).expect("every body is JSON")
        };
        (parts.status.as_u16(), parts.headers, body)
    }

    /// Calls the runners' protocol, or the stand-in's interface for tests.
    pub(crate) async fn ask(
        &self,
        method: &str,
        path: &str,
        session: &str,
        body: Option<Value>,
    ) -> (u16, Value) {
        let request = Request::builder().method(method);
        let request = request.header("authorization", format!("Bearer {session}"));
        let (status, _, body) = self.raw(request, &format!("/_stand-in{path}"), body).await;
        (status, body)
    }

    /// Calls GitHub's REST interface without the client.
    pub(crate) async fn rest(
        &self,
        method: &str,
        path: &str,
        body: Option<Value>,
    ) -> (u16, hyper::HeaderMap, Value) {
        let request = Request::builder().method(method).header("user-agent", "test");
        let request = request.header("authorization", format!("Bearer {TOKEN}"));
        self.raw(request, path, body).await
    }

    pub(crate) async fn register(&self, request: &Register) -> Result<Registered, u16> {
        let body = serde_json::to_value(request).expect("the request serializes");
        match self.ask("POST", "/runners/register", "", Some(body)).await {
            (201, body) => Ok(serde_json::from_value(body).expect("the answer is a Registered")),
            (status, _) => Err(status),
        }
    }

    /// Registers a runner with these labels by a registration token of its scope.
    pub(crate) async fn runner(&self, scope: &str, name: &str, labels: &[&str]) -> Registered {
        let token =
            self.client(scope, pat()).registration_token().await.expect("the stand-in answers");
        let request = Register {
            token: Some(token.token),
            name: name.to_owned(),
            labels: labels.iter().map(|&label| label.to_owned()).collect(),
            ..Register::default()
        };
        self.register(&request).await.expect("the token is valid")
    }

    pub(crate) async fn message(&self, runner: &Registered, wait: u64) -> (u16, Value) {
        let path = format!("/runners/{}/message?wait={wait}", runner.runner_id);
        self.ask("GET", &path, runner.session.reveal(), None).await
    }

    pub(crate) async fn started(&self, runner: &Registered, job: u64) -> u16 {
        let path = format!("/runners/{}/jobs/{job}/started", runner.runner_id);
        self.ask("POST", &path, runner.session.reveal(), None).await.0
    }

    pub(crate) async fn completed(&self, runner: &Registered, job: u64, how: &str) -> u16 {
        let path = format!("/runners/{}/jobs/{job}/completed", runner.runner_id);
        let body = json!({"conclusion": how});
        self.ask("POST", &path, runner.session.reveal(), Some(body)).await.0
    }

    pub(crate) fn job(&self, labels: &[&str]) -> JobView {
        self.stand_in.submit(order(labels))
    }
}

pub(crate) fn order(labels: &[&str]) -> JobOrder {
    JobOrder {
        repository: "acme/app".to_owned(),
        labels: labels.iter().map(|&label| label.to_owned()).collect(),
        ..JobOrder::default()
    }
}

pub(crate) fn spec(name: &str, ephemeral: bool) -> RunnerSpec {
    let labels = vec!["self-hosted".to_owned()];
    RunnerSpec { name: name.into(), labels, group: None, ephemeral }
}
