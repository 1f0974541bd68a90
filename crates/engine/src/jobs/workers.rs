//! Workers: they receive wake-ups and serve waiting rows in the lanes that the messages name.
//!
//! A message names a lane, and the fair queue picks the job. A worker receives ten messages at a
//! time; messages of one lane share one read of its waiting rows and one of the pool's idle
//! machines, and each message serves one row. The worker deletes a message once it has served a
//! row: any task left has a message of its own, or the sweep finds it.
//!
//! Not here: which repository is next (`core::job::fair`), or serving one row ([`super::assign`]).

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bullpen_core::ids::{PoolName, QueueName, Repository};
use bullpen_core::job::{Job, JobState, UnreadableWake, Wake};
use bullpen_core::limits::MESSAGES_PER_CALL_MAX;
use bullpen_core::pool::WaitingJob;
use bullpen_core::ports::{Clock, Delivery, Fault, JobForge, Ledger, Ports, Queues, WaitingAt};
use bullpen_core::sabotage;
use bullpen_core::time::Timestamp;
use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::assign::{Reach, assign_seen};
use super::candidates::{self, PoolLines};
use super::queues::{dead_letter, ensure_queues, launch_queue, pool_queue};
use super::rows::SeenRow;
use super::settings::WantDecision;
use super::{Processed, Service, process};
use crate::Stack;
use crate::retry::retry_until;

/// The longest time that a message is hidden: less than the twelve hours that SQS allows.
const HIDDEN_MAX: Duration = Duration::from_secs(10 * 60 * 60);
/// How long a message is hidden if its lane has no free turn.
const TURNS_TAKEN: Duration = Duration::from_secs(2);
/// How long a worker of this process may still hold a row that it has set back.
const LET_GO: Duration = Duration::from_millis(500);
/// How many rows a worker loses to other processes before it defers the message.
const RACES_MAX: u32 = 5;
/// How many messages one worker handles at once: more than one repository's burst may take up
/// (`Shares::busy`), so that it still receives messages of other repositories.
const HANDLED_MAX: usize = 320;
/// How long a receive waits for the first message: the longest that SQS allows.
const RECEIVE_WAIT: Duration = Duration::from_secs(20);
/// How long a worker waits after a failed receive.
const AFTER_FAULT: Duration = Duration::from_secs(2);

/// The handling of one message.
type Task<'t> = Pin<Box<dyn Future<Output = ()> + 't>>;

/// Where a worker receives wake-ups.
#[derive(Clone, Copy)]
enum Source {
    /// The queue.
    Queue,
    /// This process, which keeps those that the queue did not take.
    Kept,
}

/// Receives and handles messages until the process takes on nothing new; returns when it has
/// handled all messages that it received.
pub(super) async fn work<P: Ports, J: JobForge>(service: &Service<'_, P, J>, reach: Reach) {
    /// The outcome of a running future.
    enum Completed<'t> {
        Received(Source, Vec<Task<'t>>),
        Handled,
    }
    type Running<'t> = FuturesUnordered<Pin<Box<dyn Future<Output = Completed<'t>> + 't>>>;
    let receive = |source: Source, free: usize| async move {
        let max = free.min(MESSAGES_PER_CALL_MAX);
        let received = match source {
            Source::Queue => {
                let received = receive_tasks(service, reach, max, RECEIVE_WAIT);
                // After a panic the messages that it took become visible again.
                let received = service.stack.caught("receive", "", received).await;
                received.unwrap_or_else(|defect| Err(defect.into()))
            }
            Source::Kept => Ok(take_kept(service, reach).await),
        };
        let tasks = match received {
            Ok(tasks) => tasks,
            Err(fault) => {
                tracing::warn!(%fault, "could not receive from queue");
                make_again(service.stack, &fault).await;
                service.stack.ports.clock().sleep(AFTER_FAULT).await;
                Vec::new()
            }
        };
        Completed::Received(source, tasks)
    };
    let mut running: Running<'_> = FuturesUnordered::new();
    let mut unwatched = vec![Source::Queue, Source::Kept];
    let watched = unwatched.len();
    loop {
        // The receives are among the running futures.
        let free = (HANDLED_MAX + watched).saturating_sub(running.len());
        if free > 0 && service.takes() {
            for source in unwatched.drain(..) {
                running.push(Box::pin(receive(source, free)));
            }
        }
        match running.next().await {
            Some(Completed::Received(source, tasks)) => {
                unwatched.push(source);
                for task in tasks {
                    running.push(Box::pin(async move {
                        // The panics about rows are caught further in.
                        let _ = service.stack.caught("message", "", task).await;
                        Completed::Handled
                    }));
                }
            }
            Some(Completed::Handled) => {}
            None => return,
        }
    }
}

