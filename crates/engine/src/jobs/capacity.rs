//! Capacity under a ceiling: notes the lanes whose jobs wait for it, and wakes workers when some is
//! freed.
//!
//! Not here: which waiting job is next ([`super::workers`]).

use bullpen_core::job::Job;
use bullpen_core::job::capacity::WaitingLanes;
use bullpen_core::ports::{Fifo, Ports};

use super::{Service, queues};
use crate::Stack;
use crate::stored_parameters;

/// Notes in the ledger that a job waits for capacity. If that fails, the sweep finds the job.
pub(super) async fn wait_for_capacity<P: Ports, J>(service: &Service<'_, P, J>, job: &Job) {
    let stack = service.stack;
    let now = stack.now();
    let Some(at) = job.waiting_at() else { return };
    if !service.announced_lanes().is_news(&at.lane, now) {
        return;
    }
    let with = |kept: Option<WaitingLanes>| kept.unwrap_or_default().with(job, now);
    if let Err(fault) = stored_parameters::update(stack, service.patience(), with).await {
        tracing::info!(lane = at.lane, %fault, "could not note lane without capacity");
        service.announced_lanes().forget(&at.lane);
    }
}

/// Wakes a worker in every lane where jobs wait for capacity, once for each machine that has ended
/// or become idle. `marks` tell the machines apart, so that the queue drops a repeated wake-up.
pub(crate) async fn freed<P: Ports>(stack: &Stack<P>, marks: &[String]) {
    if marks.is_empty() {
        return;
    }
    let waiting_lanes = match stored_parameters::load::<P, WaitingLanes>(stack, stack.now()).await {
        Ok(stored) => stored.unwrap_or_default(),
        Err(fault) => {
            tracing::info!(%fault, "could not read lanes without capacity");
            return;
        }
    };
    for wake in waiting_lanes.wakes(stack.now()) {
        for mark in marks {
            // Each wake-up has a FIFO group of its own, so that none waits for an earlier one.
            let group = format!("room.{}.{mark}", wake.job);
            let fifo = Fifo { group: group.clone(), deduplication: group };
            queues::send(stack, &queues::launch_queue(stack), &wake, fifo).await;
        }
    }
}
