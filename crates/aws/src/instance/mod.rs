//! The agent on an EC2 instance: what it learns from the instance's metadata, its way to a mailbox in
//! DynamoDB, and its life between the two.
//!
//! It must stay small: no database, and none of the SDK but DynamoDB's part.
//!
//! Not here: the agent's life and its machine (`bullpen-agent`), or what starts the agent (the boot
//! script).

use std::path::Path;

use bullpen_agent::SelfEndReason;
use bullpen_agent::machine::{self, LiveError, MachineBearings, PowerOff};
use bullpen_core::ports::Clock;
use futures_util::stream;

mod connector;
mod metadata;

pub use connector::InDynamoDb;
pub use metadata::Metadata;

/// Lives until the instance is to end, as all that a process does.
pub fn run<C: Clock + Clone>(
    dir: &Path,
    boot: &str,
    clock: &C,
) -> Result<SelfEndReason, LiveError> {
    machine::on_a_runtime(dir, async || {
        let terminations = machine::terminations(dir)?;
        let metadata = Metadata::new();
        let instance = metadata.instance(clock).await;
        tracing::info!(instance, boot, "this machine");
        let notices = stream::select(metadata.notices(clock), terminations);
        let bearings = MachineBearings { dir, boot, instance: Some(&instance) };
        let watchdog = PowerOff::new(clock.clone());
        machine::live(bearings, clock, &InDynamoDb, watchdog, notices).await
    })
}
