//! The service, end to end: `bullpen serve` as a process that gets signed webhooks over HTTP from a
//! stand-in GitHub, with agents, runners and jobs as processes. Every wait is for a condition.
//!
//! Not here: the same engine under faults that tests cannot cause in processes (`bullpen-sim`), or
//! the rules of webhooks and of the client (`bullpen-github`).

mod answers;
mod drain;
#[cfg(feature = "aws")]
#[path = "../tools/ministack.rs"]
mod emulator;
mod flood;
mod hostile_labels;
mod isolation;
mod jobs;
mod killed;
mod listeners;
mod lost;
mod many_jobs;
mod names;
mod operator;
#[path = "../tools/process.rs"]
mod process;
mod ready;
#[cfg(feature = "aws")]
mod replicas;
mod setup;
#[path = "../tools/shared.rs"]
mod shared;
mod strangers;
#[path = "../tools/act.rs"]
mod tool;
mod untrusted;
mod upgrade;
#[path = "../tools/waiting.rs"]
mod waiting;
mod webhook;
#[path = "../tools/wire.rs"]
mod wire;
mod workflow;
#[path = "../tools/world.rs"]
mod world;
