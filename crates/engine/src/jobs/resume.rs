//! Processing one row in any state, and continuing where a dead worker stopped.
//!
//! If a row has a machine and its job still waits, its worker died, or lives and watches the machine.
//!
//! Not here: finding rows ([`mod@super::sweep`]), or deciding about such a machine (`core::tenure`).

use std::time::Duration;

use bullpen_core::claim::Deletion;
use bullpen_core::ids::JobId;
use bullpen_core::instance::Record;
use bullpen_core::job::search::{self, BeatSeen};
use bullpen_core::job::{
    AfterSetback, Job, JobEvent, JobMachine, JobPhase, JobState, RUNNING_LOOK_AGAIN, Setback,
};
use bullpen_core::mailbox::{AgentPhase, Report};
use bullpen_core::ports::{Fault, Forge, JobForge, Ports};
use bullpen_core::sabotage;
use bullpen_core::tenure::{LeftAction, ListeningRunner, left, left_after_removal, left_listening};
use bullpen_core::time::Timestamp;

use super::assign::{Reach, assign_seen};
use super::candidates::PoolLines;
use super::rows::{self, RowChange, SeenRow};
use super::{Processed, Service, finish, owner_of, queues, taken};
use crate::Stack;
use crate::mail;
use crate::provision::worker;
use crate::release;
use crate::reports;
use crate::transition;

/// Reads one job's row and does what its state needs now.
pub async fn process<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    id: &JobId,
) -> Result<Processed, Fault> {
    if service.is_set_aside(id) {
        return Ok(Processed::Done);
    }
    service.serve_row(id, process_row(service, id)).await
}

/// The same in an attempt of the caller's.
pub(super) async fn process_row<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    id: &JobId,
) -> Result<Processed, Fault> {
    let Some(seen) = rows::load(service.stack, id, service.patience()).await? else {
        return Ok(Processed::Done);
    };
    if let Some(dismissed) = finish::end_out_of_scope(service, &seen).await? {
        return Ok(dismissed);
    }
    match &seen.job.state {
        JobState::Waiting { .. } | JobState::Assigning { .. } => {
            assign_seen(service, &seen, Reach::Launch, &PoolLines::default()).await
        }
        JobState::Assigned { held, .. }
            if seen.job.known.phase() == JobPhase::Queued && seen.job.taken_by.is_none() =>
        {
            // The sweep looks at the row again. A deferred message would hold back the wake-up that
            // follows when the job is over.
            let _ = resume_assigned(service, &seen, held).await?;
            Ok(Processed::Done)
        }
        JobState::Dormant
        | JobState::Assigned { .. }
        | JobState::Elsewhere
        | JobState::Ended { .. } => {
            taken::note(service, &seen).await?;
            let processed = taken::follow_up(service, &seen).await?;
            // A row that a fact has woken is not due, and GitHub need not be asked.
            if !seen.job.is_over()
                && seen.is_due(service.stack.now())
                && is_doubtful(service.stack, &seen.job, service.patience()).await?
            {
                finish::is_wanted(service, &seen.job).await?;
            }
            Ok(processed)
        }
    }
}

/// Whether GitHub must be asked about a job that waits for no machine: unless the agent on the machine
/// where it runs says that it does.
async fn is_doubtful<P: Ports>(
    stack: &Stack<P>,
    job: &Job,
    until: Timestamp,
) -> Result<bool, Fault> {
    let own = job.held().filter(|held| !job.is_elsewhere(held)).map(|held| &held.instance);
    let Some(instance) = own.or(job.runs_on()) else { return Ok(true) };
    if sabotage!("running-jobs-are-asked-about") {
        return Ok(true);
    }
    let Some(record) = transition::read(stack, instance, until).await? else { return Ok(true) };
    let (now, report) = (stack.now(), reports::of(stack, &record, until).await?);
    let beat = report.as_ref().and_then(|report| {
        let is_busy = report.beat.as_ref()?.phase == AgentPhase::Busy;
        Some(BeatSeen {
            is_fresh: report.is_fresh(now, stack.limits.heartbeat_stale, None),
            is_busy,
        })
    });
    let started = job.known.started.as_ref().and_then(|started| started.at);
    Ok(search::is_doubtful(beat, started, now, RUNNING_LOOK_AGAIN))
}

