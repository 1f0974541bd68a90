//! What a fact makes of what is stored: the decision between a webhook and a job's row, and the same
//! one for what GitHub answers when it is asked.
//!
//! Not here: storing it. A writer that loses the race reads again and asks again.

use super::placement::{Placement, place};
use super::{Job, JobEvent, JobFact, JobRefusal, JobState, Lane};
use crate::ids::RequestId;
use crate::limits::Limits;
use crate::route::{NotOurs, Routing, route};
use crate::time::Timestamp;

/// What to do about a fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IngestOutcome {
    /// Nothing: the job is none of ours.
    NotOurs(NotOurs),
    /// Nothing: the row says it already.
    Unchanged,
    /// Store this over what was read.
    Store(Job),
}

/// Decides about a fact, by the row that was read, if there was one. `again` is the request, over by
/// now, whose label the job carries; `cancels` says whether the run of a job that cannot be served is
/// cancelled in the end.
pub fn ingest(
    stored: Option<&Job>,
    fact: &JobFact,
    routing: &Routing<'_>,
    again: Option<&RequestId>,
    now: Timestamp,
    limits: &Limits,
    cancels: bool,
) -> Result<IngestOutcome, JobRefusal> {
    // Whatever is stored, and whatever request the label belongs to: it is not ours to learn.
    if !routing.scope.serves(&fact.about.repository) {
        return Ok(IngestOutcome::NotOurs(NotOurs::Outside));
    }
    let job = match stored {
        Some(job) => job.learn(fact, now, limits)?,
        None => Job::first(fact, now, limits),
    };
    // GitHub leaves the labels out of some last words. They are kept: a late first word has to find
    // that the job is over. Any other job without labels asks for a group of runners, and is nobody's.
    let are_last_words = job.known.about.labels.is_empty() && job.is_over();
    // What is a row of ours stays one, whatever the configuration is now.
    let is_strange = !are_last_words && (stored.is_none() || wants_a_lane(&job));
    let placed = match again {
        Some(request) => {
            Placement::Event(JobEvent::Routed { lane: Lane::Request(request.clone()), at: now })
        }
        None => placed(&job, routing, now, limits, cancels),
    };
    let next = match placed {
        Placement::NotOurs(why) if is_strange => return Ok(IngestOutcome::NotOurs(why)),
        placed => follow(job, &placed)?,
    };
    Ok(if stored == Some(&next) { IngestOutcome::Unchanged } else { IngestOutcome::Store(next) })
}

/// A stored job where its route puts it now: in a lane, or failed. One that does not wait, or that is
/// not ours any more, stays as it is.
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

/// Nobody is refused before they ask.
fn follow(job: Job, placed: &Placement) -> Result<Job, JobRefusal> {
    match placed {
        Placement::Event(event) if waits(&job) => job.on(event),
        Placement::NotOurs(_) | Placement::Waits | Placement::Event(_) => Ok(job),
    }
}

const fn waits(job: &Job) -> bool {
    matches!(job.state, JobState::Waiting { .. })
}

const fn wants_a_lane(job: &Job) -> bool {
    job.lane.is_none() && waits(job)
}
