//! Jobs of the service, against models on virtual time: every one ends with a runner, or with a
//! failure that its author was told.
//!
//! Not here: webhooks as bytes (`bullpen-github`), or the row's rules alone (`core::job`).

mod active;
pub(crate) mod again;
mod batches;
mod ends;
mod explained;
mod ghosts;
mod machine;
mod order;
mod pools;
mod replicas;
mod rescue;
mod room;
mod scope;
mod serving;
mod stolen;
mod storm;
pub(crate) mod strangers;
mod town;
