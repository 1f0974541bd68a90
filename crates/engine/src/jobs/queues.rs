//! The two queues that wake workers: one for jobs of pools, one for jobs that may be launched for.
//!
//! The launch queue is FIFO with the job as its group, so that one job is one worker's at a time, and
//! with job and revision as the deduplication id, so that telling twice is telling once.
//!
//! Not here: receiving ([`super::workers`]).

use std::time::Duration;

use bullpen_core::ids::QueueName;
use bullpen_core::job::wake::{DEAD_LETTERS, LAUNCH_QUEUE, POOL_QUEUE};
use bullpen_core::job::{DeadLetter, Job, JobState, Lane, Wake};
use bullpen_core::ports::{Delivery, Fault, Fifo, Outgoing, Ports, QueueKind, QueueSpec, Queues};

use super::rows::SeenRow;
use crate::Stack;
use crate::retry::retry_until;

/// How long a received message stays hidden. A worker that takes longer loses only the message: the
/// row says that it is at work.
const VISIBILITY: Duration = Duration::from_secs(60);

/// How long a message that nobody can do anything about is kept for people to look at: what SQS
/// allows.
const DEAD_LETTER_RETENTION: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// The queue of jobs that a pool serves.
pub fn pool_queue<P: Ports>(stack: &Stack<P>) -> QueueName {
    QueueName::new(format!("{}-{POOL_QUEUE}", stack.name))
}

/// The queue of jobs that may be launched for, and of those that something is left to do about.
pub fn launch_queue<P: Ports>(stack: &Stack<P>) -> QueueName {
    QueueName::new(format!("{}-{LAUNCH_QUEUE}", stack.name))
}

/// The queue of messages that nobody can do anything about.
pub fn dead_letter_queue<P: Ports>(stack: &Stack<P>) -> QueueName {
    QueueName::new(format!("{}-{DEAD_LETTERS}", stack.name))
}

/// Makes the queues.
pub async fn ensure_queues<P: Ports>(stack: &Stack<P>) -> Result<(), Fault> {
    let until = stack.now().after(stack.limits.release_retry);
    for (name, kind, retention) in [
        (pool_queue(stack), QueueKind::Standard, stack.limits.pool_queue_retention),
        (launch_queue(stack), QueueKind::Fifo, stack.limits.pool_queue_retention),
        (dead_letter_queue(stack), QueueKind::Standard, DEAD_LETTER_RETENTION),
    ] {
        let spec = QueueSpec { name, kind, visibility: VISIBILITY, retention, dead_letters: None };
        retry_until(stack, until, || stack.ports.queues().ensure(&spec)).await?;
    }
    Ok(())
}

/// Wakes whoever can do something about this row now. A wake-up that does not arrive costs time: the
/// sweep finds the row.
pub(super) async fn wake<P: Ports>(stack: &Stack<P>, seen: &SeenRow) {
    let job = &seen.job;
    let queue = match &job.state {
        JobState::Waiting { .. } => match job.lane {
            Some(Lane::Pool(_)) if !job.overflowed => pool_queue(stack),
            Some(_) => launch_queue(stack),
            None => return,
        },
        JobState::Assigning { .. } => launch_queue(stack),
        JobState::Assigned { .. } | JobState::Elsewhere if job.taken_by_another().is_some() => {
            launch_queue(stack)
        }
        JobState::Ended { debts, .. } if !debts.is_settled() => launch_queue(stack),
        JobState::Dormant
        | JobState::Assigned { .. }
        | JobState::Elsewhere
        | JobState::Ended { .. } => return,
    };
    let wake = Wake { job: job.id.clone(), lane: lane_text(job) };
    let fifo =
        Fifo { group: job.id.to_string(), deduplication: format!("{}.{}", job.id, seen.revision) };
    send(stack, &queue, &wake, fifo).await;
}

/// Sends a wake-up, if that can be done now.
pub(super) async fn send<P: Ports>(stack: &Stack<P>, queue: &QueueName, wake: &Wake, fifo: Fifo) {
    let message = Outgoing { body: wake.encode(), delay: Duration::ZERO, fifo: Some(fifo) };
    let sent = stack.ports.queues().send(queue, std::slice::from_ref(&message)).await;
    let sent: Result<(), Fault> = sent.and_then(|answers| answers.into_iter().collect());
    if let Err(fault) = sent {
        tracing::info!(job_id = %wake.job, %fault, "nobody was woken");
    }
}

/// Puts a message that nobody can do anything about where people find it, with the reason, and takes
/// it out of its queue, so that it blocks nothing. The row it was about is found by the sweep.
pub(super) async fn bury<P: Ports>(
    stack: &Stack<P>,
    queue: &QueueName,
    delivery: &Delivery,
    reason: &str,
) -> Result<(), Fault> {
    tracing::warn!(%queue, reason, body = delivery.body, "a message is put aside");
    let letter = DeadLetter { queue, reason, receives: delivery.receives, body: &delivery.body };
    let letter = Outgoing::now(letter.encode());
    let sent = stack.ports.queues().send(&dead_letter_queue(stack), &[letter]).await?;
    sent.into_iter().collect::<Result<(), Fault>>()?;
    stack.ports.queues().delete(queue, std::slice::from_ref(&delivery.receipt)).await
}

fn lane_text(job: &Job) -> Option<String> {
    Some(job.waiting_at()?.lane)
}
