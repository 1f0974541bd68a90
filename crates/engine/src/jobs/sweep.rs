//! The sweep: processes every row that is due, and finds the jobs that no webhook announced.
//!
//! The sweep does not serve a waiting row itself, because it must never wait for a machine: it
//! sends a new wake-up to the workers.
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
use super::resume::process_row;
use super::rows::{self, RowChange, SeenRow};
use super::{Service, active, finish, queues};
use crate::retry::retry_until;

/// How many rows the sweep processes at once.
const ROWS_AT_ONCE: usize = 10;
/// How far back the sweep looks for lost webhooks. GitHub keeps them for longer, but a job does not
/// wait for longer.
const DELIVERIES_SINCE: Duration = Duration::from_secs(60 * 60);
/// The least time between two requests to redeliver the same webhook.
const REDELIVER_EVERY: Duration = Duration::from_secs(5 * 60);

/// The result of one sweep over the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Rows that the sweep processed.
    pub looked_at: usize,
    /// Rows whose processing failed; the next sweep tries them again.
    pub left: usize,
}

/// Processes every row that is due, once.
pub async fn sweep<P: Ports, J: JobForge>(service: &Service<'_, P, J>) -> Result<Swept, Fault> {
    let stack = service.stack;
    let now = stack.now();
    let mut swept = Swept::default();
    if stack.misleads().is_some() {
        return Ok(swept);
    }
    let mut cursor: Option<String> = None;
    loop {
        let page = retry_until(stack, service.patience(), || {
            stack.ports.ledger().rows_due(now, cursor.as_deref())
        });
        let (rows, next) = stack.readable_page(page.await?);
        for rows in rows.chunks(ROWS_AT_ONCE) {
            swept.looked_at += rows.len();
            let looks = rows.iter().map(|row| service.attempt(&row.job, look(service, row)));
            let looks = join_all(looks).await;
            swept.left += looks.iter().filter(|look| look.is_err()).count();
            for fault in looks.into_iter().filter_map(Result::err) {
                tracing::info!(%fault, "could not process row; next sweep retries");
            }
        }
        match next {
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
    // The list of due rows may lag, so the row itself decides.
    let Some(seen) = rows::load(stack, &row.job, service.patience()).await? else { return Ok(()) };
    if !seen.is_due(stack.now()) {
        return Ok(());
    }
    if finish::end_out_of_scope(service, &seen).await?.is_some() {
        return Ok(());
    }
    match &seen.job.state {
        JobState::Waiting { .. } | JobState::Assigning { .. } => {
            if let Some(reason) = finish::is_overdue(stack, &seen.job) {
                let _ = finish::overdue(service, &seen.job, reason).await?;
                return Ok(());
            }
            if service.is_set_aside(&seen.job.id) {
                return rows::touch(stack, &seen, service.patience()).await;
            }
            reroute_and_wake(service, &seen).await
        }
        _ if service.is_set_aside(&seen.job.id) => {
            rows::touch(stack, &seen, service.patience()).await
        }
        JobState::Dormant
        | JobState::Assigned { .. }
        | JobState::Elsewhere
        | JobState::Ended { .. } => {
            let processed = process_row(service, &seen.job.id).await;
            rows::touch(stack, &seen, service.patience()).await?;
            processed.map(|_| ())
        }
    }
}

/// Routes a row that could not be routed before, and wakes a worker. The write gives the row a new
/// revision, because the queue drops a wake-up with the old revision as a duplicate.
async fn reroute_and_wake<P: Ports, J: JobForge>(
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

/// The result of one call of [`find`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FoundJobs {
    /// Webhooks that GitHub was asked to redeliver.
    pub redelivered: usize,
    /// Jobs that no webhook had announced.
    pub unannounced: usize,
}

/// What one process remembers between two calls of [`find`].
#[derive(Clone, Debug, Default)]
pub struct FindMemory {
    redelivered: BTreeMap<String, Timestamp>,
}

/// Asks GitHub for everything that webhooks missed: has GitHub redeliver failed webhooks, and
/// ingests the queued jobs of the repositories in `always` and of those that were active lately.
pub async fn find<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    always: &[Repository],
    memory: &mut FindMemory,
) -> Result<FoundJobs, Fault> {
    let now = service.stack.now();
    let mut found = FoundJobs::default();
    if service.stack.misleads().is_some() {
        return Ok(found);
    }
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
    // Leaves out repositories that were noted when the scope was wider.
    let inside = always.iter().chain(&active_repositories).filter(|it| settings.scope().serves(it));
    let repositories: BTreeSet<&Repository> = inside.collect();
    for repository in repositories.into_iter().filter(|_| !sabotage!("only-webhooks-are-believed"))
    {
        let facts = match service.forge.queued_jobs(repository).await {
            Ok(facts) => facts,
            // A repository that is gone, or that refuses us, must not stop the others.
            Err(fault) if !fault.is_transient() => {
                tracing::info!(%repository, %fault, "GitHub refused to list queued jobs");
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
