//! Tests of the jobs of the service, against models on virtual time: every job gets a runner, or
//! its author gets a notice of its failure.
//!
//! Not here: webhooks as bytes (`bullpen-github`), or the rules of a job row (`core::job`).

mod active;
mod batches;
pub(crate) mod ceilings;
pub(crate) mod clocks;
mod cost;
pub(crate) mod defects;
pub(crate) mod denied;
mod explained;
mod ghosts;
pub(crate) mod githubs_hour;
mod machine;
mod order;
mod pools;
mod recovery;
mod replicas;
pub(crate) mod reruns;
mod scope;
mod service_world;
mod serving;
mod stolen;
mod storm;
pub(crate) mod strangers;
mod unserved;
