//! The door for GitHub's webhooks, without its hinges: what a request is, decided as a value.
//!
//! [`admit`] looks at the headers alone, so that nothing is read of a body that cannot be right;
//! [`judge`] checks the signature over the raw bytes before it looks at anything in them. A
//! [`Verdict`] has the status to answer with, except for a job: that is answered only when its row
//! is durable, because GitHub never sends again what was answered well.
//!
//! Not here: sockets, merging what was said (`bullpen_core::job`), or which events GitHub sends.

mod event;
mod signature;
#[cfg(test)]
mod tests;

use bullpen_core::limits::WEBHOOK_BODY_BYTES_MAX;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap};

pub use event::{Event, JobEvent, PushEvent, RunEvent};
pub use signature::{BadSecret, Secrets, sign};

/// What was answered to a job whose row is durable, to a ping, and to what is none of ours.
pub const DONE: u16 = 204;

/// The headers of a webhook that matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebhookHead {
    /// `X-GitHub-Event`: what happened.
    pub event: Option<String>,
    /// `X-GitHub-Delivery`: the same when it is delivered again.
    pub delivery: Option<String>,
    /// `X-Hub-Signature-256`.
    pub signature: Option<String>,
    /// `Content-Type`.
    pub content_type: Option<String>,
    /// `Content-Length`.
    pub content_length: Option<u64>,
}

impl WebhookHead {
    /// Those of a request.
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

/// What a request is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A webhook of GitHub's.
    Accepted(Event),
    /// Nothing that we listen to.
    Refused(Refusal),
}

/// Why a request is not listened to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is larger than any webhook that we want.
    #[error("the body is larger than {WEBHOOK_BODY_BYTES_MAX} bytes")]
    TooLarge,
    /// It has no signature, or not one of ours.
    #[error("the signature is missing or wrong: is the secret the one at GitHub?")]
    Unsigned,
    /// It is signed, and does not say what happened.
    #[error("the header X-GitHub-Event is missing")]
    NoEvent,
    /// It is signed, and not JSON.
    #[error("the content type is not application/json: set it so at GitHub")]
    NotJson,
    /// It is signed, and not what its event is.
    #[error("the {event} event is not as expected at {place}")]
    Unreadable {
        /// Which event.
        event: &'static str,
        /// Where.
        place: String,
    },
}

impl Refusal {
    /// The HTTP status to answer with.
    pub const fn status(&self) -> u16 {
        match self {
            Self::TooLarge => 413,
            Self::Unsigned => 401,
            Self::NoEvent | Self::NotJson | Self::Unreadable { .. } => 400,
        }
    }
}

impl Verdict {
    /// Whether the request was signed with one of the secrets, readable or not.
    pub const fn is_signed(&self) -> bool {
        match self {
            Self::Refused(Refusal::TooLarge | Refusal::Unsigned) => false,
            Self::Accepted(_)
            | Self::Refused(Refusal::NoEvent | Refusal::NotJson | Refusal::Unreadable { .. }) => {
                true
            }
        }
    }

    /// The HTTP status to answer with; none for a job, which is answered when it is durable: with
    /// [`DONE`], or with a 5xx that GitHub shows as failed and can be asked to deliver again.
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

/// Whether the body is worth reading, by the headers alone. A body that says nothing of its length
/// has to be read up to [`WEBHOOK_BODY_BYTES_MAX`] and one byte.
pub fn admit(head: &WebhookHead) -> Result<(), Refusal> {
    let limit = WEBHOOK_BODY_BYTES_MAX as u64;
    if head.content_length.is_some_and(|length| length > limit) {
        return Err(Refusal::TooLarge);
    }
    // One that could never be right is not worth a body.
    if !head.signature.as_deref().is_some_and(signature::is_one) {
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
