//! A request as the stand-in reads it, and an answer as it writes it.
//!
//! Not here: sockets (`server`).

use std::collections::BTreeMap;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, IF_NONE_MATCH, USER_AGENT};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A request.
#[derive(Debug)]
pub(super) struct StandInRequest {
    pub(super) method: Method,
    /// The path with its query, as it came.
    pub(super) target: String,
    pub(super) path: Vec<String>,
    pub(super) query: BTreeMap<String, String>,
    pub(super) host: String,
    pub(super) bearer: Option<String>,
    pub(super) has_agent: bool,
    pub(super) is_json: bool,
    pub(super) version: Option<String>,
    /// The tag of what the caller knows already.
    pub(super) seen: Option<String>,
    pub(super) body: Bytes,
}

impl StandInRequest {
    pub(super) fn new(parts: &Parts, body: Bytes) -> Self {
        let header = |name: &str| {
            parts.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
        };
        let bearer = header(AUTHORIZATION.as_str()).and_then(|text| {
            let (scheme, token) = text.split_once(' ')?;
            let known = ["bearer", "token"].contains(&scheme.to_lowercase().as_str());
            known.then(|| token.trim().to_owned())
        });
        let path = parts.uri.path().split('/').filter(|part| !part.is_empty());
        let query = parts.uri.query().unwrap_or_default().split('&');
        let pair = |pair: &str| {
            let (key, value) = pair.split_once('=')?;
            Some((unescaped(key), unescaped(value)))
        };
        let content = header(CONTENT_TYPE.as_str()).unwrap_or_default();
        Self {
            method: parts.method.clone(),
            target: parts.uri.to_string(),
            path: path.map(unescaped).collect(),
            query: query.filter_map(pair).collect(),
            host: header(HOST.as_str()).unwrap_or_default(),
            bearer,
            has_agent: parts.headers.contains_key(USER_AGENT),
            is_json: content.starts_with("application/json"),
            version: header("x-github-api-version"),
            seen: header(IF_NONE_MATCH.as_str()),
            body,
        }
    }

    pub(super) fn segments(&self) -> Vec<&str> {
        self.path.iter().map(String::as_str).collect()
    }

    pub(super) fn number(&self, key: &str) -> Option<u64> {
        self.query.get(key).and_then(|text| text.parse().ok())
    }

    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, StandInReply> {
        serde_json::from_slice(&self.body)
            .map_err(|error| StandInReply::refusal(422, &format!("Invalid request.\n\n{error}")))
    }
}

/// An answer.
#[derive(Debug)]
pub(super) struct StandInReply {
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, String)>,
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

    /// One page of `items`, with GitHub's links to the others.
    pub(super) fn page(ask: &StandInRequest, key: &str, items: Vec<Value>) -> Self {
        let size = ask.number("per_page").unwrap_or(30).clamp(1, 100);
        let page = ask.number("page").unwrap_or(1).max(1);
        let total = items.len();
        let last = (total as u64).div_ceil(size).max(1);
        let skip = usize::try_from(size.saturating_mul(page - 1)).unwrap_or(usize::MAX);
        let take = usize::try_from(size).unwrap_or(usize::MAX);
        let shown: Vec<Value> = items.into_iter().skip(skip).take(take).collect();
        let mut reply = Self::json(200, json!({"total_count": total, key: shown}));
        let mut links = Vec::new();
        if page > 1 {
            links.push(link(ask, page - 1, "prev"));
        }
        if page < last {
            links.push(link(ask, page + 1, "next"));
            links.push(link(ask, last, "last"));
        }
        if page > 1 {
            links.push(link(ask, 1, "first"));
        }
        if !links.is_empty() {
            reply.headers.push(("link", links.join(", ")));
        }
        reply
    }

    /// The same of a listing that is nothing but an array.
    pub(super) fn array(ask: &StandInRequest, items: Vec<Value>) -> Self {
        let mut reply = Self::page(ask, "items", items);
        reply.body = reply.body.map(|mut body| body["items"].take());
        reply
    }

    pub(super) fn response(self) -> Response<Full<Bytes>> {
        let body = self.body.map(|body| body.to_string()).unwrap_or_default();
        let mut response = Response::builder().status(self.status);
        if !body.is_empty() {
            response = response.header(CONTENT_TYPE, "application/json; charset=utf-8");
        }
        for (name, value) in self.headers {
            response = response.header(name, value);
        }
        response.body(Full::new(body.into())).unwrap_or_else(|_| {
            let mut response = Response::new(Full::default());
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            response
        })
    }
}

fn link(ask: &StandInRequest, page: u64, rel: &str) -> String {
    let (path, query) = ask.target.split_once('?').unwrap_or((&ask.target, ""));
    let mut pairs: Vec<String> = query
        .split('&')
        .filter(|pair| !pair.is_empty() && !pair.starts_with("page="))
        .map(str::to_owned)
        .collect();
    pairs.push(format!("page={page}"));
    format!("<http://{}{path}?{}>; rel=\"{rel}\"", ask.host, pairs.join("&"))
}

/// Text out of a path or a query.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let escaped = (*first == b'%').then(|| after.get(..2)).flatten();
        let byte = escaped
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        if let Some(byte) = byte {
            bytes.push(byte);
            rest = &after[2..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::escaped;

    #[test]
    fn text_comes_back_as_it_was() {
        for text in ["bp-1", "a/../b?c&d=e f", "ä%", "100%25"] {
            assert_eq!(unescaped(&escaped(text)), text);
        }
        assert_eq!(unescaped("%"), "%");
        assert_eq!(unescaped("%zz"), "%zz");
    }
}
