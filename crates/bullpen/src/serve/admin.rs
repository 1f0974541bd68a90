//! The admin listener: whether the process lives, whether it is ready, and its metrics.
//!
//! On loopback every caller may ask; elsewhere only a caller with the token.
//!
//! Not here: counting (`metrics`), or asking the service (`calls`).

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::handler::Handler;
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::{MethodRouter, any};
use axum::{Extension, Router};
use bullpen_core::mailbox::Secret;
use bullpen_github::webhook::{Secrets, sign};

use super::calls::ServiceCaller;
use super::http::{Caller, text, with};
use super::metrics;

/// What a presented token is signed over, so that comparing tokens takes the same time for all.
const CHALLENGE: &[u8] = b"admin";

/// What the handlers share.
pub(super) struct Admin {
    pub(super) service: ServiceCaller,
    /// The token that callers must present, if there is one.
    pub(super) token: Option<Secrets>,
}

/// The listener's routes.
pub(super) fn router(admin: Admin) -> Router {
    let admin = Arc::new(admin);
    Router::new()
        .route("/healthz", read_only(async || text(StatusCode::OK, "ok")))
        .route("/readyz", read_only(ready))
        .route("/metrics", read_only(all_metrics))
        .fallback(unknown_path)
        .layer(from_fn_with_state(Arc::clone(&admin), require_token))
        .with_state(admin)
}

/// A route for GET, and not for HEAD.
fn read_only<T: 'static>(handler: impl Handler<T, Arc<Admin>>) -> MethodRouter<Arc<Admin>> {
    any(refuse_method).get(handler).head(refuse_method)
}

async fn refuse_method() -> Response {
    text(StatusCode::METHOD_NOT_ALLOWED, "there is nothing to change here")
}

async fn unknown_path(method: Method) -> Response {
    if method == Method::GET {
        text(StatusCode::NOT_FOUND, "there are /healthz, /readyz and /metrics")
    } else {
        refuse_method().await
    }
}

async fn require_token(
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<Caller>,
    request: Request,
    next: Next,
) -> Response {
    if !admin.allows(request.headers()) {
        return text(StatusCode::UNAUTHORIZED, "give the admin token as a bearer");
    }
    caller.set_proven();
    next.run(request).await
}

impl Admin {
    fn allows(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else { return true };
        let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let given = given.and_then(|text| text.strip_prefix("Bearer ")).unwrap_or_default();
        token.verify(CHALLENGE, &sign(&Secret::new(given.trim()), CHALLENGE))
    }
}

async fn ready(State(admin): State<Arc<Admin>>) -> Response {
    match admin.service.ready().await {
        Ok(None) => text(StatusCode::OK, "ready"),
        Ok(Some(error)) => text(StatusCode::OK, &format!("ready, and judges no ages: {error}")),
        Err(reason) => text(StatusCode::SERVICE_UNAVAILABLE, &reason.to_string()),
    }
}

async fn all_metrics(State(admin): State<Arc<Admin>>) -> Response {
    match admin.service.metrics().await {
        Some(metrics) => with(StatusCode::OK, Some(metrics::CONTENT_TYPE), metrics),
        None => text(StatusCode::SERVICE_UNAVAILABLE, "this process ends"),
    }
}
