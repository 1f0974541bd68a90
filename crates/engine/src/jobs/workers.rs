//! Workers: woken by messages, they serve whoever's turn it is in the lanes that the messages name.
//!
//! A message says where to look, not whom to serve. Messages are received ten at a time; those of one
//! lane share one look at who waits in it, and one at what stands by for them; each serves one row. A message is deleted once its row
//! is served: whatever is left to do has a message of its own, or is found by the sweep.
//!
//! Not here: whose turn it is (`core::job::fair`), or serving one row ([`super::assign`]).

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bullpen_core::ids::{PoolName, QueueName, Repository};
use bullpen_core::job::{Job, JobState, UnreadableWake, Wake};
use bullpen_core::limits::MESSAGES_PER_CALL_MAX;
use bullpen_core::pool::WaitingJob;
use bullpen_core::ports::{Clock, Delivery, Fault, JobForge, Ledger, Ports, Queues, WaitingAt};
use bullpen_core::time::Timestamp;
use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::assign::{Reach, assign_with};
use super::candidates::{self, PoolLines};
use super::queues::{bury, launch_queue, pool_queue};
use super::rows::SeenRow;
use super::settings::WantDecision;
use super::{Processed, Service, process};
use crate::retry::retry_until;

/// The longest a message is hidden: what SQS allows, with room.
const HIDDEN_MAX: Duration = Duration::from_secs(10 * 60 * 60);
/// How long a message is hidden whose lane's turns are all taken.
const TURNS_TAKEN: Duration = Duration::from_secs(2);
/// How long a worker of this process may take to let go of a row that it has put down.
const LET_GO: Duration = Duration::from_millis(500);
/// How many rows are lost to other processes before a message is put off.
const RACES_MAX: u32 = 5;
/// How many messages one worker has in hand: more than a burst of one repository may take up
/// (`Shares::busy`), so that whoever else comes is heard.
const IN_HAND_MAX: usize = 320;
/// How long a receive waits for the first message: what SQS allows.
const RECEIVE_WAIT: Duration = Duration::from_secs(20);
/// How long a worker waits after a queue did not answer.
const AFTER_FAULT: Duration = Duration::from_secs(2);

/// A message that is being dealt with.
type Task<'t> = Pin<Box<dyn Future<Output = ()> + 't>>;

/// Takes messages and deals with them until the process is to take no more; returns when everything
/// that it had in hand is done.
pub(super) async fn work<P: Ports, J: JobForge>(service: &Service<'_, P, J>, reach: Reach) {
    /// What became of a future in hand.
    enum Came<'t> {
        Taken(Vec<Task<'t>>),
        Done,
    }
    type InHand<'t> = FuturesUnordered<Pin<Box<dyn Future<Output = Came<'t>> + 't>>>;
    let receive = |room: usize| async move {
        let max = room.min(MESSAGES_PER_CALL_MAX);
        match take(service, reach, max, RECEIVE_WAIT).await {
            Ok(tasks) => Came::Taken(tasks),
            Err(fault) => {
                tracing::warn!(%fault, "a queue did not answer");
                service.stack.ports.clock().sleep(AFTER_FAULT).await;
                Came::Taken(Vec::new())
            }
        }
    };
    let mut in_hand: InHand<'_> = FuturesUnordered::new();
    let mut receiving = false;
    loop {
        // The receive is one of those in hand.
        let room = (IN_HAND_MAX + 1).saturating_sub(in_hand.len());
        if !receiving && room > 0 && service.takes() {
            in_hand.push(Box::pin(receive(room)));
            receiving = true;
        }
        match in_hand.next().await {
            Some(Came::Taken(tasks)) => {
                receiving = false;
                for task in tasks {
                    in_hand.push(Box::pin(async move {
                        task.await;
                        Came::Done
                    }));
                }
            }
            Some(Came::Done) => {}
            None => return,
        }
    }
}

/// Deals with up to ten messages of the pool queue; returns how many there were. `wait` is how long
/// the first is waited for.
pub async fn pool_worker<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    wait: Duration,
) -> Result<usize, Fault> {
    once(service, Reach::Idle, wait).await
}

/// Deals with up to ten messages of the launch queue; returns how many there were.
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
    let tasks = take(service, reach, MESSAGES_PER_CALL_MAX, wait).await?;
    Ok(join_all(tasks).await.len())
}

