//! The agent on an EC2 instance: it reads its id and notices from the instance's metadata and opens
//! its mailbox in DynamoDB.
//!
//! The binary must stay small: no database, and of the SDK only the DynamoDB client.
//!
//! Not here: the agent's decisions and its machine (`bullpen-agent`), or starting it
//! (`crate::boot`).

use std::path::Path;

use bullpen_agent::SelfEndReason;
use bullpen_agent::machine::{self, LiveError, MachineBearings, PowerOff};
use bullpen_core::ports::Clock;
use futures_util::stream;

mod connector;
mod metadata;

pub use connector::InDynamoDb;
pub use metadata::Metadata;

/// Runs the agent, as a process's only work, until the instance must power off.
pub fn run<C: Clock + Clone>(
    dir: &Path,
    boot: &str,
    clock: &C,
) -> Result<SelfEndReason, LiveError> {
    machine::on_a_runtime(dir, async || {
        let terminations = machine::terminations(dir)?;
        let metadata = Metadata::new();
        let instance = metadata.instance(clock).await;
        tracing::info!(instance, boot, "agent started on instance");
        let notices = stream::select(metadata.notices(clock), terminations);
        let bearings = MachineBearings { dir, boot, instance: Some(&instance) };
        let watchdog = PowerOff::new(clock.clone());
        machine::live(bearings, clock, &InDynamoDb, watchdog, notices).await
    })
}
