//! The two queues that wake workers: one for jobs of pools, one for jobs that may launch a machine.
//!
//! The launch queue is FIFO. Its group is the job, so that only one worker has a job at a time, and
//! its deduplication id is job and revision, so that the queue drops a repeated wake-up.
//!
//! Not here: receiving ([`super::workers`]).

use std::time::Duration;

use bullpen_core::ids::QueueName;
use bullpen_core::job::wake::{DEAD_LETTERS, LAUNCH_QUEUE, POOL_QUEUE};
use bullpen_core::job::{DeadLetter, Job, JobState, Lane, Wake};
use bullpen_core::ports::{Delivery, Fault, Fifo, Outgoing, Ports, QueueKind, QueueSpec, Queues};
use bullpen_core::sabotage;

use super::rows::SeenRow;
use crate::Stack;
use crate::retry::retry_until;

/// How long a received message stays hidden. A worker that takes longer loses only the message: its
/// lease in the row keeps other workers away.
const VISIBILITY: Duration = Duration::from_secs(60);

/// How long a message that no worker can handle is kept for operators: the longest that SQS allows.
const DEAD_LETTER_RETENTION: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// The name of the queue of jobs that a pool serves.
pub fn pool_queue<P: Ports>(stack: &Stack<P>) -> QueueName {
    QueueName::new(format!("{}-{POOL_QUEUE}", stack.name))
}

/// The name of the queue of jobs that may launch a machine, and of rows with other tasks left.
pub fn launch_queue<P: Ports>(stack: &Stack<P>) -> QueueName {
    QueueName::new(format!("{}-{LAUNCH_QUEUE}", stack.name))
}

/// The name of the queue of messages that no worker can handle.
pub fn dead_letter_queue<P: Ports>(stack: &Stack<P>) -> QueueName {
    QueueName::new(format!("{}-{DEAD_LETTERS}", stack.name))
}

/// Creates the three queues where they are missing.
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

/// Wakes a worker that can do something about this row now. A lost wake-up costs only time: the
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
        // It may run, or have run, on a machine that another row has to release.
        JobState::Assigned { .. } | JobState::Elsewhere | JobState::Ended { .. }
            if job.took(&stack.name).is_some() =>
        {
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

/// Sends a wake-up; tries once. A wake-up that the queue does not take goes to this process's own
/// workers, if it has any.
pub(crate) async fn send<P: Ports>(stack: &Stack<P>, queue: &QueueName, wake: &Wake, fifo: Fifo) {
    let kept = stack.kept_wakes();
    if !(kept.are_taken() && kept.rests(stack, queue)) {
        let message = Outgoing { body: wake.encode(), delay: Duration::ZERO, fifo: Some(fifo) };
        let sent = stack.ports.queues().send(queue, std::slice::from_ref(&message)).await;
        let sent: Result<(), Fault> = sent.and_then(|answers| answers.into_iter().collect());
        let Err(fault) = sent else { return };
        tracing::info!(job_id = %wake.job, %fault, "could not send wake-up");
        kept.let_rest(stack, queue);
    }
    if kept.are_taken() && !sabotage!("unsent-wakes-are-lost") {
        kept.keep(stack, queue, wake, Duration::ZERO);
    }
}

/// Moves a message that no worker can handle to the dead-letter queue, with the reason, so that it
/// blocks no other message. The sweep finds the row that it was about.
pub(super) async fn dead_letter<P: Ports>(
    stack: &Stack<P>,
    queue: &QueueName,
    delivery: &Delivery,
    reason: &str,
) -> Result<(), Fault> {
    tracing::warn!(%queue, reason, body = delivery.body, "moving message to dead-letter queue");
    let letter = DeadLetter { queue, reason, receives: delivery.receives, body: &delivery.body };
    let letter = Outgoing::now(letter.encode());
    let sent = stack.ports.queues().send(&dead_letter_queue(stack), &[letter]).await?;
    sent.into_iter().collect::<Result<(), Fault>>()?;
    stack.ports.queues().delete(queue, std::slice::from_ref(&delivery.receipt)).await
}

fn lane_text(job: &Job) -> Option<String> {
    Some(job.waiting_at()?.lane)
}
