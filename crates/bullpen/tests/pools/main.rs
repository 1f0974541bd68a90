//! Standby pools, end to end: a `bullpen serve` process keeps them, with machines, agents, runners
//! and jobs as processes. Every wait is for a condition.
//!
//! Not here: how a plan is made (`bullpen_core::pool`), or pools under faults that tests cannot
//! cause in processes (`bullpen-sim`).

#[cfg(feature = "aws")]
mod aws;
mod back;
mod boots;
mod broken;
mod changes;
#[cfg(feature = "aws")]
#[path = "../tools/ministack.rs"]
mod emulator;
mod fill;
#[path = "../tools/fleet.rs"]
mod fleet;
mod jobs;
mod killed;
#[path = "../tools/process.rs"]
mod process;
#[path = "../tools/shared.rs"]
mod shared;
mod standby;
#[path = "../tools/waiting.rs"]
mod waiting;
#[path = "../tools/wire.rs"]
mod wire;
#[path = "../tools/world.rs"]
mod world;