/// Makes the queues again if one of them was deleted. A failure is not retried here: the next receive
/// fails again.
async fn make_again<P: Ports>(stack: &Stack<P>, fault: &Fault) {
    if *fault != Fault::NotFound || sabotage!("deleted-queues-stay-deleted") {
        return;
    }
    match ensure_queues(stack).await {
        Ok(()) => tracing::warn!("made deleted queues again"),
        Err(fault) => tracing::warn!(%fault, "could not make deleted queues again"),
    }
}

/// Handles up to ten messages of the pool queue and returns how many it received. Waits up to
/// `wait` for the first.
pub async fn pool_worker<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    wait: Duration,
) -> Result<usize, Fault> {
    once(service, Reach::Idle, wait).await
}

/// Handles up to ten messages of the launch queue and returns how many it received.
pub async fn launch_worker<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    wait: Duration,
) -> Result<usize, Fault> {
    once(service, Reach::Launch, wait).await
}

async fn once<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    reach: Reach,
    wait: Duration,
) -> Result<usize, Fault> {
    let tasks = receive_tasks(service, reach, MESSAGES_PER_CALL_MAX, wait).await?;
    Ok(join_all(tasks).await.len())
}

/// Receives messages and makes one task of each.
async fn receive_tasks<'t, P: Ports, J: JobForge>(
    service: &'t Service<'_, P, J>,
    reach: Reach,
    max: usize,
    wait: Duration,
) -> Result<Vec<Task<'t>>, Fault> {
    let queue = queue_of(service.stack, reach);
    if service.stack.misleads().is_some() {
        // The messages are for a process whose clock is right, or wait until this one's is.
        service.stack.ports.clock().sleep(AFTER_FAULT).await;
        return Ok(Vec::new());
    }
    let received = tokio::select! {
        biased;
        // A message that arrives too late becomes visible again, for another process.
        () = service.takes_no_more() => return Ok(Vec::new()),
        received = service.stack.ports.queues().receive(&queue, max, wait) => received?,
    };
    let (mut messages, mut tasks): (_, Vec<Task<'t>>) = (Vec::new(), Vec::new());
    for delivery in received {
        match Wake::decode(&delivery.body) {
            Ok(wake) => {
                messages.push(Message { queue: queue.clone(), wake, delivery: Some(delivery) });
            }
            // The message becomes visible again, for a process of the version that wrote it.
            Err(UnreadableWake::AnotherVersion(v)) => {
                tracing::info!(v, "skipped wake-up of another version");
            }
            Err(UnreadableWake::Garbage(why)) => {
                let queue = queue.clone();
                tasks.push(Box::pin(async move {
                    let moved = dead_letter(service.stack, &queue, &delivery, &why).await;
                    if let Err(fault) = moved {
                        tracing::info!(%fault, "could not move message to dead-letter queue");
                    }
                }));
            }
        }
    }
    handle(service, reach, messages, &mut tasks).await;
    Ok(tasks)
}

