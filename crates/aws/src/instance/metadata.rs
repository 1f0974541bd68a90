//! The instance's metadata (version 2, with a token): which instance this is, and the notices that it
//! will be taken away.
//!
//! The endpoint is `AWS_EC2_METADATA_SERVICE_ENDPOINT`'s, or the link-local address.
//!
//! Not here: credentials and region, which the SDK finds there by itself.

use std::time::Duration;

use aws_config::imds::Client;
use aws_config::imds::client::error::ImdsError;
use aws_config::provider_config::ProviderConfig;
use aws_smithy_http_client::Builder;
use bullpen_core::ports::Clock;
use futures_util::{Stream, stream};
use serde::Deserialize;

/// How often notices are looked for. An interruption comes two minutes ahead.
const LOOK: Duration = Duration::from_secs(5);
/// The wait before the instance's id is asked for again.
const RETRY: Duration = Duration::from_secs(1);
/// Bytes of a notice that is not as it is documented.
const NOTICE_BYTES_MAX: usize = 200;

const INSTANCE_ID: &str = "/latest/meta-data/instance-id";

/// A kind of notice: where it is, and what it says in our words.
struct Kind {
    path: &'static str,
    says: fn(&str) -> Option<String>,
    name: &'static str,
}

/// What may be there, the urgent first.
const KINDS: [Kind; 2] = [
    Kind {
        path: "/latest/meta-data/spot/instance-action",
        says: action,
        name: "spot interruption",
    },
    Kind {
        path: "/latest/meta-data/events/recommendations/rebalance",
        says: recommendation,
        name: "rebalance recommendation",
    },
];

/// What the service says of this instance.
#[derive(Clone, Debug)]
pub struct Metadata {
    client: Client,
}

impl Metadata {
    /// The service of the machine this process is on.
    #[expect(clippy::new_without_default, reason = "an instance by default would be one by chance")]
    pub fn new() -> Self {
        // Never over TLS: the address is link-local.
        let config = ProviderConfig::without_region().with_http_client(Builder::new().build_http());
        Self { client: Client::builder().configure(&config).build() }
    }

    /// This instance's id, asked for until it is answered: an agent without it has no mailbox, and
    /// the watchdog is the bound.
    pub async fn instance<C: Clock>(&self, clock: &C) -> String {
        loop {
            match self.client.get(INSTANCE_ID).await {
                Ok(id) => return String::from(id),
                Err(error) => {
                    let error = aws_smithy_types::error::display::DisplayErrorContext(error);
                    tracing::warn!(%error, "the instance's metadata does not answer; once more");
                }
            }
            clock.sleep(RETRY).await;
        }
    }

    /// Every notice, once, for as long as somebody listens.
    pub fn notices<C: Clock>(&self, clock: &C) -> impl Stream<Item = String> + Send {
        let told = KINDS.map(|_| None);
        stream::unfold(told, async move |mut told: [Option<String>; KINDS.len()]| {
            loop {
                for (which, kind) in KINDS.iter().enumerate() {
                    let found = self.item(kind.path).await;
                    if let Some(text) = found.filter(|text| told[which].as_ref() != Some(text)) {
                        let reason = reason(kind, &text);
                        told[which] = Some(text);
                        return Some((reason, told));
                    }
                }
                clock.sleep(LOOK).await;
            }
        })
    }

    /// An item, if it is there. A service that does not answer is asked again soon enough.
    async fn item(&self, path: &str) -> Option<String> {
        match self.client.get(path).await {
            Ok(text) => Some(String::from(text)),
            Err(ImdsError::ErrorResponse(answer)) if answer.response().status().as_u16() == 404 => {
                None
            }
            Err(error) => {
                tracing::debug!(%error, path, "the instance's metadata does not answer");
                None
            }
        }
    }
}

/// A notice in our words; one that is not as documented in its own.
fn reason(kind: &Kind, text: &str) -> String {
    let said = (kind.says)(text).unwrap_or_else(|| {
        let end = text.floor_char_boundary(NOTICE_BYTES_MAX);
        text[..end].to_owned()
    });
    format!("{}: {said}", kind.name)
}

fn action(text: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Notice {
        action: String,
        time: String,
    }
    let Notice { action, time } = serde_json::from_str(text).ok()?;
    Some(format!("{action} at {time}"))
}

fn recommendation(text: &str) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Notice {
        notice_time: String,
    }
    let Notice { notice_time } = serde_json::from_str(text).ok()?;
    Some(format!("noticed at {notice_time}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_are_read_as_they_are_documented() {
        let [spot, rebalance] = &KINDS;
        let notice = r#"{"action": "terminate", "time": "2017-09-18T08:22:00Z"}"#;
        assert_eq!(reason(spot, notice), "spot interruption: terminate at 2017-09-18T08:22:00Z");
        let notice = r#"{"noticeTime": "2020-10-27T08:22:00Z"}"#;
        let said = "rebalance recommendation: noticed at 2020-10-27T08:22:00Z";
        assert_eq!(reason(rebalance, notice), said);
    }

    #[test]
    fn a_notice_of_another_kind_is_still_a_notice() {
        let [spot, _] = &KINDS;
        let strange = "ä".repeat(NOTICE_BYTES_MAX);
        let said = reason(spot, &strange);
        assert!(said.starts_with("spot interruption: ä") && said.len() < strange.len(), "{said}");
    }
}
