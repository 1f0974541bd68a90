//! Where jobs come from: webhooks first, scale sets later.

use std::future::Future;

use super::Fault;
use crate::ids::{JobId, Repository};
use crate::time::Timestamp;

/// A job that wants a runner, as its source announced it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Which job.
    pub job: JobId,
    /// Of which repository.
    pub repository: Repository,
    /// What it asks for.
    pub labels: Vec<String>,
    /// When it was queued, by GitHub's clock.
    pub queued_at: Timestamp,
}

/// A stream of demands.
///
/// Contract: a demand is handed out again until it is settled; settling one twice is harmless.
/// Weak arm: demands may be doubled, late and out of order, and may be lost at the source.
pub trait DemandSource: Send + Sync {
    /// The demands that are not settled, at most `max`; none if there are none right now.
    fn demands(&self, max: usize) -> impl Future<Output = Result<Vec<Demand>, Fault>> + Send;
    /// These demands are durable with us; the source may forget them.
    fn settle(&self, jobs: &[JobId]) -> impl Future<Output = Result<(), Fault>> + Send;
}
