//! The instance's metadata service (version 2, with a token): this instance's id, and the notices
//! that EC2 will take it away.
//!
//! The endpoint is `AWS_EC2_METADATA_SERVICE_ENDPOINT`, or the link-local address.
//!
//! Not here: credentials and region, which the SDK reads there by itself.

use std::time::Duration;

use aws_config::imds::Client;
use aws_config::imds::client::error::ImdsError;
use aws_config::provider_config::ProviderConfig;
use aws_smithy_http_client::Builder;
use bullpen_core::ports::Clock;
use futures_util::{Stream, stream};
use serde::Deserialize;

/// The time between two looks for notices. EC2 announces an interruption two minutes ahead.
const LOOK: Duration = Duration::from_secs(5);
/// The wait before another request for the instance's id.
const RETRY: Duration = Duration::from_secs(1);
/// The most bytes that are kept of a notice without the documented form.
const NOTICE_BYTES_MAX: usize = 200;

const INSTANCE_ID: &str = "/latest/meta-data/instance-id";

/// A kind of notice: its path, and how to parse it.
struct Kind {
    path: &'static str,
    parse: fn(&str) -> Option<String>,
    name: &'static str,
}

/// The kinds of notices, the urgent one first.
const KINDS: [Kind; 2] = [
    Kind {
        path: "/latest/meta-data/spot/instance-action",
        parse: action,
        name: "spot interruption",
    },
    Kind {
        path: "/latest/meta-data/events/recommendations/rebalance",
        parse: recommendation,
        name: "rebalance recommendation",
    },
];

/// The metadata service of this instance.
#[derive(Clone, Debug)]
pub struct Metadata {
    client: Client,
}

impl Metadata {
    /// The metadata service of the machine that runs this process.
    #[expect(clippy::new_without_default, reason = "a default would not name the machine it reads")]
    pub fn new() -> Self {
        // Without TLS: the address is link-local.
        let config = ProviderConfig::without_region().with_http_client(Builder::new().build_http());
        Self { client: Client::builder().configure(&config).build() }
    }

    /// This instance's id. It retries without end: an agent without the id has no mailbox, and the
    /// watchdog powers the machine off.
    pub async fn instance<C: Clock>(&self, clock: &C) -> String {
        loop {
            match self.client.get(INSTANCE_ID).await {
                Ok(id) => return String::from(id),
                Err(error) => {
                    let error = aws_smithy_types::error::display::DisplayErrorContext(error);
                    tracing::warn!(%error, "instance metadata did not answer; retrying");
                }
            }
            clock.sleep(RETRY).await;
        }
    }

    /// Every notice, once, for as long as the caller polls the stream.
    pub fn notices<C: Clock>(&self, clock: &C) -> impl Stream<Item = String> + Send {
        let seen = KINDS.map(|_| None);
        stream::unfold(seen, async move |mut seen: [Option<String>; KINDS.len()]| {
            loop {
                for (which, kind) in KINDS.iter().enumerate() {
                    let found = self.item(kind.path).await;
                    if let Some(text) = found.filter(|text| seen[which].as_ref() != Some(text)) {
                        let reason = reason(kind, &text);
                        seen[which] = Some(text);
                        return Some((reason, seen));
                    }
                }
                clock.sleep(LOOK).await;
            }
        })
    }

    /// An item, if it exists. The next look repeats a request that got no answer.
    async fn item(&self, path: &str) -> Option<String> {
        match self.client.get(path).await {
            Ok(text) => Some(String::from(text)),
            Err(ImdsError::ErrorResponse(answer)) if answer.response().status().as_u16() == 404 => {
                None
            }
            Err(error) => {
                tracing::debug!(%error, path, "instance metadata did not answer");
                None
            }
        }
    }
}

/// A notice in our words, or its beginning verbatim if it does not have the documented form.
fn reason(kind: &Kind, text: &str) -> String {
    let detail = (kind.parse)(text).unwrap_or_else(|| {
        let end = text.floor_char_boundary(NOTICE_BYTES_MAX);
        text[..end].to_owned()
    });
    format!("{}: {detail}", kind.name)
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
    fn documented_notices_are_parsed() {
        let [spot, rebalance] = &KINDS;
        let notice = r#"{"action": "terminate", "time": "2017-09-18T08:22:00Z"}"#;
        assert_eq!(reason(spot, notice), "spot interruption: terminate at 2017-09-18T08:22:00Z");
        let notice = r#"{"noticeTime": "2020-10-27T08:22:00Z"}"#;
        let expected = "rebalance recommendation: noticed at 2020-10-27T08:22:00Z";
        assert_eq!(reason(rebalance, notice), expected);
    }

    #[test]
    fn an_undocumented_notice_is_kept_verbatim_and_cut() {
        let [spot, _] = &KINDS;
        let notice = "ä".repeat(NOTICE_BYTES_MAX);
        let cut = reason(spot, &notice);
        assert!(cut.starts_with("spot interruption: ä") && cut.len() < notice.len(), "{cut}");
    }
}
