//! Workers: woken by a message, they serve whoever's turn it is in the lane that the message names.
//!
//! A message says where to look, not whom to serve. It is deleted once its look is done: whatever is
//! left to do has a message of its own, or is found by the sweep.
//!
//! Not here: whose turn it is (`core::job::fair`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bullpen_core::ids::{JobId, QueueName, Repository};
use bullpen_core::job::{Life, Wake};
use bullpen_core::limits::MESSAGES_PER_CALL_MAX;
use bullpen_core::ports::{Delivery, Fault, JobForge, Ledger, Ports, Queues, WaitingAt};
use bullpen_core::time::Timestamp;
use futures_util::future::join_all;

use super::assign::{Reach, assign};
use super::queues::{launch_queue, pool_queue};
use super::rows::{self, Seen};
use super::{Attended, Service, attend};
use crate::patience::patiently;

/// The longest a message is hidden: what SQS allows, with room.
const HIDDEN_MAX: Duration = Duration::from_secs(10 * 60 * 60);
/// How long a message is hidden whose lane's turns are all taken.
const TURNS_TAKEN: Duration = Duration::from_secs(2);
/// How many rows are lost to other processes before a message is put off.
const RACES_MAX: u32 = 5;

/// Serves up to ten messages of the pool queue; returns how many there were. `wait` is how long the
/// first is waited for.
pub async fn pool_worker<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    wait: Duration,
) -> Result<usize, Fault> {
    serve(service, &pool_queue(service.stack), Reach::Idle, wait).await
}

/// Serves up to ten messages of the launch queue; returns how many there were.
pub async fn launch_worker<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    wait: Duration,
) -> Result<usize, Fault> {
    serve(service, &launch_queue(service.stack), Reach::Launch, wait).await
}

async fn serve<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    queue: &QueueName,
    reach: Reach,
    wait: Duration,
) -> Result<usize, Fault> {
    let queues = service.stack.ports.queues();
    let deliveries = queues.receive(queue, MESSAGES_PER_CALL_MAX, wait).await?;
    let handled = deliveries.iter().map(|delivery| handle(service, queue, reach, delivery));
    join_all(handled).await;
    Ok(deliveries.len())
}

/// One message: looked at, then deleted or hidden. A fault leaves it to come back by itself.
async fn handle<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    queue: &QueueName,
    reach: Reach,
    delivery: &Delivery,
) {
    let Ok(wake) = Wake::decode(&delivery.body) else {
        // A newer version's, and for it to read.
        tracing::info!("a wake-up is not readable");
        return;
    };
    let queues = service.stack.ports.queues();
    let settled = match look(service, reach, &wake).await {
        Ok(Attended::Done | Attended::Taken) => {
            queues.delete(queue, std::slice::from_ref(&delivery.receipt)).await
        }
        Ok(Attended::Again { at }) => {
            let hidden = at.since(service.stack.now()).min(HIDDEN_MAX);
            queues.defer(queue, &delivery.receipt, hidden).await
        }
        Err(fault) => Err(fault),
    };
    if let Err(fault) = settled {
        tracing::info!(job_id = %wake.job, %fault, "a wake-up comes again");
    }
}

async fn look<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    reach: Reach,
    wake: &Wake,
) -> Result<Attended, Fault> {
    let Some(seen) = rows::load(service.stack, &wake.job, service.patience()).await? else {
        return Ok(Attended::Done);
    };
    match (&seen.job.life, &wake.lane) {
        // Whoever waited here may have been served in another's turn; then it is another's now.
        (Life::Waiting { .. }, _) => serve_lane(service, reach, &lane_of(&seen)).await,
        (Life::Assigned { .. } | Life::Elsewhere, Some(lane)) => {
            serve_lane(service, reach, lane).await
        }
        (Life::Assigning { .. }, Some(lane)) if !seen.is_due(service.stack.now()) => {
            serve_lane(service, reach, lane).await
        }
        _ => attend(service, &wake.job).await,
    }
}

fn lane_of(seen: &Seen) -> String {
    seen.job.waiting_at().map_or_else(String::new, |at| at.lane)
}

