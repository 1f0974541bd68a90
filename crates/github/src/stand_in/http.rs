//! What the stand-in's handlers read of a request besides its path, and the answers that they write.
//!
//! Not here: sockets (`server`), or routes (`rest`, `control`).

use std::collections::BTreeMap;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, FromRequestParts, OriginalUri, Path, Request};
use axum::http::header::{
    AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, IF_NONE_MATCH,
};
use axum::http::request::Parts;
use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use percent_encoding::percent_decode_str;
use ring::digest::{SHA256, digest};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The head of a request.
#[derive(Debug)]
pub(super) struct RequestHead {
    /// The path with its query, as it came.
    target: String,
    pub(super) query: BTreeMap<String, String>,
    pub(super) host: String,
    pub(super) bearer: Option<String>,
    /// The tag of what the caller knows already.
    pub(super) seen: Option<String>,
}

impl<S: Send + Sync> FromRequestParts<S> for RequestHead {
    type Rejection = StandInReply;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, StandInReply> {
        let Ok(OriginalUri(target)) = OriginalUri::from_request_parts(parts, state).await;
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let pair = |pair: &str| {
            let (key, value) = pair.split_once('=')?;
            Some((decoded(key), decoded(value)))
        };
        let query = target.query().unwrap_or_default().split('&').filter_map(pair).collect();
        let header = |name: HeaderName| text(&parts.headers, &name).map(str::to_owned);
        let bearer = text(&parts.headers, &AUTHORIZATION).and_then(|text| {
            let (scheme, token) = text.split_once(' ')?;
            let known = ["bearer", "token"].contains(&scheme.to_lowercase().as_str());
            known.then(|| token.trim().to_owned())
        });
        let host = header(HOST).unwrap_or_default();
        let seen = header(IF_NONE_MATCH);
        Ok(Self { target: target.to_string(), query, host, bearer, seen })
    }
}

impl RequestHead {
    pub(super) fn number(&self, key: &str) -> Option<u64> {
        self.query.get(key).and_then(|text| text.parse().ok())
    }

    /// The base of every address in an answer.
    pub(super) fn base(&self) -> String {
        format!("http://{}", self.host)
    }

    fn link(&self, page: u64, rel: &str) -> String {
        let (path, query) = self.target.split_once('?').unwrap_or((&self.target, ""));
        let mut pairs: Vec<String> = query
            .split('&')
            .filter(|pair| !pair.is_empty() && !pair.starts_with("page="))
            .map(str::to_owned)
            .collect();
        pairs.push(format!("page={page}"));
        format!("<{}{path}?{}>; rel=\"{rel}\"", self.base(), pairs.join("&"))
    }
}

/// A header's value, if it is text.
pub(super) fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// The parameters of a route's path. A path that does not fit them is not found, as at GitHub.
#[derive(Debug)]
pub(super) struct FromPath<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for FromPath<T> {
    type Rejection = StandInReply;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, StandInReply> {
        let read = Path::from_request_parts(parts, state).await;
        read.map(|Path(parameters)| Self(parameters)).map_err(|_| StandInReply::not_found())
    }
}

/// The JSON of a request's body.
#[derive(Debug)]
pub(super) struct FromBody<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for FromBody<T> {
    type Rejection = StandInReply;

    async fn from_request(request: Request, state: &S) -> Result<Self, StandInReply> {
        let invalid = |error: &dyn std::fmt::Display| {
            StandInReply::refusal(422, &format!("Invalid request.\n\n{error}"))
        };
        let body = Bytes::from_request(request, state).await.map_err(|error| invalid(&error))?;
        serde_json::from_slice(&body).map(Self).map_err(|error| invalid(&error))
    }
}

/// An answer.
#[derive(Debug)]
pub(super) struct StandInReply {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Option<Value>,
}

