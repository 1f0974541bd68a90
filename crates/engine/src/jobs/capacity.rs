//! Room under a ceiling: jobs that found none are written down, and woken when some is made.
//!
//! Not here: whose turn it is then ([`super::workers`]).

use bullpen_core::job::Job;
use bullpen_core::job::capacity::WaitingLanes;
use bullpen_core::ports::{Fifo, Ports};

use super::{Service, queues};
use crate::Stack;
use crate::stored_parameters;

/// Writes down that a job waits for room. If this does not land, the sweep comes to the job.
pub(super) async fn wait_for_capacity<P: Ports, J>(service: &Service<'_, P, J>, job: &Job) {
    let stack = service.stack;
    let now = stack.now();
    let Some(at) = job.waiting_at() else { return };
    if !service.announced_lanes().is_news(&at.lane, now) {
        return;
    }
    let with = |kept: Option<WaitingLanes>| kept.unwrap_or_default().with(job, now);
    if let Err(fault) = stored_parameters::update(stack, service.patience(), with).await {
        tracing::info!(lane = at.lane, %fault, "not written down that jobs wait for room");
        service.announced_lanes().forget(&at.lane);
    }
}

/// Some machines have ended, or are idle: for each somebody is woken in every lane where jobs wait for
/// room. `marks` tell them apart, so that telling twice is telling once.
pub(crate) async fn freed<P: Ports>(stack: &Stack<P>, marks: &[String]) {
    if marks.is_empty() {
        return;
    }
    let announced_lanes = match stored_parameters::load::<P, WaitingLanes>(stack, stack.now()).await
    {
        Ok(announced_lanes) => announced_lanes.unwrap_or_default(),
        Err(fault) => {
            tracing::info!(%fault, "nobody was told that there is room");
            return;
        }
    };
    for wake in announced_lanes.wakes(stack.now()) {
        for mark in marks {
            // A group of its own: nobody who is told waits for whoever was told before.
            let told = format!("room.{}.{mark}", wake.job);
            let fifo = Fifo { group: told.clone(), deduplication: told };
            queues::send(stack, &queues::launch_queue(stack), &wake, fifo).await;
        }
    }
}