/// Serves one row of a lane: of the repository whose turn it is, the first that nobody works on.
async fn serve_lane<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    reach: Reach,
    lane: &str,
) -> Result<Attended, Fault> {
    for _ in 0..RACES_MAX {
        let waiting = waiting(service, lane).await?;
        let turn = match Turn::begin(service, &waiting.ready) {
            Ok(turn) => turn,
            Err(NoTurn::AllTaken) => {
                let at = service.stack.now().after(TURNS_TAKEN);
                return Ok(Attended::Again { at });
            }
            Err(NoTurn::NobodyWaits) => {
                return Ok(waiting.soonest.map_or(Attended::Done, |at| Attended::Again { at }));
            }
        };
        match assign(service, &turn.job, reach).await? {
            // Another process was faster; there may be others.
            Attended::Taken => {}
            // It was woken for anew when it was set back.
            Attended::Done | Attended::Again { .. } => return Ok(Attended::Done),
        }
    }
    Ok(Attended::Again { at: service.stack.now().after(TURNS_TAKEN) })
}

/// A repository's turn with one of its jobs, which ends however it ends.
struct Turn<'s, 'a, P: Ports, J> {
    service: &'s Service<'a, P, J>,
    repository: Repository,
    job: JobId,
}

/// Why there is no turn.
enum NoTurn {
    /// Nobody waits, or others of this process work on all of them.
    NobodyWaits,
    /// Everyone that waits has as much under way as it may.
    AllTaken,
}

impl<'s, 'a, P: Ports, J> Turn<'s, 'a, P, J> {
    fn begin(
        service: &'s Service<'a, P, J>,
        ready: &BTreeMap<Repository, Vec<JobId>>,
    ) -> Result<Self, NoTurn> {
        let mut under_way = service.under_way();
        let next = |jobs: &Vec<JobId>| jobs.iter().find(|job| !under_way.contains(*job)).cloned();
        let free: BTreeMap<Repository, JobId> = ready
            .iter()
            .filter_map(|(repository, jobs)| Some((repository.clone(), next(jobs)?)))
            .collect();
        if free.is_empty() {
            return Err(NoTurn::NobodyWaits);
        }
        let repositories: BTreeSet<Repository> = free.keys().cloned().collect();
        let turn = service.turns().begin(&repositories, &service.settings().shares);
        let Some((repository, job)) = turn.and_then(|whose| free.get_key_value(&whose)) else {
            return Err(NoTurn::AllTaken);
        };
        under_way.insert(job.clone());
        Ok(Self { service, repository: repository.clone(), job: job.clone() })
    }
}

impl<P: Ports, J> Drop for Turn<'_, '_, P, J> {
    fn drop(&mut self) {
        self.service.under_way().remove(&self.job);
        self.service.turns().end(&self.repository);
    }
}

/// Who waits in a lane.
#[derive(Default)]
struct Waiting {
    /// The first of each repository whose time has come, as many as one process takes on.
    ready: BTreeMap<Repository, Vec<JobId>>,
    /// When the soonest of the others is.
    soonest: Option<Timestamp>,
}

async fn waiting<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    lane: &str,
) -> Result<Waiting, Fault> {
    let (stack, until) = (service.stack, service.patience());
    let ledger = stack.ports.ledger();
    let mut found = Waiting::default();
    let enough = usize::try_from(service.settings().shares.cap).unwrap_or(usize::MAX);
    for repository in patiently(stack, until, || ledger.waiting_repositories(lane)).await? {
        let at = WaitingAt { lane: lane.to_owned(), repository };
        let mut ready = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let page = patiently(stack, until, || ledger.waiting(&at, cursor.as_deref())).await?;
            for row in &page.items {
                let Life::Waiting { not_before, .. } = Seen::of(row)?.job.life else { continue };
                if not_before <= stack.now() {
                    ready.push(row.job.clone());
                } else {
                    found.soonest = Some(found.soonest.map_or(not_before, |at| at.min(not_before)));
                }
            }
            match page.next {
                Some(next) if ready.len() <= enough => cursor = Some(next),
                _ => break,
            }
        }
        if !ready.is_empty() {
            found.ready.insert(at.repository, ready);
        }
    }
    Ok(found)
}