impl StandInReply {
    pub(super) fn empty(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: None }
    }

    pub(super) fn json(status: u16, body: impl Serialize) -> Self {
        let body = serde_json::to_value(body).expect("what we send has text for keys");
        Self { status, headers: Vec::new(), body: Some(body) }
    }

    /// The same with this header.
    pub(super) fn with(mut self, name: &'static str, value: String) -> Self {
        self.headers.push((name, value));
        self
    }

    /// As GitHub refuses.
    pub(super) fn refusal(status: u16, message: &str) -> Self {
        let documentation = "https://docs.github.com/rest";
        let status_text = status.to_string();
        let body = json!({
            "message": message, "documentation_url": documentation, "status": status_text,
        });
        Self { status, headers: Vec::new(), body: Some(body) }
    }

    pub(super) fn not_found() -> Self {
        Self::refusal(404, "Not Found")
    }

    /// What there is, or 404.
    pub(super) fn found(body: Option<impl Serialize>) -> Self {
        body.map_or_else(Self::not_found, |body| Self::json(200, body))
    }

    /// One page of `items`, with GitHub's links to the others and its tag, or that it is unchanged.
    pub(super) fn page(head: &RequestHead, key: &str, items: Vec<Value>) -> Self {
        let size = head.number("per_page").unwrap_or(30).clamp(1, 100);
        let page = head.number("page").unwrap_or(1).max(1);
        let total = items.len();
        let last = (total as u64).div_ceil(size).max(1);
        let skip = usize::try_from(size.saturating_mul(page - 1)).unwrap_or(usize::MAX);
        let take = usize::try_from(size).unwrap_or(usize::MAX);
        let shown: Vec<Value> = items.into_iter().skip(skip).take(take).collect();
        let body = json!({"total_count": total, key: shown});
        let tag = format!("\"{}\"", hex::encode(digest(&SHA256, body.to_string().as_bytes())));
        if head.seen.as_ref() == Some(&tag) {
            return Self::empty(304).with("etag", tag);
        }
        let reply = Self::json(200, body).with("etag", tag);
        let mut links = Vec::new();
        if page > 1 {
            links.push(head.link(page - 1, "prev"));
        }
        if page < last {
            links.push(head.link(page + 1, "next"));
            links.push(head.link(last, "last"));
        }
        if page > 1 {
            links.push(head.link(1, "first"));
        }
        if links.is_empty() { reply } else { reply.with("link", links.join(", ")) }
    }

    /// The same of a listing that is nothing but an array.
    pub(super) fn array(head: &RequestHead, items: Vec<Value>) -> Self {
        let mut reply = Self::page(head, "items", items);
        reply.body = reply.body.map(|mut body| body["items"].take());
        reply
    }
}

impl IntoResponse for StandInReply {
    fn into_response(self) -> Response {
        let body = self.body.map(|body| body.to_string()).unwrap_or_default();
        let mut response = Response::new(Body::empty());
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if !body.is_empty() {
            let kind = HeaderValue::from_static("application/json; charset=utf-8");
            response.headers_mut().insert(CONTENT_TYPE, kind);
        }
        set_headers(response.headers_mut(), self.headers);
        response.map(|_| Body::from(body))
    }
}

/// Sets these headers.
pub(super) fn set_headers(
    headers: &mut HeaderMap,
    new: impl IntoIterator<Item = (&'static str, String)>,
) {
    for (name, value) in new {
        let value = HeaderValue::try_from(value).expect("what we send fits into a header");
        headers.insert(HeaderName::from_static(name), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::escaped;

    async fn name_in(query: &str) -> String {
        let request = Request::get(format!("/?name={query}")).body(()).expect("it is an address");
        let (mut parts, ()) = request.into_parts();
        let head = RequestHead::from_request_parts(&mut parts, &()).await;
        head.expect("every head is readable").query["name"].clone()
    }

    #[tokio::test]
    async fn a_query_comes_back_as_it_was() {
        for text in ["bp-1", "a/../b?c&d=e f", "ä%", "100%25", "a+b"] {
            assert_eq!(name_in(&escaped(text)).await, text);
        }
        for broken in ["%", "%zz", "a+b"] {
            assert_eq!(name_in(broken).await, broken);
        }
    }
}
