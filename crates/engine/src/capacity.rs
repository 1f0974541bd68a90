//! Capacity under a ceiling: who waits for it, in which order, and who is told when some is freed.
//!
//! Requests of a class that found a ceiling short wait in a line, in the order they came. Only the
//! first keeps its machines while it waits. All others give theirs back first, so that one request
//! can get enough machines. A request whose process died leaves the line at its deadline.
//!
//! Jobs wait in their lanes. The ledger notes the lanes, and [`freed`] wakes a worker in each.
//!
//! Not here: who is first (`core::request::line`, [`crate::jobs`]), or reserving (`creation`).

use std::time::Duration;

use bullpen_core::creation::CeilingReached;
use bullpen_core::ids::Revision;
use bullpen_core::job::Job;
use bullpen_core::job::capacity::WaitingLanes;
use bullpen_core::pickup::{AdvertVerdict, judge};
use bullpen_core::ports::{Clock, Document, Fault, Fifo, Ids, Ledger, Ports};
use bullpen_core::request::{Request, line};

use crate::Stack;
use crate::document;
use crate::jobs::{Service, queues};
use crate::progress::ProgressEvent;
use crate::provision::worker::Terms;
use crate::release;
use crate::retry::retry_until;
use crate::stored_parameters;

/// How often a waiting request checks whether there is capacity.
const CHECK_AGAIN: Duration = Duration::from_secs(1);
/// How often a waiting request that is not first tries without a sign of capacity.
const TRY_ANYWAY: Duration = Duration::from_secs(15);

/// A request's place in the line.
#[derive(Debug)]
pub(crate) struct PlaceInLine {
    name: String,
}

/// Whether a waiting request still holds its machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holdings {
    /// It holds them.
    Kept,
    /// It gave them back.
    GivenBack,
}

impl PlaceInLine {
    /// Joins the end of the line.
    pub(crate) async fn take<P: Ports>(stack: &Stack<P>, request: &Request) -> Result<Self, Fault> {
        let place = Self { name: line::name(&request.id, stack.now()) };
        place.write(stack, request, false).await?;
        Ok(place)
    }

    /// Leaves the line. If this fails, the place ends at the deadline.
    pub(crate) async fn leave<P: Ports>(self, stack: &Stack<P>, request: &Request) {
        if let Err(fault) = self.write(stack, request, true).await {
            tracing::info!(%fault, "could not leave the waiting line");
        }
    }

    async fn write<P: Ports>(
        &self,
        stack: &Stack<P>,
        request: &Request,
        left: bool,
    ) -> Result<(), Fault> {
        let until = request.deadline.after(stack.limits.release_retry);
        let next = Document {
            collection: line::collection(&request.class),
            name: self.name.clone(),
            revision: Revision(0),
            body: line::StoredPlace { request: request.id.clone(), until: request.deadline, left }
                .encode(),
            forget_at: Some(request.deadline),
        };
        let place = (next.collection.as_str(), next.name.as_str());
        document::change(stack, place, until, |stored| {
            Ok(stored.is_none_or(|stored| stored.body != next.body).then(|| next.clone()))
        })
        .await?;
        Ok(())
    }

    async fn is_first<P: Ports>(&self, stack: &Stack<P>, request: &Request) -> Result<bool, Fault> {
        let collection = line::collection(&request.class);
        let ledger = stack.ports.ledger();
        let places = retry_until(stack, request.deadline, || ledger.documents(&collection)).await?;
        let unreadable = places.unreadable.iter().map(|place| {
            let name = place.key.strip_prefix(&collection).unwrap_or(&place.key);
            (name.trim_start_matches('/'), "")
        });
        let readable = places.items.iter().map(|place| (place.name.as_str(), place.body.as_str()));
        Ok(line::is_first(readable.chain(unreadable), &self.name, stack.now()))
    }
}

/// Waits until another try is worthwhile, or until the request's deadline.
pub(crate) async fn wait<P: Ports>(
    stack: &Stack<P>,
    terms: &Terms<'_>,
    place: &PlaceInLine,
    reached: &CeilingReached,
) -> Result<Holdings, Fault> {
    (terms.tell)(ProgressEvent::WaitingForRoom { why: reached.to_string() });
    let request = terms.request;
    if place.is_first(stack, request).await? {
        pause(stack).await;
        return Ok(Holdings::Kept);
    }
    give_back(stack, terms).await?;
    let tries_at = stack.now().after(TRY_ANYWAY);
    while stack.now() < request.deadline.min(tries_at) {
        pause(stack).await;
        if place.is_first(stack, request).await? || is_enough_idle(stack, request).await? {
            break;
        }
    }
    Ok(Holdings::GivenBack)
}

/// Sleeps with jitter, so that the requests in the line do not act at the same time.
async fn pause<P: Ports>(stack: &Stack<P>) {
    let jitter = Duration::from_millis(stack.ports.ids().jitter(1_000));
    stack.ports.clock().sleep(CHECK_AGAIN + jitter).await;
}

/// Releases every machine that the request holds.
async fn give_back<P: Ports>(stack: &Stack<P>, terms: &Terms<'_>) -> Result<(), Fault> {
    let until = terms.request.deadline.min(stack.now().after(stack.limits.release_acknowledgement));
    let released = release::release(stack, &terms.owner, until, terms.tell).await?;
    tracing::info!(?released, "gave machines back while waiting for capacity");
    Ok(())
}

async fn is_enough_idle<P: Ports>(stack: &Stack<P>, request: &Request) -> Result<bool, Fault> {
    let ledger = stack.ports.ledger();
    let idle = retry_until(stack, request.deadline, || ledger.idle_in(&request.class.name)).await?;
    let (idle, now) = (stack.readable(idle), stack.now());
    let fits = idle
        .iter()
        .filter(|idle| judge(idle, request, &stack.limits, now) == AdvertVerdict::PassOn);
    Ok(fits.count() >= usize::try_from(request.count).unwrap_or(usize::MAX))
}

/// Notes in the ledger that a job waits for capacity. If that fails, the sweep finds the job.
pub(crate) async fn note_waiting<P: Ports, J>(service: &Service<'_, P, J>, job: &Job) {
    let stack = service.stack;
    let now = stack.now();
    let Some(at) = job.waiting_at() else { return };
    if !service.is_lane_news(&at.lane, now) {
        return;
    }
    let with = |kept: Option<WaitingLanes>| kept.unwrap_or_default().with(job, now);
    if let Err(fault) = stored_parameters::update(stack, service.patience(), with).await {
        tracing::info!(lane = at.lane, %fault, "could not note lane without capacity");
        service.forget_lane(&at.lane);
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
