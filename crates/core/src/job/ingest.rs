//! What a fact makes of what is stored: the decision between a webhook and a job's row, and the same
//! one for what GitHub answers when it is asked.
//!
//! Not here: storing it. A writer that loses the race reads again and asks again.

use super::placing::{Placed, place};
use super::{Fact, Job, Life, Refusal};
use crate::limits::Limits;
use crate::route::{NotOurs, Routing, route};
use crate::time::Timestamp;

/// What to do about a fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ingested {
    /// Nothing: the job is none of ours.
    NotOurs(NotOurs),
    /// Nothing: the row says it already.
    Unchanged,
    /// Store this over what was read.
    Store(Job),
}

/// Decides about a fact, by the row that was read, if there was one. `cancels` says whether the run
/// of a job that cannot be served is cancelled in the end.
pub fn ingest(
    stored: Option<&Job>,
    fact: &Fact,
    routing: &Routing<'_>,
    now: Timestamp,
    limits: &Limits,
    cancels: bool,
) -> Result<Ingested, Refusal> {
    let job = match stored {
        Some(job) => job.learn(fact, now, limits)?,
        None => Job::first(fact, now, limits),
    };
    let about = &job.known.about;
    let routed = route(&about.labels, &about.repository, routing);
    let cancel_by = cancels.then(|| now.after(limits.job_deadline));
    // GitHub leaves the labels out of some last words. They are kept: a late first word has to find
    // that the job is over. And what is a row of ours stays one, whatever the configuration is now.
    let is_strange = !about.labels.is_empty() && (stored.is_none() || wants_a_lane(&job));
    let next = match place(&routed, now, cancel_by) {
        Placed::NotOurs(why) if is_strange => return Ok(Ingested::NotOurs(why)),
        Placed::Event(event) if wants_a_lane(&job) => job.on(&event)?,
        Placed::NotOurs(_) | Placed::Waits | Placed::Event(_) => job,
    };
    Ok(if stored == Some(&next) { Ingested::Unchanged } else { Ingested::Store(next) })
}

/// Nobody is refused before they ask.
const fn wants_a_lane(job: &Job) -> bool {
    job.lane.is_none() && matches!(job.life, Life::Waiting { .. })
}
