//! The port to the source of jobs: GitHub's webhooks today, scale sets later.
//!
//! Not here: the state of a job (`job`).

use std::future::Future;

use super::Fault;
use crate::ids::{JobId, Repository};
use crate::time::Timestamp;

/// A job that waits for a runner, as its source announced it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The job's id.
    pub job: JobId,
    /// The job's repository.
    pub repository: Repository,
    /// The labels in the job's `runs-on`.
    pub labels: Vec<String>,
    /// When it was queued, by GitHub's clock.
    pub queued_at: Timestamp,
}

/// A stream of demands.
///
/// Contract: the source hands out a demand again until the service settles it; settling a demand
/// twice is harmless. Weak arm: demands may be doubled, late and out of order, and the source may
/// lose some.
pub trait DemandSource: Send + Sync {
    /// At most `max` demands that are not settled; an empty list if there are none now.
    fn demands(&self, max: usize) -> impl Future<Output = Result<Vec<Demand>, Fault>> + Send;
    /// Tells the source that the service has stored these demands, so that it may forget them.
    fn settle(&self, jobs: &[JobId]) -> impl Future<Output = Result<(), Fault>> + Send;
}
