//! Ingest: a fact about a job is durable in its row, and somebody is woken.
//!
//! Not here: reading webhooks (`bullpen-github`), or merging (`core::job::fact`).

use std::time::Duration;

use bullpen_core::job::{Event, Fact, Job, Life};
use bullpen_core::ports::{Fault, Ports};
use bullpen_core::route::Route;

use super::rows::{self, Changed, Seen};
use super::{Service, queues};

/// GitHub waits ten seconds for an answer; it must have one before that, even if it is a refusal.
const PATIENCE: Duration = Duration::from_secs(7);

/// What became of a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ingested {
    /// It is in the job's row.
    Stored,
    /// The row said so already.
    Known,
    /// The job is not for this stack, and nothing was stored.
    NotOurs,
}

/// Merges a fact into its job's row. Returns only after the row is durable; the same fact again, or
/// an older one after a newer, changes nothing.
pub async fn ingest<P: Ports, J: Sync>(
    service: &Service<'_, P, J>,
    fact: &Fact,
) -> Result<Ingested, Fault> {
    /// Why nothing was stored.
    enum Not {
        Changed(Box<Seen>),
        Ours,
    }
    let stack = service.stack;
    let settings = service.settings();
    let changed = rows::change(stack, &fact.job, stack.now().after(PATIENCE), |stored| {
        let now = stack.now();
        let next = match stored {
            None => Job::first(fact, now, &stack.limits),
            Some(seen) => match seen.job.learn(fact, now, &stack.limits) {
                Ok(job) => job,
                Err(_) => return Err(Not::Ours),
            },
        };
        // GitHub leaves the labels out of some last words. Should they come first, they are kept, so
        // that nothing is launched for what is said later.
        let last_words = next.is_over() && next.known.about.labels.is_empty();
        let ours = last_words || !matches!(settings.route(&next), Route::NotOurs(_));
        if stored.is_none() && !ours {
            return Err(Not::Ours);
        }
        let next = routed(service, next);
        match stored {
            Some(seen) if seen.job == next => Err(Not::Changed(Box::new(seen.clone()))),
            _ => Ok(next),
        }
    });
    match changed.await? {
        Changed::To(seen) => {
            queues::wake(stack, &seen).await;
            Ok(Ingested::Stored)
        }
        // Whoever stored it may have died before anybody was woken.
        Changed::Not(Not::Changed(seen)) => {
            queues::wake(stack, &seen).await;
            Ok(Ingested::Known)
        }
        Changed::Not(Not::Ours) => Ok(Ingested::NotOurs),
    }
}

/// The job with the lane that the configuration gives it now, while that matters.
pub(super) fn routed<P: Ports, J>(service: &Service<'_, P, J>, job: Job) -> Job {
    if !matches!(job.life, Life::Dormant | Life::Waiting { .. }) {
        return job;
    }
    match service.settings().lane(&job) {
        Some(lane) if job.lane.as_ref() != Some(&lane) => {
            job.on(&Event::Routed { lane }).unwrap_or(job)
        }
        _ => job,
    }
}
