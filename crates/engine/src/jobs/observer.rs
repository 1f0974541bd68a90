//! What is worth counting: what one process did about jobs, as values, for whoever watches it.
//!
//! Not here: counting (the command does), or explaining one job (its row remembers its steps).

use std::time::Duration;

use bullpen_core::ids::JobId;
use bullpen_core::job::{End, Job, JobFact, JobPhase, JobState, MachineSource, Reason, Setback};
use bullpen_core::ports::Ports;
use bullpen_core::scope::OutOfScope;

use super::Service;
use crate::pools::CycleReport;

/// One thing worth counting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceEvent {
    /// A job's runner listens.
    Listens {
        /// How its machine was come by.
        how: MachineSource,
        /// How long after GitHub queued the job.
        waited: Duration,
    },
    /// An attempt came to nothing.
    SetBack(Setback),
    /// GitHub says that a job has begun.
    Started {
        /// How long after it was queued, by GitHub's clock.
        waited: Duration,
    },
    /// A webhook or an answer of GitHub's was outside the scope, and nothing was stored.
    Foreign(OutOfScope),
    /// A job is over.
    Ended(JobEnding),
    /// A pool was looked at.
    Kept(CycleReport),
}

/// How a job ended, in a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobEnding {
    /// It ran.
    Completed,
    /// Somebody stopped it.
    Cancelled,
    /// We gave it up.
    Failed(Reason),
}

/// Whoever watches.
pub type ServiceObserver<'a> = &'a (dyn Fn(&ServiceEvent) + Sync);

/// Nobody watches.
pub(super) fn unobserved(_: &ServiceEvent) {}

impl<P: Ports, J> Service<'_, P, J> {
    /// A job's runner listens.
    pub(super) fn note_listens(&self, job: &Job, how: MachineSource) {
        if let Some(queued) = job.known.queued_at() {
            let waited = self.stack.now().since(queued);
            tracing::info!(job_id = %job.id, ?how, ?waited, "its runner listens");
            (self.watch)(&ServiceEvent::Listens { how, waited });
        }
    }

    /// A fact is outside the scope. Whoever can have GitHub sign it can do so as often as they like.
    pub(super) fn note_foreign(&self, fact: &JobFact, outside: OutOfScope) {
        let (job, repository) = (&fact.job, &fact.about.repository);
        tracing::debug!(job_id = %job, %repository, outside = outside.as_str(), "fact outside scope");
        (self.watch)(&ServiceEvent::Foreign(outside));
    }

    /// An attempt came to nothing.
    pub(super) fn note_set_back(&self, job: &JobId, setback: &Setback) {
        tracing::info!(job_id = %job, code = setback.code(), %setback, "set back");
        (self.watch)(&ServiceEvent::SetBack(setback.clone()));
    }

    /// A row was written over what it was before.
    pub(super) fn note_change(&self, before: Option<&Job>, after: &Job) {
        let had_begun = before.is_some_and(|job| job.known.phase() >= JobPhase::Started);
        if !had_begun && let Some(waited) = startup(after) {
            (self.watch)(&ServiceEvent::Started { waited });
        }
        if !before.is_some_and(Job::is_over)
            && let JobState::Ended { end, .. } = &after.state
        {
            let ending = match end {
                End::Completed(_) => JobEnding::Completed,
                End::Cancelled => JobEnding::Cancelled,
                End::Failed(reason) => JobEnding::Failed(reason.clone()),
            };
            tracing::info!(job_id = %after.id, ?ending, "a job is over");
            (self.watch)(&ServiceEvent::Ended(ending));
        }
    }
}

fn startup(job: &Job) -> Option<Duration> {
    let began = job.known.started.as_ref()?.at?;
    Some(began.since(job.known.queued_at()?))
}
