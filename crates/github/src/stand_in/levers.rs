//! The ways in which the stand-in can be made to misbehave.
//!
//! Levers work on GitHub's interface and on the runners' alike, never on a test's own requests.
//!
//! Not here: where they take effect (`admission`).

use serde::{Deserialize, Serialize};

/// All levers. By default none is pulled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Levers {
    /// GitHub is down.
    pub outage: Option<Outage>,
    /// Every credential is refused, as if it had been revoked.
    pub refuse_credentials: bool,
    /// Every call is limited.
    pub rate_limit: Option<RateLimit>,
    /// Every bearer may use so many points in a minute: one for a read, five for a write.
    pub points_per_minute: Option<u32>,
    /// Public repositories; all others are private.
    pub public_repositories: Vec<String>,
    /// Its Apps are public.
    pub public_apps: bool,
    /// Every organisation has a webhook of its own about everything.
    pub organization_hooks: bool,
    /// Its Apps were removed and installed anew, under this id.
    pub installed_anew: Option<u64>,
    /// What happens to webhooks.
    pub webhooks: WebhookLevers,
    /// Every answer takes this long.
    pub slow_ms: u64,
    /// So many calls take effect, and their answers are lost.
    pub lose_answers: u32,
    /// Every answer is dated so many seconds earlier, as if the caller's clock were ahead.
    pub dated_earlier_s: i64,
}

/// What happens to webhooks. Those that are already on their way are not reached by `lose`, `double`
/// and `delay_ms`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WebhookLevers {
    /// So many are never sent and never logged.
    pub lose: u32,
    /// Each is sent twice, under one id.
    pub double: bool,
    /// Each is sent this much later.
    pub delay_ms: u64,
    /// None is sent until this is let go.
    pub hold: bool,
    /// Of those that are due the newest is sent first.
    pub newest_first: bool,
}

/// How GitHub is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outage {
    /// It answers 503.
    Unavailable,
    /// It closes the connection.
    Drop,
}

/// Which rate limit is hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RateLimit {
    /// The hour's budget: 403, no calls remaining until the reset.
    Primary,
    /// Too much at once: 429 with `Retry-After` in seconds.
    Secondary {
        /// How long to wait.
        retry_after: u64,
    },
}
