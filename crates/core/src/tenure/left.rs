//! A tenure that a worker began and may have left: what another process does about it.
//!
//! The worker may live and watch the machine. So that it is left alone, nothing is decided before its own
//! deadlines have passed on every clock.
//!
//! Not here: what the worker itself does ([`super::Prepare`]).

use std::time::Duration;

use super::won::condemned;
use super::{register_by, registered};
use crate::claim::{AfterRemoval, CheckKind, Deletion, after_removal};
use crate::ids::Generation;
use crate::instance::{EndReason, InstanceEvent, Owner, Record, State};
use crate::limits::Limits;
use crate::mailbox::{Inbox, Order, Report, SignalKind};
use crate::time::Timestamp;

/// What a process does about an instance whose owner still waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeftAction {
    /// Look again at this time.
    LookAgain(Timestamp),
    /// The runner listens: write this event.
    MarkRunning(InstanceEvent),
    /// The runner did not register in time: ask GitHub to delete it, then ask [`left_after_removal`].
    DeleteRunner {
        /// When its agent gave up registering.
        register_by: Timestamp,
    },
    /// No worker told the agent of its owner: the instance is still good.
    Untold,
    /// The instance runs for its owner: ask [`left_listening`].
    Listens {
        /// Since when.
        since: Timestamp,
    },
}

/// Decides about an instance of an owner, by its inbox and its report. `told_by`: when the worker that
/// named it to its owner must have told the agent.
pub fn left(
    record: &Record,
    (inbox, report): (Option<&Inbox>, &Report),
    told_by: Option<Timestamp>,
    max_runtime: Duration,
    now: Timestamp,
    limits: &Limits,
) -> LeftAction {
    if let State::Running { since, .. } = record.state {
        return LeftAction::Listens { since };
    }
    let order = inbox.map(|inbox| &inbox.order);
    let by = match order.filter(|order| order.rank().generation == record.generation) {
        // Its worker waits for GitHub's answer about the runner and then ends the machine; if the
        // worker died, the reaper does after the claim's lease. Taking over would restart the wait.
        Some(Order::Withdrawn(_)) => {
            return LeftAction::LookAgain(now.after(limits.row_look_again));
        }
        Some(Order::Assigned(assignment)) => assignment.register_by,
        None => None,
    };
    match (by, told_by) {
        (Some(by), _) => left_assigned(record, report, by, max_runtime, now, limits),
        // Its worker has just named the machine, and is about to tell the agent.
        (None, Some(at)) if now < at => LeftAction::LookAgain(at),
        (None, _) => LeftAction::Untold,
    }
}

fn left_assigned(
    record: &Record,
    report: &Report,
    by: Timestamp,
    max_runtime: Duration,
    now: Timestamp,
    limits: &Limits,
) -> LeftAction {
    if report.signal(SignalKind::Registered, record.generation).is_some()
        && let Some(event) = registered(record, max_runtime, now, limits)
    {
        return LeftAction::MarkRunning(event);
    }
    let over = by.after(limits.clock_skew);
    if now < over {
        LeftAction::LookAgain(over)
    } else {
        LeftAction::DeleteRunner { register_by: by }
    }
}

/// The event that ends an instance whose runner did not register in time, or when to ask again. The agent
/// registers nothing after its deadline; if GitHub gave a job to a runner that registered before, the
/// facts of that job will name the runner.
pub fn left_after_removal(
    owner: &Owner,
    generation: Generation,
    (deletion, register_by): (Deletion, Timestamp),
    now: Timestamp,
    limits: &Limits,
) -> Result<InstanceEvent, Timestamp> {
    match after_removal(deletion, Some(register_by), limits, now) {
        AfterRemoval::End => Ok(condemned(owner, generation, EndReason::FailedChecks, now)),
        AfterRemoval::Running | AfterRemoval::GiveBack | AfterRemoval::AskAgain { .. } => {
            Err(now.after(limits.release_retry))
        }
    }
}

/// What a runner does that listens while its job still waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListeningRunner {
    /// GitHub may give it the job at any moment: look again at this time.
    IsPatient(Timestamp),
    /// It works for a job of which GitHub has said nothing yet.
    Waits,
    /// Its listener has ended without a job.
    HasEnded,
    /// It works for another job, or did. Jobs without a row take runners too.
    IsTaken,
    /// GitHub had long enough to give it the job: ask GitHub to delete it.
    IsNeglected,
}

/// How long GitHub may take to give a job to a runner that listens for it. Mostly it takes seconds.
const GIVEN_WITHIN: Duration = Duration::from_secs(3 * 60);

/// Decides about a runner that listens since `since`. GitHub need only be asked about the job if the
/// runner is not patient.
pub fn left_listening(
    report: &Report,
    generation: Generation,
    since: Timestamp,
    now: Timestamp,
    limits: &Limits,
) -> ListeningRunner {
    let started = report.signal(SignalKind::JobStarted, generation);
    if report.signal(SignalKind::ListenerEnded, generation).is_some() {
        return match started {
            Some(_) => ListeningRunner::IsTaken,
            None => ListeningRunner::HasEnded,
        };
    }
    let Some(started) = started else {
        let given_by = since.after(GIVEN_WITHIN);
        return if now < given_by {
            ListeningRunner::IsPatient(given_by)
        } else {
            ListeningRunner::IsNeglected
        };
    };
    let patience = register_by(CheckKind::Warm, since, limits).after(limits.clock_skew);
    if now < patience {
        return ListeningRunner::IsPatient(patience);
    }
    // GitHub may report the runner's job later than the runner does, and that job may leave a runner
    // of its own.
    let taken_after = limits.fleet_validation + limits.clock_skew;
    let begun = started.happened(since, now, limits.clock_skew);
    if now >= begun.after(taken_after) { ListeningRunner::IsTaken } else { ListeningRunner::Waits }
}

#[cfg(test)]
mod tests;
