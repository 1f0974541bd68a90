//! GitHub: the only room that knows its JSON and its REST interface.
//!
//! [`GitHub`] is a small client behind the ports `Forge` and `JobForge`, as an App or with a personal access token,
//! for an organisation's runners or a repository's ([`Settings`]). Every refusal becomes a
//! `bullpen_core::ports::Fault` in one table (`fault`). It takes its time from the `Clock` it is
//! given, and never shows a secret.
//!
//! With the feature `stand-in` there is a GitHub of our own on loopback, `stand_in`.
//!
//! [`webhook`] judges what GitHub sends by itself.
//!
//! Not here: serving webhooks, and deciding when GitHub is asked.

mod app;
mod budget;
mod client;
mod contents;
mod deliveries;
mod fault;
mod fitness;
mod forge;
mod groups;
mod job_forge;
pub mod limits;
mod login;
mod meter;
mod notices;
mod runners;
mod runs;
mod settings;
#[cfg(feature = "stand-in")]
pub mod stand_in;
#[cfg(test)]
mod testing;
pub mod webhook;
mod wire;

pub use app::{AppKey, BadKey};
pub use client::{GitHub, Installed};
pub use fitness::{AppStanding, version_of};
pub use runners::{Jit, Listed, Token};
pub use runs::{HeadRepository, Status, WorkflowJob, WorkflowRun};
pub use settings::{App, BadSettings, GITHUB_API, Login, Scope, Settings};