/// Receives messages; each is one task.
async fn take<'t, P: Ports, J: JobForge>(
    service: &'t Service<'_, P, J>,
    reach: Reach,
    max: usize,
    wait: Duration,
) -> Result<Vec<Task<'t>>, Fault> {
    let queue = match reach {
        Reach::Idle => pool_queue(service.stack),
        Reach::Launch => launch_queue(service.stack),
    };
    let received = tokio::select! {
        biased;
        // What arrives all the same is seen again by somebody else.
        () = service.takes_no_more() => return Ok(Vec::new()),
        received = service.stack.ports.queues().receive(&queue, max, wait) => received?,
    };
    let mut tasks: Vec<Task<'t>> = Vec::new();
    let mut lanes: BTreeMap<String, Vec<Message>> = BTreeMap::new();
    for delivery in received {
        let message = Message { queue: queue.clone(), delivery };
        match Wake::decode(&message.delivery.body) {
            Ok(Wake { lane: Some(lane), .. }) => lanes.entry(lane).or_default().push(message),
            Ok(Wake { lane: None, job }) => tasks.push(Box::pin(async move {
                let attended = process(service, &job).await;
                message.settle(service, attended).await;
            })),
            // It becomes visible again, for whoever wrote it.
            Err(UnreadableWake::AnotherVersion(v)) => {
                tracing::info!(v, "a wake-up of another version")
            }
            Err(UnreadableWake::Garbage(why)) => tasks.push(Box::pin(async move {
                let buried = bury(service.stack, &message.queue, &message.delivery, &why).await;
                if let Err(fault) = buried {
                    tracing::info!(%fault, "a poison message comes again");
                }
            })),
        }
    }
    for (lane, messages) in lanes {
        deal(service, reach, &lane, messages, &mut tasks).await;
    }
    Ok(tasks)
}

/// Deals the turns of a lane out to the messages that named it.
async fn deal<'t, P: Ports, J: JobForge>(
    service: &'t Service<'_, P, J>,
    reach: Reach,
    lane: &str,
    messages: Vec<Message>,
    tasks: &mut Vec<Task<'t>>,
) {
    let waiting = match waiting(service, reach, lane).await {
        Ok(waiting) => waiting,
        Err(fault) => {
            for message in messages {
                let fault = fault.clone();
                tasks.push(Box::pin(message.settle(service, Err(fault))));
            }
            return;
        }
    };
    let turns: Vec<_> = messages.iter().map(|_| Turn::begin(service, &waiting)).collect();
    let jobs = turns.iter().flatten().map(|turn| &turn.job);
    let lines = Arc::new(PoolLines::of(jobs.filter_map(|job| seeks(service, job))));
    for (message, turn) in messages.into_iter().zip(turns) {
        let (lane, lines) = (lane.to_owned(), Arc::clone(&lines));
        tasks.push(Box::pin(async move {
            let attended = match turn {
                Ok(turn) => serve(service, reach, &lane, turn, lines).await,
                Err(attended) => Ok(attended),
            };
            message.settle(service, attended).await;
        }));
    }
}

/// The pool that a job would have a machine of, and what that has to know of it.
fn seeks<P: Ports, J>(service: &Service<'_, P, J>, job: &Job) -> Option<(PoolName, WaitingJob)> {
    let stack = service.stack;
    match service.settings().want(job, stack, stack.now()) {
        WantDecision::Machine(wanted) => {
            Some((wanted.pool.clone()?, candidates::seeker(&job.id, &wanted)))
        }
        WantDecision::Nothing(_) | WantDecision::Unknown => None,
    }
}

/// A message in hand.
struct Message {
    queue: QueueName,
    delivery: Delivery,
}

impl Message {
    /// Deletes or hides it. A fault that passes leaves it to come back by itself.
    async fn settle<P: Ports, J>(
        self,
        service: &Service<'_, P, J>,
        attended: Result<Processed, Fault>,
    ) {
        let (stack, receipt) = (service.stack, &self.delivery.receipt);
        let queues = stack.ports.queues();
        let settled = match attended {
            Ok(Processed::Done | Processed::Taken | Processed::NoRoom) => {
                queues.delete(&self.queue, std::slice::from_ref(receipt)).await
            }
            Ok(Processed::Again { at }) => {
                let hidden = at.since(stack.now()).min(HIDDEN_MAX);
                queues.defer(&self.queue, receipt, hidden).await
            }
            Err(fault) if fault.is_transient() => Err(fault),
            Err(fault) => bury(stack, &self.queue, &self.delivery, &fault.to_string()).await,
        };
        if let Err(fault) = settled {
            tracing::info!(%fault, body = self.delivery.body, "a wake-up comes again");
        }
    }
}

