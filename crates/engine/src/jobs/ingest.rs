//! Ingest: stores a fact about a job in its row and wakes a worker. The service only counts a fact
//! outside its scope: it neither reads nor stores anything for it, and asks GitHub nothing.
//!
//! Not here: reading webhooks (`bullpen-github`), or deciding about facts (`core::job::ingest`).

use std::time::Duration;

use bullpen_core::job::rerun::RequestRelation;
use bullpen_core::job::{self, JobFact, ReportedStatus};
use bullpen_core::ports::{Fault, Ports};
use bullpen_core::scope::{OutOfScope, ScopeVerdict};

use super::rows::{self, Known, RowChange, SeenRow};
use super::{Service, active, origin, queues, rerun};

/// How long one ingest may take: GitHub waits ten seconds for an answer, even for a refusal.
const PATIENCE: Duration = Duration::from_secs(7);

/// The outcome of ingesting a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ingested {
    /// The fact changed the job's row.
    Stored,
    /// The job's row had the fact already.
    Known,
    /// The job is not for this stack, and nothing was stored.
    NotOurs,
    /// The job is outside the service's scope, and nothing was stored.
    Foreign,
}

/// Ingests a webhook's fact. `installation` is the App's installation that the webhook names.
pub async fn deliver<P: Ports, J: Sync>(
    service: &Service<'_, P, J>,
    fact: &JobFact,
    installation: Option<u64>,
) -> Result<Ingested, Fault> {
    if let Some(error) = service.stack.misleads() {
        // Refused, so that GitHub redelivers it to a process that gives the job a right deadline.
        return Err(Fault::Unavailable(error.to_string()));
    }
    match service.settings().scope().judge(&fact.about.repository, installation) {
        // Mostly the first report of a job, which has no row yet.
        ScopeVerdict::Inside if matches!(fact.said, ReportedStatus::Queued { .. }) => {
            merge(service, fact, Known::IsAbsent).await
        }
        ScopeVerdict::Inside => ingest(service, fact).await,
        ScopeVerdict::Outside(outside) => {
            service.note_foreign(fact, outside);
            Ok(Ingested::Foreign)
        }
        // Refused, so that GitHub has a failed delivery to redeliver once the scope is known.
        ScopeVerdict::NotKnown => {
            Err(Fault::unavailable("GitHub has not said yet where the App is installed"))
        }
    }
}

/// Merges a fact into its job's row and returns after the row is durable. A repeated fact, or an
/// older one after a newer, changes nothing.
pub async fn ingest<P: Ports, J: Sync>(
    service: &Service<'_, P, J>,
    fact: &JobFact,
) -> Result<Ingested, Fault> {
    merge(service, fact, Known::Nothing).await
}

async fn merge<P: Ports, J: Sync>(
    service: &Service<'_, P, J>,
    fact: &JobFact,
    known: Known<'_>,
) -> Result<Ingested, Fault> {
    /// Why nothing was stored.
    enum NotStored {
        Known(Option<Box<SeenRow>>),
        NotOurs,
    }
    let (stack, fact) = (service.stack, &origin::enriched(service, fact));
    let (settings, until) = (service.settings(), stack.now().after(PATIENCE));
    if !settings.scope().serves(&fact.about.repository) {
        service.note_foreign(fact, OutOfScope::Repository);
        return Ok(Ingested::Foreign);
    }
    let request = rerun::request_of(stack, fact, until).await?;
    let rerun_of = request
        .as_ref()
        .filter(|(_, relation)| *relation == RequestRelation::Over)
        .map(|(id, _)| id);
    let mut before = None;
    let changed = rows::change_from(stack, (&fact.job, known), until, |stored| {
        let job = stored.map(|seen| &seen.job);
        before = job.cloned();
        let (routing, cancels) = (settings.routing(), settings.cancels());
        match job::ingest(job, fact, &routing, rerun_of, stack.now(), &stack.limits, cancels) {
            Ok(job::IngestOutcome::Store(job)) => Ok(job),
            Ok(job::IngestOutcome::Unchanged) => {
                Err(NotStored::Known(stored.cloned().map(Box::new)))
            }
            Ok(job::IngestOutcome::NotOurs(_)) | Err(_) => Err(NotStored::NotOurs),
        }
    });
    let ingested = match changed.await? {
        RowChange::To(seen) => {
            service.note_change(before.as_ref(), &seen.job);
            if before.is_some_and(|before| before.known.phase() != seen.job.known.phase()) {
                service.forgive(&seen.job.id);
            }
            queues::wake(stack, &seen).await;
            Ingested::Stored
        }
        // The process that stored the fact may have died before it woke a worker.
        RowChange::Not(NotStored::Known(seen)) => {
            if let Some(seen) = seen {
                queues::wake(stack, &seen).await;
            }
            Ingested::Known
        }
        RowChange::Not(NotStored::NotOurs) => Ingested::NotOurs,
    };
    // If the request ends before the job starts, the sweep must ask GitHub about the job again.
    let is_bound = request.is_some_and(|(_, relation)| relation == RequestRelation::Live);
    if is_bound || ingested != Ingested::NotOurs {
        active::note_active(service, &fact.about.repository).await;
    }
    Ok(ingested)
}
