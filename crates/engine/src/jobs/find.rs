//! The search at GitHub for everything that webhooks missed: webhooks that were not delivered, and
//! jobs that no webhook announced.
//!
//! One replica searches at a time. A step that fails is left for the next round and stops no other;
//! a round that GitHub's limits end goes on at the same repository in the next.
//!
//! Not here: which runs to ask about (`core::job::search`), or rows that are due
//! ([`mod@super::sweep`]).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bullpen_core::ids::{LeaseName, Repository, RunAttempt};
use bullpen_core::job::ReportedStatus;
use bullpen_core::job::search::worth_asking;
use bullpen_core::ports::{Clock, Fault, JobForge, LostDelivery, Ports};
use bullpen_core::sabotage;
use bullpen_core::time::Timestamp;

use super::ingest::{Ingested, ingest};
use super::{Service, active};

/// The first search looks this far back for lost webhooks. GitHub keeps them for longer, but a job
/// does not wait for longer.
const DELIVERIES_SINCE: Duration = Duration::from_secs(60 * 60);
/// How long before the last search a later one begins: GitHub's list may lag.
const DELIVERIES_OVERLAP: Duration = Duration::from_secs(2 * 60);
/// The least time between two requests to redeliver the same webhook.
const REDELIVER_EVERY: Duration = Duration::from_secs(5 * 60);
/// After this many repositories in a row for which GitHub did not answer, the round ends.
const SILENT_MAX: usize = 3;

/// The name of the lease of the process that searches.
pub(super) fn lease() -> LeaseName {
    LeaseName::new("find")
}

/// The result of one round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FoundJobs {
    /// Webhooks that GitHub was asked to redeliver.
    pub redelivered: usize,
    /// Jobs that no webhook had announced.
    pub unannounced: usize,
    /// Steps that failed; the next round tries them again.
    pub failed: usize,
}

/// What one process remembers between two rounds.
#[derive(Clone, Debug, Default)]
pub struct FindMemory {
    /// Until when the list of deliveries was read.
    read: Option<Timestamp>,
    /// Webhooks that were lost, by their event, and when GitHub may be asked to send them (again).
    lost: BTreeMap<String, (LostDelivery, Timestamp)>,
    /// When the process asked about a run last.
    asked: BTreeMap<Repository, BTreeMap<RunAttempt, Timestamp>>,
    /// The repository with which the next round begins.
    next: Option<Repository>,
}

/// Asks GitHub for everything that webhooks missed: has GitHub redeliver failed webhooks, and
/// ingests the queued jobs of the repositories in `always` and of those that were active lately.
pub async fn find<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    always: &[Repository],
    memory: &mut FindMemory,
) -> FoundJobs {
    let mut found = FoundJobs::default();
    if service.stack.misleads().is_some() {
        return found;
    }
    redeliver(service, memory, &mut found).await;
    match repositories(service, always).await {
        Ok(repositories) => search_each(service, repositories, memory, &mut found).await,
        Err(fault) => {
            tracing::info!(%fault, "could not list active repositories");
            found.failed += 1;
        }
    }
    found
}

/// Has GitHub send lost webhooks again. A request that fails is repeated in the next round, for as
/// long as the webhook may matter.
async fn redeliver<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    memory: &mut FindMemory,
    found: &mut FoundJobs,
) {
    let now = service.stack.now();
    let earliest = now.before(DELIVERIES_SINCE);
    let since = memory.read.map_or(earliest, |read| read.before(DELIVERIES_OVERLAP).max(earliest));
    match service.forge.lost_deliveries(since).await {
        Ok(lost) => {
            memory.read = Some(now);
            for delivery in lost {
                memory.lost.entry(delivery.guid.clone()).or_insert((delivery, now));
            }
        }
        Err(fault) => {
            tracing::info!(%fault, "could not list lost webhooks");
            found.failed += 1;
        }
    }
    memory.lost.retain(|_, (delivery, _)| delivery.at >= earliest);
    let due: Vec<_> = memory.lost.values().filter(|(_, at)| *at <= now).cloned().collect();
    for (delivery, _) in due {
        match service.forge.redeliver(&delivery).await {
            Ok(()) => {
                found.redelivered += 1;
                // If that delivery fails too, GitHub lists it under the same event.
                let again = now.after(REDELIVER_EVERY);
                memory.lost.insert(delivery.guid.clone(), (delivery, again));
            }
            Err(Fault::NotFound) => drop(memory.lost.remove(&delivery.guid)),
            Err(fault) => {
                tracing::info!(%fault, "could not request redelivery");
                found.failed += 1;
            }
        }
    }
}

