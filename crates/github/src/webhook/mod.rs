//! Decides whether a request is a webhook of GitHub's, and parses it. Pure.
//!
//! [`admit`] checks the headers, before the service reads the body. [`judge`] verifies the
//! signature over the raw bytes before it parses them. A [`Verdict`] has the status of the answer,
//! except for a job: the service answers only after its row is durable, because GitHub never
//! redelivers a webhook that got a 2xx.
//!
//! Not here: sockets (`bullpen`), and merging the facts of a job (`bullpen_core::job`).

mod event;
mod signature;
#[cfg(test)]
mod tests;

use bullpen_core::limits::WEBHOOK_BODY_BYTES_MAX;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap};

pub use event::{Event, JobEvent, PushEvent, RunEvent};
pub use signature::{BadSecret, Secrets, sign};

/// The status for a job whose row is durable, for a ping, and for an event that we do not use.
pub const DONE: u16 = 204;

/// The headers of a webhook that we read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebhookHead {
    /// `X-GitHub-Event`: the event's name.
    pub event: Option<String>,
    /// `X-GitHub-Delivery`: the delivery's id; a redelivery has the same one.
    pub delivery: Option<String>,
    /// `X-Hub-Signature-256`.
    pub signature: Option<String>,
    /// `Content-Type`.
    pub content_type: Option<String>,
    /// `Content-Length`.
    pub content_length: Option<u64>,
}

impl WebhookHead {
    /// Reads the headers from a request.
    pub fn of(headers: &HeaderMap) -> Self {
        let text =
            |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        Self {
            event: text("x-github-event"),
            delivery: text("x-github-delivery"),
            signature: text("x-hub-signature-256"),
            content_type: text(CONTENT_TYPE.as_str()),
            content_length: text(CONTENT_LENGTH.as_str()).and_then(|text| text.parse().ok()),
        }
    }
}

/// The decision about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The request is a webhook of GitHub's.
    Accepted(Event),
    /// The request is not a valid webhook.
    Refused(Refusal),
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The body is larger than any webhook that we use.
    #[error("the body is larger than {WEBHOOK_BODY_BYTES_MAX} bytes")]
    TooLarge,
    /// The signature is missing, or was not made with one of our secrets.
    #[error("the signature is missing or wrong: compare the secret with the webhook's at GitHub")]
    Unsigned,
    /// The request is signed, and names no event.
    #[error("the header X-GitHub-Event is missing")]
    NoEvent,
    /// The request is signed, and its content type is not JSON.
    #[error("the content type is not application/json: set it in the webhook's settings at GitHub")]
    NotJson,
    /// The request is signed, and its body does not match its event.
    #[error("the {event} event is not as expected at {place}")]
    Unreadable {
        /// The event's name.
        event: &'static str,
        /// The position in the body.
        place: String,
    },
}

impl Refusal {
    /// The HTTP status of the answer.
    pub const fn status(&self) -> u16 {
        match self {
            Self::TooLarge => 413,
            Self::Unsigned => 401,
            Self::NoEvent | Self::NotJson | Self::Unreadable { .. } => 400,
        }
    }
}

impl Verdict {
    /// Whether the request has a valid signature, even if its content is unreadable.
    pub const fn is_signed(&self) -> bool {
        match self {
            Self::Refused(Refusal::TooLarge | Refusal::Unsigned) => false,
            Self::Accepted(_)
            | Self::Refused(Refusal::NoEvent | Refusal::NotJson | Refusal::Unreadable { .. }) => {
                true
            }
        }
    }

    /// The HTTP status of the answer; `None` for a job. The service answers a job with [`DONE`]
    /// when its row is durable, or with a 5xx: GitHub then lists the delivery as failed, and the
    /// service can request a redelivery.
    pub const fn status(&self) -> Option<u16> {
        match self {
            Self::Accepted(Event::Job(_)) => None,
            Self::Accepted(Event::Run(_) | Event::Ping | Event::Push(_) | Event::Other(_)) => {
                Some(DONE)
            }
            Self::Refused(refusal) => Some(refusal.status()),
        }
    }
}

/// Decides by the headers whether to read the body. If the length is unknown, the caller reads at
/// most [`WEBHOOK_BODY_BYTES_MAX`] and one byte.
pub fn admit(head: &WebhookHead) -> Result<(), Refusal> {
    let limit = WEBHOOK_BODY_BYTES_MAX as u64;
    if head.content_length.is_some_and(|length| length > limit) {
        return Err(Refusal::TooLarge);
    }
    // A malformed signature matches no body, so the body need not be read.
    if !head.signature.as_deref().is_some_and(signature::is_well_formed) {
        return Err(Refusal::Unsigned);
    }
    Ok(())
}

/// Judges a request by its headers and the raw bytes of its body.
pub fn judge(head: &WebhookHead, body: &[u8], secrets: &Secrets) -> Verdict {
    match accepted(head, body, secrets) {
        Ok(event) => Verdict::Accepted(event),
        Err(refusal) => Verdict::Refused(refusal),
    }
}

fn accepted(head: &WebhookHead, body: &[u8], secrets: &Secrets) -> Result<Event, Refusal> {
    admit(head)?;
    if body.len() > WEBHOOK_BODY_BYTES_MAX {
        return Err(Refusal::TooLarge);
    }
    let signature = head.signature.as_deref().unwrap_or_default();
    if !secrets.verify(body, signature) {
        return Err(Refusal::Unsigned);
    }
    let name = head.event.as_deref().ok_or(Refusal::NoEvent)?;
    let kind = head.content_type.as_deref().unwrap_or_default();
    let is_json = kind
        .split(';')
        .next()
        .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"));
    if !is_json {
        return Err(Refusal::NotJson);
    }
    event::parse(name, head.delivery.as_deref(), body)
}
