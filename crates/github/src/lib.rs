//! GitHub's REST interface and webhooks; only this crate knows GitHub's JSON.
//!
//! [`GitHub`] implements the ports `Forge` and `JobForge`, as an App or with a personal access
//! token, for the runners of an organisation or a repository ([`Settings`]); it shows no secret.
//! [`webhook`] verifies and parses webhooks. `stand_in` is a stand-in for GitHub on loopback.
//!
//! Not here: serving webhooks (`bullpen`), and deciding when to call GitHub (`bullpen-engine`).

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
mod seen;
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
