//! Ingest: a fact about a job is durable in its row, and somebody is woken. A fact outside the
//! service's scope is counted, and nothing of it is read, stored or asked about.
//!
//! Not here: reading webhooks (`bullpen-github`), or deciding about facts (`core::job::ingest`).

use std::time::Duration;

use bullpen_core::job::rerun::RequestRelation;
use bullpen_core::job::{self, JobFact};
use bullpen_core::ports::{Fault, Ports};
use bullpen_core::scope::{OutOfScope, ScopeVerdict};

use super::rows::{self, RowChange, SeenRow};
use super::{Service, active, origin, queues, rerun};

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
    /// The job is outside the service's scope, and nothing was stored.
    Foreign,
}

/// Takes a webhook's fact in. `installation` is the one that the webhook names.
pub async fn deliver<P: Ports, J: Sync>(
    service: &Service<'_, P, J>,
    fact: &JobFact,
    installation: Option<u64>,
) -> Result<Ingested, Fault> {
    match service.settings().scope().judge(&fact.about.repository, installation) {
        ScopeVerdict::Inside => ingest(service, fact).await,
        ScopeVerdict::Outside(outside) => {
            service.note_foreign(fact, outside);
            Ok(Ingested::Foreign)
        }
        // Not taken, so that GitHub delivers it again when that is known.
        ScopeVerdict::NotKnown => {
            Err(Fault::unavailable("GitHub has not said yet where the App is installed"))
        }
    }
}

/// Merges a fact into its job's row. Returns only after the row is durable; the same fact again, or
/// an older one after a newer, changes nothing.
pub async fn ingest<P: Ports, J: Sync>(
    service: &Service<'_, P, J>,
    fact: &JobFact,
) -> Result<Ingested, Fault> {
    /// Why nothing was stored.
    enum Not {
        Changed(Option<Box<SeenRow>>),
        Ours,
    }
    let (stack, fact) = (service.stack, &origin::enriched(service, fact));
    let (settings, until) = (service.settings(), stack.now().after(PATIENCE));
    if !settings.scope().serves(&fact.about.repository) {
        service.note_foreign(fact, OutOfScope::Repository);
        return Ok(Ingested::Foreign);
    }
    let request = rerun::request_of(stack, fact, until).await?;
    let again =
        request.as_ref().filter(|(_, bond)| *bond == RequestRelation::Over).map(|(id, _)| id);
    let mut before = None;
    let changed = rows::change(stack, &fact.job, until, |stored| {
        let job = stored.map(|seen| &seen.job);
        before = job.cloned();
        let (routing, cancels) = (settings.routing(), settings.cancels());
        match job::ingest(job, fact, &routing, again, stack.now(), &stack.limits, cancels) {
            Ok(job::IngestOutcome::Store(job)) => Ok(job),
            Ok(job::IngestOutcome::Unchanged) => Err(Not::Changed(stored.cloned().map(Box::new))),
            Ok(job::IngestOutcome::NotOurs(_)) | Err(_) => Err(Not::Ours),
        }
    });
    let ingested = match changed.await? {
        RowChange::To(seen) => {
            service.note_change(before.as_ref(), &seen.job);
            queues::wake(stack, &seen).await;
            Ingested::Stored
        }
        // Whoever stored it may have died before anybody was woken.
        RowChange::Not(Not::Changed(seen)) => {
            if let Some(seen) = seen {
                queues::wake(stack, &seen).await;
            }
            Ingested::Known
        }
        RowChange::Not(Not::Ours) => Ingested::NotOurs,
    };
    // Should the request end before the job has begun, GitHub must be asked about the job again.
    let is_bound = request.is_some_and(|(_, bond)| bond == RequestRelation::Live);
    if is_bound || ingested != Ingested::NotOurs {
        active::note_active(service, &fact.about.repository).await;
    }
    Ok(ingested)
}
