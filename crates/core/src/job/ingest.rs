//! The decision from a fact and the stored row to the next row, for webhooks and for GitHub's
//! answers alike.
//!
//! Not here: storing the row. A writer that loses the race reads again and decides again.

use super::placement::{Placement, place};
use super::{Job, JobEvent, JobFact, JobRefusal, JobState, Lane};
use crate::ids::RequestId;
use crate::limits::Limits;
use crate::route::{NotOurs, Routing, route};
use crate::time::Timestamp;

/// What to do about a fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IngestOutcome {
    /// Nothing: this stack does not serve the job.
    NotOurs(NotOurs),
    /// Nothing: the row holds the fact already.
    Unchanged,
    /// Store this over the row that was read.
    Store(Job),
}

/// Decides about a fact, by the row that was read, if there was one. `again` is the request, over
/// by now, whose label the job carries. `cancels` says whether the service finally cancels the run
/// of a job that it cannot serve.
pub fn ingest(
    stored: Option<&Job>,
    fact: &JobFact,
    routing: &Routing<'_>,
    again: Option<&RequestId>,
    now: Timestamp,
    limits: &Limits,
    cancels: bool,
) -> Result<IngestOutcome, JobRefusal> {
    // Neither a stored row nor a request's label makes a fact from outside the scope ours.
    if !routing.scope.serves(&fact.about.repository) {
        return Ok(IngestOutcome::NotOurs(NotOurs::Outside));
    }
    let job = match stored {
        Some(job) => job.learn(fact, now, limits)?,
        None => Job::first(fact, now, limits),
    };
    // GitHub leaves the labels out of some final reports. Such a report is stored, so that a late
    // first report finds that the job is over. Any other job without labels asks for a runner
    // group, and is not ours.
    let is_final_report = job.known.about.labels.is_empty() && job.is_over();
    // A row that has been ours stays ours under any configuration.
    let may_be_foreign = !is_final_report && (stored.is_none() || is_unrouted(&job));
    let placed = match again {
        Some(request) => {
            Placement::Event(JobEvent::Routed { lane: Lane::Request(request.clone()), at: now })
        }
        None => placed(&job, routing, now, limits, cancels),
    };
    let next = match placed {
        Placement::NotOurs(why) if may_be_foreign => return Ok(IngestOutcome::NotOurs(why)),
        placed => follow(job, &placed)?,
    };
    Ok(if stored == Some(&next) { IngestOutcome::Unchanged } else { IngestOutcome::Store(next) })
}

/// Routes a stored job again: it gets a lane, or fails. A job that does not wait, or is not ours
/// any more, stays as it is.
pub fn reroute(
    job: Job,
    routing: &Routing<'_>,
    now: Timestamp,
    limits: &Limits,
    cancels: bool,
) -> Result<Job, JobRefusal> {
    let placed = placed(&job, routing, now, limits, cancels);
    follow(job, &placed)
}

fn placed(
    job: &Job,
    routing: &Routing<'_>,
    now: Timestamp,
    limits: &Limits,
    cancels: bool,
) -> Placement {
    let about = &job.known.about;
    let cancel_by = cancels.then(|| now.after(limits.job_deadline));
    place(&route(&about.labels, &about.repository, &about.run, routing), now, cancel_by)
}

/// Places only a waiting job: a job that wants no runner yet must not fail.
fn follow(job: Job, placed: &Placement) -> Result<Job, JobRefusal> {
    match placed {
        Placement::Event(event) if waits(&job) => job.on(event),
        Placement::NotOurs(_) | Placement::Waits | Placement::Event(_) => Ok(job),
    }
}

const fn waits(job: &Job) -> bool {
    matches!(job.state, JobState::Waiting { .. })
}

const fn is_unrouted(job: &Job) -> bool {
    job.lane.is_none() && waits(job)
}
