//! The sweep: every row that is due is looked at, every job that nobody announced is found.
//!
//! Waiting rows are not served here: whoever serves them is woken anew, so that one sweep never
//! waits for a machine.
//!
//! Not here: what a row needs ([`super::resume`]).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bullpen_core::ids::Repository;
use bullpen_core::job::{JobState, reroute};
use bullpen_core::ports::{Fault, JobForge, JobRow, Ledger, Ports};
use bullpen_core::sabotage;
use bullpen_core::time::Timestamp;
use futures_util::future::join_all;

use super::ingest::{Ingested, ingest};
use super::rows::{self, RowChange, SeenRow};
use super::{Service, active, finish, process, queues};
use crate::retry::retry_until;

/// Rows looked at together.
const TOGETHER: usize = 10;
/// How long ago a webhook may have been lost: what GitHub keeps, less than what a job may wait.
const DELIVERIES_SINCE: Duration = Duration::from_secs(60 * 60);
/// How soon the same webhook is asked for again.
const REDELIVER_EVERY: Duration = Duration::from_secs(5 * 60);

/// What one sweep over the rows did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Rows looked at.
    pub looked_at: usize,
    /// Rows that could not be dealt with now; the next sweep comes to them again.
    pub left: usize,
}

/// One pass over every row that is due.
pub async fn sweep<P: Ports, J: JobForge>(service: &Service<'_, P, J>) -> Result<Swept, Fault> {
    let stack = service.stack;
    let now = stack.now();
    let mut swept = Swept::default();
    let mut cursor: Option<String> = None;
    loop {
        let page = retry_until(stack, service.patience(), || {
            stack.ports.ledger().rows_due(now, cursor.as_deref())
        });
        let page = page.await?;
        for rows in page.items.chunks(TOGETHER) {
            swept.looked_at += rows.len();
            let looks = join_all(rows.iter().map(|row| look(service, row))).await;
            swept.left += looks.iter().filter(|look| look.is_err()).count();
            for fault in looks.into_iter().filter_map(Result::err) {
                tracing::info!(%fault, "a row is left for the next sweep");
            }
        }
        match page.next {
            Some(next) => cursor = Some(next),
            None => return Ok(swept),
        }
    }
}

async fn look<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    row: &JobRow,
) -> Result<(), Fault> {
    let stack = service.stack;
    // The sweep may lag; only the row itself is believed.
    let Some(seen) = rows::load(stack, &row.job, service.patience()).await? else { return Ok(()) };
    if !seen.is_due(stack.now()) {
        return Ok(());
    }
    if finish::end_out_of_scope(service, &seen).await?.is_some() {
        return Ok(());
    }
    match &seen.job.state {
        JobState::Waiting { .. } | JobState::Assigning { .. } => {
            if let Some(reason) = seen.job.overdue(stack.now()) {
                let _ = finish::overdue(service, &seen.job, reason).await?;
                return Ok(());
            }
            wake_anew(service, &seen).await
        }
        JobState::Dormant
        | JobState::Assigned { .. }
        | JobState::Elsewhere
        | JobState::Ended { .. } => {
            let attended = process(service, &seen.job.id).await;
            rows::touch(stack, &seen, service.patience()).await?;
            attended.map(|_| ())
        }
    }
}

/// Routes what nobody could route before, and wakes under a new revision: the same one would be
/// swallowed as a repetition.
async fn wake_anew<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    seen: &SeenRow,
) -> Result<(), Fault> {
    let (stack, settings) = (service.stack, service.settings());
    let written = rows::change(stack, &seen.job.id, service.patience(), |stored| {
        let stored = stored.filter(|stored| stored.revision == seen.revision).ok_or(())?;
        let (job, now) = (stored.job.clone(), stack.now());
        reroute(job, &settings.routing(), now, &stack.limits, settings.cancels()).map_err(drop)
    });
    if let RowChange::To(seen) = written.await? {
        queues::wake(stack, &seen).await;
    }
    Ok(())
}

/// What asking GitHub found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FoundJobs {
    /// Webhooks that were asked for again.
    pub redelivered: usize,
    /// Jobs that no webhook had announced.
    pub unannounced: usize,
}

/// What one process remembers between two askings.
#[derive(Clone, Debug, Default)]
pub struct FindMemory {
    redelivered: BTreeMap<String, Timestamp>,
}

/// Asks GitHub for what its webhooks did not say: those that failed are sent again, and jobs that want
/// a runner are taken up, of these repositories and of those that were heard of lately.
pub async fn find<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    always: &[Repository],
    memory: &mut FindMemory,
) -> Result<FoundJobs, Fault> {
    let now = service.stack.now();
    let mut found = FoundJobs::default();
    memory.redelivered.retain(|_, at| now.since(*at) < REDELIVER_EVERY);
    for delivery in service.forge.lost_deliveries(now.before(DELIVERIES_SINCE)).await? {
        if memory.redelivered.contains_key(&delivery.guid) {
            continue;
        }
        service.forge.redeliver(&delivery).await?;
        memory.redelivered.insert(delivery.guid, now);
        found.redelivered += 1;
    }
    let (active_repositories, settings) = (active::active(service).await?, service.settings());
    // One that was heard of before the scope was this narrow is not asked about.
    let inside = always.iter().chain(&active_repositories).filter(|it| settings.scope().serves(it));
    let repositories: BTreeSet<&Repository> = inside.collect();
    for repository in repositories.into_iter().filter(|_| !sabotage!("only-webhooks-are-believed"))
    {
        let facts = match service.forge.queued_jobs(repository).await {
            Ok(facts) => facts,
            // One that is gone, or shut to us, says nothing about the others.
            Err(fault) if !fault.is_transient() => {
                tracing::info!(%repository, %fault, "GitHub does not say what is queued there");
                continue;
            }
            Err(fault) => return Err(fault),
        };
        for fact in facts {
            if ingest(service, &fact).await? == Ingested::Stored {
                found.unannounced += 1;
            }
        }
    }
    Ok(found)
}
