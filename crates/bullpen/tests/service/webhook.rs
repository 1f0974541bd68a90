//! Webhooks by hand, signed or not.
//!
//! Not here: HTTP (`wire`).

use bullpen_core::mailbox::Secret;
use bullpen_github::webhook::sign;

use crate::wire::{Answer, place, talk};

/// A webhook as its headers and its body, not sent yet.
#[derive(Clone, Debug)]
pub(crate) struct Webhook {
    headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
}

impl Webhook {
    /// A webhook of this event with only a body.
    pub(crate) fn new(event: &str, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        let headers = vec![
            ("content-type", String::from("application/json")),
            ("x-github-event", event.to_owned()),
            ("content-length", body.len().to_string()),
        ];
        Self { headers, body }
    }

    pub(crate) fn header(self, name: &'static str, value: &str) -> Self {
        let mut without = self.without(name);
        without.headers.push((name, value.to_owned()));
        without
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| *known != name);
        self
    }

    pub(crate) fn signed(self, secret: &str) -> Self {
        let signature = sign(&Secret::new(secret), &self.body);
        self.header("x-hub-signature-256", &signature)
    }

    fn head(&self, url: &str, connection: &str) -> String {
        let (address, path) = place(url);
        let headers = self.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
        let headers: String = headers.collect();
        format!("POST {path} HTTP/1.1\r\nhost: {address}\r\n{connection}{headers}\r\n")
    }

    pub(crate) async fn send(&self, url: &str) -> Answer {
        let head = self.head(url, "connection: close\r\n");
        talk(place(url).0, head.as_bytes(), &self.body).await
    }

    /// Its bytes for a connection that stays open.
    pub(crate) fn kept_open(&self, url: &str) -> Vec<u8> {
        [self.head(url, "").into_bytes(), self.body.clone()].concat()
    }
}