/// Serves one row of a lane; if another process was faster, another one, and if there is no room for
/// it, one of another repository: something may stand idle that only those may have.
async fn serve<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    reach: Reach,
    lane: &str,
    mut turn: Turn<'_, '_, P, J>,
    mut lines: Arc<PoolLines>,
) -> Result<Processed, Fault> {
    let mut without_room = BTreeSet::new();
    for _ in 0..RACES_MAX {
        match assign_with(service, &turn.job.id, reach, &lines).await? {
            Processed::Taken => {}
            Processed::NoRoom => {
                without_room.insert(turn.repository.clone());
            }
            // It was woken for anew when it was set back.
            Processed::Done | Processed::Again { .. } => return Ok(Processed::Done),
        }
        // The turn ends before the next one begins.
        drop(turn);
        let mut waiting = waiting(service, reach, lane).await?;
        waiting.ready.retain(|repository, _| !without_room.contains(repository));
        if waiting.ready.is_empty() && !without_room.is_empty() {
            return Ok(Processed::NoRoom);
        }
        turn = match Turn::begin(service, &waiting) {
            Ok(turn) => turn,
            Err(attended) => return Ok(attended),
        };
        // What was seen for the jobs received together is old by now, and was not for this one.
        lines = Arc::default();
    }
    Ok(Processed::Again { at: service.stack.now().after(TURNS_TAKEN) })
}

/// A repository's turn with one of its jobs, which ends however it ends.
struct Turn<'s, 'a, P: Ports, J> {
    service: &'s Service<'a, P, J>,
    repository: Repository,
    job: Job,
}

impl<'s, 'a, P: Ports, J> Turn<'s, 'a, P, J> {
    /// The next turn among those that wait; without one, when to look again.
    fn begin(service: &'s Service<'a, P, J>, waiting: &Waiting) -> Result<Self, Processed> {
        let mut under_way = service.under_way();
        let free: BTreeMap<&Repository, &Job> = waiting
            .ready
            .iter()
            .filter_map(|(repository, jobs)| {
                Some((repository, jobs.iter().find(|job| !under_way.contains(&job.id))?))
            })
            .collect();
        if free.is_empty() {
            // Others of this process work on all of them, or their time has not come.
            return Err(waiting.soonest.map_or(Processed::Done, |at| Processed::Again { at }));
        }
        let repositories: BTreeSet<Repository> = free.keys().copied().cloned().collect();
        let turn = service.turns().begin(&repositories, &service.settings().shares);
        let Some((repository, job)) = turn.and_then(|whose| free.get_key_value(&whose)) else {
            return Err(Processed::Again { at: service.stack.now().after(TURNS_TAKEN) });
        };
        under_way.insert(job.id.clone());
        Ok(Self { service, repository: (*repository).clone(), job: (*job).clone() })
    }
}

impl<P: Ports, J> Drop for Turn<'_, '_, P, J> {
    fn drop(&mut self) {
        self.service.under_way().remove(&self.job.id);
        self.service.turns().end(&self.repository);
    }
}

/// Who waits in a lane.
#[derive(Default)]
struct Waiting {
    /// The first of each repository whose time has come, as many as one process takes on.
    ready: BTreeMap<Repository, Vec<Job>>,
    /// When the soonest of the others is.
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
            found.ready.insert(at.repository, ready);
        }
    }
    Ok(found)
}

/// The first of one repository's rows whose time has come and that nobody here works on: as many as
/// one receive can serve.
async fn ready_of<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    reach: Reach,
    at: &WaitingAt,
    soonest: &mut Option<Timestamp>,
) -> Result<Vec<Job>, Fault> {
    let (stack, until) = (service.stack, service.patience());
    let mut ready = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let page =
            retry_until(stack, until, || stack.ports.ledger().waiting(at, cursor.as_deref()))
                .await?;
        for row in &page.items {
            let job = SeenRow::of(row)?.job;
            let JobState::Waiting { not_before, .. } = job.state else { continue };
            if reach == Reach::Idle && job.overflowed {
                // Its pool had nothing for it, and it has a message for whoever may launch.
                continue;
            }
            let later = if not_before > stack.now() {
                not_before
            } else if service.under_way().contains(&row.job) {
                // It was just taken up, or just put down: whoever put it down sent this message.
                stack.now().after(LET_GO)
            } else {
                ready.push(job);
                continue;
            };
            *soonest = Some(soonest.map_or(later, |soonest| soonest.min(later)));
        }
        match page.next {
            Some(next) if ready.len() < MESSAGES_PER_CALL_MAX => cursor = Some(next),
            _ => return Ok(ready),
        }
    }
}
