//! The script that a machine boots with.
//!
//! Not here: what the agent is told in it (`bullpen_agent::machine::UserData`).

use std::time::Duration;

/// Where something is fetched from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// `https://…` or `s3://bucket/key`.
    pub url: String,
    /// Its SHA-256, in hexadecimal.
    pub sha256: String,
}

/// What the agent is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// In the script itself.
    Inline(String),
    /// Somewhere else.
    Fetch(Fetch),
}

/// What the script does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootPlan {
    /// When the machine ends at the latest, after each boot.
    pub watchdog: Duration,
    /// Where the agent is, if not in the image.
    pub agent: Option<Fetch>,
    /// The user that jobs run as.
    pub user: Option<String>,
    /// Whether it may become root.
    pub sudo: bool,
    /// What the agent is told.
    pub payload: Payload,
}

/// A script that EC2 would not take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the boot script is too large")]
pub struct TooLarge;

/// The script.
pub fn render(plan: &BootPlan) -> Result<String, TooLarge> {
    let _ = plan;
    Err(TooLarge)
}
