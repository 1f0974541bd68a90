//! Events of the service: values that describe what one process did about jobs, for an observer.
//!
//! Not here: counting (the command does), or explaining one job (its row remembers its steps).

use std::time::Duration;

use bullpen_core::ids::JobId;
use bullpen_core::job::{End, Job, JobFact, JobPhase, JobState, MachineSource, Reason, Setback};
use bullpen_core::ports::Ports;
use bullpen_core::scope::OutOfScope;

use super::Service;
use crate::pools::CycleReport;

/// One event for an observer to count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceEvent {
    /// A job's runner listens.
    Listens {
        /// How the worker got its machine.
        how: MachineSource,
        /// The time since GitHub queued the job.
        waited: Duration,
    },
    /// A worker's attempt at a job failed.
    SetBack(Setback),
    /// GitHub says that a job has started.
    Started {
        /// The time since GitHub queued the job, by GitHub's clock.
        waited: Duration,
    },
    /// A fact from GitHub was outside the scope, and the service stored nothing.
    Foreign(OutOfScope),
    /// This process set a row aside, because a defect made it panic again and again.
    SetAside,
    /// A job is over.
    Ended(JobEnding),
    /// A pool's cycle is done.
    Kept(CycleReport),
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobEnding {
    /// The job ran.
    Completed,
    /// A user or GitHub cancelled the job.
    Cancelled,
    /// The service failed the job.
    Failed(Reason),
}

/// A function that receives the service's events.
pub type ServiceObserver<'a> = &'a (dyn Fn(&ServiceEvent) + Sync);

/// Ignores every event.
pub(super) fn unobserved(_: &ServiceEvent) {}

impl<P: Ports, J> Service<'_, P, J> {
    /// Reports that a job's runner listens.
    pub(super) fn note_listens(&self, job: &Job, how: MachineSource) {
        if let Some(queued) = job.known.queued_at() {
            let waited = self.stack.now().since(queued);
            tracing::info!(job_id = %job.id, ?how, ?waited, "job's runner listens");
            (self.watch)(&ServiceEvent::Listens { how, waited });
        }
    }

    /// Reports a fact outside the scope. Logs at `debug`, because an outsider can make GitHub send
    /// any number of them.
    pub(super) fn note_foreign(&self, fact: &JobFact, outside: OutOfScope) {
        let (job, repository) = (&fact.job, &fact.about.repository);
        let why = outside.as_str();
        tracing::debug!(job_id = %job, %repository, outside = why, "ignored fact outside scope");
        (self.watch)(&ServiceEvent::Foreign(outside));
    }

    /// Reports that an attempt failed.
    pub(super) fn note_set_back(&self, job: &JobId, setback: &Setback) {
        tracing::info!(job_id = %job, code = setback.code(), %setback, "attempt at job failed");
        (self.watch)(&ServiceEvent::SetBack(setback.clone()));
    }

    /// Reports a job's start and its end, if the write of its row brought them.
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
            tracing::info!(job_id = %after.id, ?ending, "job ended");
            (self.watch)(&ServiceEvent::Ended(ending));
        }
    }
}

fn startup(job: &Job) -> Option<Duration> {
    let began = job.known.started.as_ref()?.at?;
    Some(began.since(job.known.queued_at()?))
}