/// Takes kept wake-ups and makes one task of each.
async fn take_kept<'t, P: Ports, J: JobForge>(
    service: &'t Service<'_, P, J>,
    reach: Reach,
) -> Vec<Task<'t>> {
    let queue = queue_of(service.stack, reach);
    let wakes = tokio::select! {
        biased;
        () = service.takes_no_more() => return Vec::new(),
        wakes = service.stack.kept_wakes().take(service.stack, &queue) => wakes,
    };
    let messages =
        wakes.into_iter().map(|wake| Message { queue: queue.clone(), wake, delivery: None });
    let mut tasks = Vec::new();
    handle(service, reach, messages.collect(), &mut tasks).await;
    tasks
}

/// Makes one task of each message.
async fn handle<'t, P: Ports, J: JobForge>(
    service: &'t Service<'_, P, J>,
    reach: Reach,
    messages: Vec<Message>,
    tasks: &mut Vec<Task<'t>>,
) {
    let mut lanes: BTreeMap<String, Vec<Message>> = BTreeMap::new();
    for message in messages {
        match message.wake.lane.clone() {
            Some(lane) => lanes.entry(lane).or_default().push(message),
            None => tasks.push(Box::pin(async move {
                let processed = process(service, &message.wake.job).await;
                message.settle(service, processed).await;
            })),
        }
    }
    for (lane, messages) in lanes {
        assign_turns(service, reach, &lane, messages, tasks).await;
    }
}

/// The queue of workers with this reach.
fn queue_of<P: Ports>(stack: &Stack<P>, reach: Reach) -> QueueName {
    match reach {
        Reach::Idle => pool_queue(stack),
        Reach::Launch => launch_queue(stack),
    }
}

/// Begins a turn for each message that named this lane, and makes one task of each.
async fn assign_turns<'t, P: Ports, J: JobForge>(
    service: &'t Service<'_, P, J>,
    reach: Reach,
    lane: &str,
    messages: Vec<Message>,
    tasks: &mut Vec<Task<'t>>,
) {
    let waiting = match waiting(service, reach, lane).await {
        Ok(waiting) => Arc::new(waiting),
        Err(fault) => {
            for message in messages {
                let fault = fault.clone();
                tasks.push(Box::pin(message.settle(service, Err(fault))));
            }
            return;
        }
    };
    let turns: Vec<_> = messages.iter().map(|_| Turn::begin(service, &waiting)).collect();
    let mut wanted = Vec::new();
    for job in turns.iter().flatten().map(|turn| &turn.seen.job) {
        // The job's own worker meets the same panic, and counts it.
        let want = service.stack.caught("row", &job.id, async { pool_wanted(service, job) }).await;
        wanted.extend(want.ok().flatten());
    }
    let lines = Arc::new(PoolLines::of(wanted));
    for (message, turn) in messages.into_iter().zip(turns) {
        let (lane, shared) = (lane.to_owned(), (Arc::clone(&waiting), Arc::clone(&lines)));
        tasks.push(Box::pin(async move {
            let processed = match turn {
                Ok(turn) => serve(service, reach, &lane, turn, shared).await,
                Err(processed) => Ok(processed),
            };
            message.settle(service, processed).await;
        }));
    }
}

/// The pool that serves a job first, and the job as that pool's line has it.
fn pool_wanted<P: Ports, J>(
    service: &Service<'_, P, J>,
    job: &Job,
) -> Option<(PoolName, WaitingJob)> {
    let stack = service.stack;
    match service.settings().want(job, stack, stack.now()) {
        WantDecision::Machine(wanted) => {
            Some((wanted.pool.clone()?, candidates::seeker(&job.id, &wanted)))
        }
        WantDecision::Nothing(_) | WantDecision::Unknown => None,
    }
}

/// A wake-up that a worker has received.
struct Message {
    queue: QueueName,
    wake: Wake,
    /// None if this process kept it.
    delivery: Option<Delivery>,
}