/// The repositories to search. Leaves out those that were noted when the scope was wider.
async fn repositories<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    always: &[Repository],
) -> Result<BTreeSet<Repository>, Fault> {
    let (active, settings) = (active::active(service).await?, service.settings());
    let all = always.iter().chain(&active).filter(|it| settings.scope().serves(it));
    Ok(all.filter(|_| !sabotage!("only-webhooks-are-believed")).cloned().collect())
}

/// Searches the repositories one after another, spread over half of the interval between rounds.
async fn search_each<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    repositories: BTreeSet<Repository>,
    memory: &mut FindMemory,
    found: &mut FoundJobs,
) {
    memory.asked.retain(|repository, _| repositories.contains(repository));
    let first = memory.next.take();
    let (before, after): (Vec<_>, Vec<_>) =
        repositories.into_iter().partition(|it| first.as_ref().is_some_and(|first| it < first));
    let order: Vec<Repository> = after.into_iter().chain(before).collect();
    let limits = &service.stack.limits;
    let gap = limits.find / 2 / u32::try_from(order.len()).unwrap_or(u32::MAX).max(1);
    let mut silent = 0;
    for (number, repository) in order.iter().enumerate() {
        if number > 0 {
            service.stack.ports.clock().sleep(gap).await;
        }
        match search(service, repository, memory, found).await {
            Ok(()) => silent = 0,
            // No other repository would have an answer now.
            Err(Fault::Throttled) => {
                tracing::debug!(%repository, "GitHub's limits end the search for now");
                memory.next = Some(repository.clone());
                return;
            }
            Err(fault) => {
                tracing::info!(%repository, %fault, "could not search repository");
                found.failed += 1;
                if sabotage!("one-bad-repository-stops-the-search") {
                    return;
                }
                silent = if fault.is_transient() { silent + 1 } else { 0 };
                if silent == SILENT_MAX {
                    memory.next = order.get(number + 1).cloned();
                    return;
                }
            }
        }
    }
}

/// Ingests the queued jobs of one repository's unfinished runs.
async fn search<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    repository: &Repository,
    memory: &mut FindMemory,
    found: &mut FoundJobs,
) -> Result<(), Fault> {
    let unfinished = service.forge.unfinished_runs(repository).await?;
    let asked = memory.asked.entry(repository.clone()).or_default();
    let listed: BTreeSet<&RunAttempt> = unfinished.iter().map(|run| &run.run).collect();
    asked.retain(|run, _| listed.contains(run));
    let now = service.stack.now();
    for run in worth_asking(&unfinished, asked, now) {
        let facts = match service.forge.search_run(repository, run).await {
            // A user deleted the run meanwhile.
            Err(Fault::NotFound) => continue,
            other => other?,
        };
        asked.insert(run.clone(), now);
        for fact in facts.iter().filter(|it| matches!(it.said, ReportedStatus::Queued { .. })) {
            match ingest(service, fact).await {
                Ok(Ingested::Stored) => found.unannounced += 1,
                Ok(_) => {}
                Err(fault) => {
                    tracing::info!(job_id = %fact.job, %fault, "could not store found job");
                    found.failed += 1;
                }
            }
        }
    }
    Ok(())
}
