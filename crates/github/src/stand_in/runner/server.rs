//! The way to the stand-in server: one request at a time, each with a time limit by the given clock.
//!
//! Not here: when it is asked again.

use std::error::Error;
use std::iter::successors;
use std::pin::pin;
use std::time::Duration;

use bullpen_core::mailbox::Secret;
use bullpen_core::ports::Clock;
use futures_util::future::{Either, select};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::{Method, Request, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Serialize;

/// A message with a script in it is far smaller.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The server, and the client that asks it.
pub(super) struct Server<'a, C> {
    http: Client<HttpConnector, Full<Bytes>>,
    base: String,
    clock: &'a C,
}

/// What it answered.
pub(super) struct ServerAnswer {
    pub(super) status: u16,
    pub(super) body: Bytes,
    /// In the official program's words.
    words: String,
}

/// Why there is nothing to go by, in the official program's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerTrouble(pub(super) String);

impl ServerAnswer {
    /// The answer, unless the server is in trouble and may give another one later.
    pub(super) fn settled(self) -> Result<Self, ServerTrouble> {
        if self.status >= 500 || self.status == 429 {
            Err(ServerTrouble(self.words))
        } else {
            Ok(self)
        }
    }

    pub(super) fn words(self) -> String {
        self.words
    }
}

impl<'a, C: Clock> Server<'a, C> {
    /// The one whose protocol is under `base`.
    pub(super) fn new(base: &str, clock: &'a C) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let http = Client::builder(TokioExecutor::new()).build(connector);
        Self { http, base: base.trim_end_matches('/').to_owned(), clock }
    }

    pub(super) fn clock(&self) -> &'a C {
        self.clock
    }

    /// A request without a body.
    pub(super) async fn ask(
        &self,
        method: Method,
        path: &str,
        session: &Secret,
        within: Duration,
    ) -> Result<ServerAnswer, ServerTrouble> {
        self.send(method, path, Some(session), Bytes::new(), within).await
    }

    /// A request with a body.
    pub(super) async fn post(
        &self,
        path: &str,
        session: Option<&Secret>,
        body: &impl Serialize,
        within: Duration,
    ) -> Result<ServerAnswer, ServerTrouble> {
        let body = serde_json::to_vec(body).map_err(|error| ServerTrouble(error.to_string()))?;
        self.send(Method::POST, path, session, body.into(), within).await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        session: Option<&Secret>,
        body: Bytes,
        within: Duration,
    ) -> Result<ServerAnswer, ServerTrouble> {
        let url = format!("{}{path}", self.base);
        let mut request = Request::builder().method(&method).uri(&url);
        if let Some(session) = session {
            request = request.header(AUTHORIZATION, format!("Bearer {}", session.reveal()));
        }
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let request =
            request.body(Full::new(body)).map_err(|error| ServerTrouble(chain(&error)))?;
        let exchange = async {
            let response = self.http.request(request).await.map_err(|error| chain(&error))?;
            let (parts, body) = response.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|error| chain(&*error))?.to_bytes();
            let words = format!("Http response code: {} from '{method} {url}'", word(parts.status));
            Ok(ServerAnswer { status: parts.status.as_u16(), body, words })
        };
        match select(pin!(exchange), pin!(self.clock.sleep(within))).await {
            Either::Left((answer, _)) => answer.map_err(ServerTrouble),
            Either::Right(_) => Err(ServerTrouble(format!(
                "The HTTP request timed out after {} s.",
                within.as_secs()
            ))),
        }
    }
}

/// `ServiceUnavailable`, as the official program names it.
fn word(status: StatusCode) -> String {
    status
        .canonical_reason()
        .map_or_else(|| status.as_u16().to_string(), |reason| reason.replace(' ', ""))
}

/// An error with all its causes.
fn chain(error: &(dyn Error + 'static)) -> String {
    let all = successors(Some(error), |&error| error.source());
    all.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