impl Message {
    /// Deletes or hides the message. After a transient fault it becomes visible again by itself.
    async fn settle<P: Ports, J>(
        self,
        service: &Service<'_, P, J>,
        processed: Result<Processed, Fault>,
    ) {
        let Some(delivery) = &self.delivery else { return self.keep(service.stack, &processed) };
        let (stack, receipt) = (service.stack, &delivery.receipt);
        let queues = stack.ports.queues();
        let settled = match processed {
            Ok(Processed::Done | Processed::Taken | Processed::NoCapacity) => {
                queues.delete(&self.queue, std::slice::from_ref(receipt)).await
            }
            Ok(Processed::Again { at }) => {
                let hidden = at.since(stack.now()).min(HIDDEN_MAX);
                queues.defer(&self.queue, receipt, hidden).await
            }
            Err(fault) if fault.is_transient() => Err(fault),
            Err(fault) => dead_letter(stack, &self.queue, delivery, &fault.to_string()).await,
        };
        if let Err(fault) = settled {
            tracing::info!(%fault, body = delivery.body, "could not settle wake-up");
        }
    }

    /// Keeps a kept wake-up for another try, if one is needed.
    fn keep<P: Ports>(&self, stack: &Stack<P>, processed: &Result<Processed, Fault>) {
        let due_after = match processed {
            Ok(Processed::Done | Processed::Taken | Processed::NoCapacity) => return,
            Ok(Processed::Again { at }) => at.since(stack.now()),
            Err(fault) => {
                tracing::info!(%fault, job_id = %self.wake.job, "could not settle wake-up");
                if !fault.is_transient() {
                    // The sweep finds the row.
                    return;
                }
                AFTER_FAULT
            }
        };
        stack.kept_wakes().keep(stack, &self.queue, &self.wake, due_after);
    }
}

/// Serves one row of a lane. If another process was faster, it serves the next row; if a ceiling
/// leaves no capacity, a row of another repository, which may use machines that this one may not. It
/// reads the lane again only if the rows that it knows have changed: while a ceiling is full, every
/// row of the lane is tried again and again.
async fn serve<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    reach: Reach,
    lane: &str,
    mut turn: Turn<'_, '_, P, J>,
    (mut known, mut lines): (Arc<Waiting>, Arc<PoolLines>),
) -> Result<Processed, Fault> {
    let mut without_capacity = BTreeSet::new();
    for _ in 0..RACES_MAX {
        let assigning = assign_seen(service, &turn.seen, reach, &lines);
        let mut has_changed = false;
        match service.serve_row(&turn.seen.job.id, assigning).await? {
            Processed::Taken => has_changed = true,
            Processed::NoCapacity => {
                without_capacity.insert(turn.repository.clone());
            }
            // A row that was set back has a new wake-up.
            Processed::Done | Processed::Again { .. } => return Ok(Processed::Done),
        }
        // The turn ends before the next one begins.
        drop(turn);
        if has_changed || sabotage!("each-try-reads-the-lane") {
            known = Arc::new(waiting(service, reach, lane).await?);
        }
        let mut others = Waiting::clone(&known);
        others.ready.retain(|repository, _| !without_capacity.contains(repository));
        if others.ready.is_empty() && !without_capacity.is_empty() {
            return Ok(Processed::NoCapacity);
        }
        turn = match Turn::begin(service, &others) {
            Ok(turn) => turn,
            Err(processed) => return Ok(processed),
        };
        // The shared read of the pool is old by now, and did not cover this job.
        lines = Arc::default();
    }
    Ok(Processed::Again { at: service.stack.now().after(TURNS_TAKEN) })
}

/// A repository's turn with one of its jobs. Dropping it ends the turn.
struct Turn<'s, 'a, P: Ports, J> {
    service: &'s Service<'a, P, J>,
    repository: Repository,
    /// The job's row as the lane's listing had it.
    seen: SeenRow,
}

