//! The admin listener: whether the process lives, whether it is of use, and what it has counted.
//!
//! On loopback whoever can reach it may ask; elsewhere only who has the token.
//!
//! Not here: counting (`metrics`).

use std::time::Duration;

use bullpen_core::mailbox::Secret;
use bullpen_core::parameters::COLLECTION;
use bullpen_core::ports::{Clock as _, Ledger as _, Ports};
use bullpen_engine::jobs::Service;
use bullpen_github::webhook::{Secrets, sign};
use hyper::body::Incoming;
use hyper::header::AUTHORIZATION;
use hyper::{Method, Request, StatusCode};

use super::http::{Answer, Caller, text, with};
use super::metrics::{self, Metrics};

/// A ledger that takes longer than this is of no use to a job that waits.
const LEDGER_WITHIN: Duration = Duration::from_secs(3);
/// What a presented token is signed over, so that comparing tokens takes the same time for all.
const CHALLENGE: &[u8] = b"admin";

/// The listener's answers.
pub(super) struct Admin<'s, 'a, P, J> {
    pub(super) service: &'s Service<'a, P, J>,
    pub(super) metrics: &'s Metrics,
    /// What is asked for, if anything.
    pub(super) token: Option<Secrets>,
}

impl<P: Ports, J> Admin<'_, '_, P, J> {
    /// Answers one request.
    pub(super) async fn answer(&self, request: Request<Incoming>, caller: &Caller<'_>) -> Answer {
        if !self.may(&request) {
            return text(StatusCode::UNAUTHORIZED, "give the admin token as a bearer");
        }
        caller.is_proven();
        if request.method() != Method::GET {
            return text(StatusCode::METHOD_NOT_ALLOWED, "there is nothing to change here");
        }
        match request.uri().path() {
            "/healthz" => text(StatusCode::OK, "ok"),
            "/readyz" => self.ready().await,
            "/metrics" => with(
                StatusCode::OK,
                Some(metrics::KIND),
                self.metrics.text(self.service.stack).await,
            ),
            _ => text(StatusCode::NOT_FOUND, "there are /healthz, /readyz and /metrics"),
        }
    }

    fn may(&self, request: &Request<Incoming>) -> bool {
        let Some(token) = &self.token else { return true };
        let given = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let given = given.and_then(|text| text.strip_prefix("Bearer ")).unwrap_or_default();
        token.verify(CHALLENGE, &sign(&Secret::new(given.trim()), CHALLENGE))
    }

    /// Whether webhooks should be sent here: not to one that ends, or that could store nothing.
    async fn ready(&self) -> Answer {
        if !self.service.takes() {
            return text(StatusCode::SERVICE_UNAVAILABLE, "this process drains");
        }
        let ports = &self.service.stack.ports;
        tokio::select! {
            biased;
            read = ports.ledger().documents(COLLECTION) => match read {
                Ok(_) => text(StatusCode::OK, "ready"),
                Err(fault) => {
                    text(StatusCode::SERVICE_UNAVAILABLE, &format!("the ledger: {fault}"))
                }
            },
            () = ports.clock().sleep(LEDGER_WITHIN) => {
                text(StatusCode::SERVICE_UNAVAILABLE, "the ledger does not answer")
            }
        }
    }
}