/// Continues where the worker stopped, for a row that has a machine and a job that still waits: does
/// what [`left`] decides.
async fn resume_assigned<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    seen: &SeenRow,
    held: &JobMachine,
) -> Result<Processed, Fault> {
    let (stack, until, job) = (service.stack, service.patience(), &seen.job);
    let record = transition::read(stack, &held.instance, until).await?;
    let owner = owner_of(&job.id);
    let ours = |record: &Record| {
        record.generation == held.generation && record.state.owner() == Some(&owner)
    };
    let Some(record) = record.filter(ours) else {
        return free(service, job, held, Setback::MachineLost).await;
    };
    let inbox = mail::inbox(stack, &record.facts.mailbox, until).await?;
    let report = reports::of(stack, &record, until).await?.unwrap_or_default();
    let (mail, max_runtime) = ((inbox.as_ref(), &report), stack.max_runtime(&owner));
    match left(&record, mail, seen.next_look, max_runtime, stack.now(), &stack.limits) {
        LeftAction::LookAgain(at) => Ok(Processed::Again { at }),
        LeftAction::Untold => free(service, job, held, Setback::WorkerLost).await,
        LeftAction::Listens { since } => check_listening(service, job, held, &report, since).await,
        LeftAction::MarkRunning(event) => {
            let _ = transition::latest(stack, &record, &event, until).await?;
            Ok(Processed::Done)
        }
        LeftAction::DeleteRunner { register_by } => {
            let deletion = stack.ports.forge().delete(&held.runner).await;
            let (answer, now) = ((deletion, register_by), stack.now());
            match left_after_removal(&owner, held.generation, answer, now, &stack.limits) {
                Ok(event) => {
                    tracing::info!(instance_id = %record.id, "listener did not register in time");
                    worker::write(stack, &record, &event).await;
                    free(service, job, held, Setback::NeverRegistered).await
                }
                Err(at) => Ok(Processed::Again { at }),
            }
        }
    }
}

/// Checks on a runner that listens while its job still waits. Asks GitHub about the job after three
/// minutes, or at once if the listener has ended, and frees the row of a runner that is of no use.
async fn check_listening<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    job: &Job,
    held: &JobMachine,
    report: &Report,
    since: Timestamp,
) -> Result<Processed, Fault> {
    let stack = service.stack;
    let runner = left_listening(report, held.generation, since, stack.now(), &stack.limits);
    if let ListeningRunner::IsPatient(at) = runner {
        return Ok(Processed::Again { at });
    }
    if !finish::is_wanted(service, job).await? {
        return Ok(Processed::Done);
    }
    let later = Processed::Again { at: stack.now().after(stack.limits.row_look_again) };
    match runner {
        ListeningRunner::HasEnded => free(service, job, held, Setback::ListenerEnded).await,
        ListeningRunner::IsTaken => free(service, job, held, Setback::RunnerTaken).await,
        ListeningRunner::IsNeglected => match stack.ports.forge().delete(&held.runner).await {
            Deletion::Deleted => free(service, job, held, Setback::NeverGiven).await,
            Deletion::NotFound => free(service, job, held, Setback::ListenerEnded).await,
            Deletion::Busy | Deletion::Unavailable => Ok(later),
        },
        ListeningRunner::Waits | ListeningRunner::IsPatient(_) => Ok(later),
    }
}

/// Releases a machine that is of no use to its job, and has the job served again.
pub(super) async fn free<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    job: &Job,
    held: &JobMachine,
    setback: Setback,
) -> Result<Processed, Fault> {
    let stack = service.stack;
    // A dead worker's machine is still good, and the next worker continues with it.
    if setback != Setback::WorkerLost {
        let judged = (&held.instance, held.generation);
        release::take_back_one(stack, &owner_of(&job.id), judged).await?;
    }
    let at = stack.now();
    let not_before =
        match job.after_setback((&setback, job.source()), at, &stack.limits, Duration::ZERO) {
            AfterSetback::Again { not_before } => not_before,
            // The next worker that takes the row fails the job.
            AfterSetback::GiveUp(_) => at,
        };
    service.note_set_back(&job.id, &setback);
    let event = JobEvent::Freed { held: held.clone(), setback, at, not_before };
    match rows::apply(stack, &job.id, &event, service.patience()).await? {
        RowChange::To(seen) => {
            queues::wake(stack, &seen).await;
            Ok(Processed::Again { at: not_before })
        }
        RowChange::Not(_) => Ok(Processed::Done),
    }
}