impl<'s, 'a, P: Ports, J> Turn<'s, 'a, P, J> {
    /// Begins the next turn among the waiting jobs; without one, returns when to look again.
    fn begin(service: &'s Service<'a, P, J>, waiting: &Waiting) -> Result<Self, Processed> {
        let mut under_way = service.under_way();
        let free: BTreeMap<&Repository, &SeenRow> = waiting
            .ready
            .iter()
            .filter_map(|(repository, rows)| {
                Some((repository, rows.iter().find(|seen| !under_way.contains(&seen.job.id))?))
            })
            .collect();
        if free.is_empty() {
            // Other workers of this process have all of them, or their time has not come.
            return Err(waiting.soonest.map_or(Processed::Done, |at| Processed::Again { at }));
        }
        let repositories: BTreeSet<Repository> = free.keys().copied().cloned().collect();
        let turn = service.turns().begin(&repositories, &service.settings().shares);
        let Some((repository, seen)) = turn.and_then(|next| free.get_key_value(&next)) else {
            return Err(Processed::Again { at: service.stack.now().after(TURNS_TAKEN) });
        };
        under_way.insert(seen.job.id.clone());
        Ok(Self { service, repository: (*repository).clone(), seen: (*seen).clone() })
    }
}

impl<P: Ports, J> Drop for Turn<'_, '_, P, J> {
    fn drop(&mut self) {
        self.service.under_way().remove(&self.seen.job.id);
        self.service.turns().end(&self.repository);
    }
}

/// The jobs that wait in a lane.
#[derive(Clone, Default)]
struct Waiting {
    /// The first due rows of each repository, as many as one receive can serve.
    ready: BTreeMap<Repository, Arc<[SeenRow]>>,
    /// When the first of the others is due.
    soonest: Option<Timestamp>,
}

async fn waiting<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    reach: Reach,
    lane: &str,
) -> Result<Waiting, Fault> {
    let (stack, until) = (service.stack, service.patience());
    let ledger = stack.ports.ledger();
    let mut found = Waiting::default();
    for repository in retry_until(stack, until, || ledger.waiting_repositories(lane)).await? {
        let at = WaitingAt { lane: lane.to_owned(), repository };
        let ready = ready_of(service, reach, &at, &mut found.soonest).await?;
        if !ready.is_empty() {
            found.ready.insert(at.repository, ready.into());
        }
    }
    Ok(found)
}

/// Reads the first due rows of one repository that no worker of this process has, as many as one
/// receive can serve.
async fn ready_of<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    reach: Reach,
    at: &WaitingAt,
    soonest: &mut Option<Timestamp>,
) -> Result<Vec<SeenRow>, Fault> {
    let (stack, until) = (service.stack, service.patience());
    let mut ready = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let page =
            retry_until(stack, until, || stack.ports.ledger().waiting(at, cursor.as_deref()))
                .await?;
        let (rows, next) = stack.readable_page(page);
        for row in &rows {
            let seen = match SeenRow::of(row) {
                Ok(seen) => seen,
                Err(bad) if sabotage!("one-bad-row-stops-its-lane") => return Err(bad.into()),
                // The row waits for a process of the version that wrote it, and the lane goes on.
                Err(bad) => {
                    stack.unreadable_items.note(&bad);
                    continue;
                }
            };
            let JobState::Waiting { not_before, .. } = seen.job.state else { continue };
            if service.is_set_aside(&seen.job.id) {
                continue;
            }
            if reach == Reach::Idle && seen.job.overflowed {
                // Its pool had no machine, and its wake-up is in the launch queue.
                continue;
            }
            let later = if not_before > stack.now() {
                not_before
            } else if service.under_way().contains(&row.job) {
                // A worker has just begun it, or has just set it back and sent this message.
                stack.now().after(LET_GO)
            } else {
                ready.push(seen);
                continue;
            };
            *soonest = Some(soonest.map_or(later, |soonest| soonest.min(later)));
        }
        match next {
            Some(next) if ready.len() < MESSAGES_PER_CALL_MAX => cursor = Some(next),
            _ => return Ok(ready),
        }
    }
}
