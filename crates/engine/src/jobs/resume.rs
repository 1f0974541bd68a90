//! Processing one row in any state, and continuing where a dead worker stopped.
//!
//! If a row has a machine and its job still waits, its worker died, or lives and watches the
//! machine. To leave a living worker alone, this module decides nothing before that worker's own
//! deadlines have passed on every clock.
//!
//! Not here: finding rows ([`mod@super::sweep`]).

use std::time::Duration;

use bullpen_core::claim::{AfterRemoval, CheckKind, after_removal};
use bullpen_core::ids::JobId;
use bullpen_core::instance::{EndReason, InstanceEvent, Record, State};
use bullpen_core::job::{AfterSetback, Job, JobEvent, JobMachine, JobPhase, JobState, Setback};
use bullpen_core::mailbox::{Inbox, Order, Report, SignalKind};
use bullpen_core::ports::{Fault, Forge, JobForge, Ports};
use bullpen_core::time::Timestamp;

use super::assign::{Reach, assign};
use super::rows::{self, RowChange, SeenRow};
use super::{Processed, Service, exchange, finish, owner_of, queues};
use crate::Stack;
use crate::mail;
use crate::provision::worker::{self, latest, register_by};
use crate::release;
use crate::reports;
use crate::transition;

/// Reads one job's row and does what its state needs now.
pub async fn process<P: Ports, J: JobForge>(
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
            assign(service, id, Reach::Launch).await
        }
        JobState::Assigned { .. } | JobState::Elsewhere
            if seen.job.taken_by_another().is_some() =>
        {
            let exchanged = exchange::exchange(service, &seen).await?;
            // No row has the runner that it runs on, so only GitHub can say when it is over.
            if exchanged == Processed::Done && seen.is_due(service.stack.now()) {
                finish::is_queued(service, &seen.job).await?;
            }
            Ok(exchanged)
        }
        JobState::Assigned { held, .. } if seen.job.known.phase() == JobPhase::Queued => {
            // The sweep looks at the row again. A deferred message would hold back the wake-up that
            // follows when the job is over.
            let _ = resume_assigned(service, &seen, held).await?;
            Ok(Processed::Done)
        }
        JobState::Dormant | JobState::Assigned { .. } | JobState::Elsewhere => {
            // A row that an exchange has woken is not due, and GitHub need not be asked.
            if seen.is_due(service.stack.now()) {
                finish::is_queued(service, &seen.job).await?;
            }
            Ok(Processed::Done)
        }
        // Exchange first: another job may run on the machine that this row would release.
        JobState::Ended { .. } => match exchange::exchange(service, &seen).await? {
            Processed::Done => finish::run_end_tasks(service, &seen).await,
            waits => Ok(waits),
        },
    }
}

/// Continues where the worker stopped, for a row that has a machine and a job that still waits.
async fn resume_assigned<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    seen: &SeenRow,
    held: &JobMachine,
) -> Result<Processed, Fault> {
    let stack = service.stack;
    let until = service.patience();
    let record = transition::read(stack, &held.instance, until).await?;
    let owner = owner_of(&seen.job.id);
    let ours = |record: &Record| {
        record.generation == held.generation && record.state.owner() == Some(&owner)
    };
    let Some(record) = record.filter(ours) else {
        return free(service, &seen.job, held, Setback::MachineLost).await;
    };
    let inbox = mail::inbox(stack, &record.facts.mailbox, until).await?;
    let report = reports::of(stack, &record, until).await?.unwrap_or_default();
    if let State::Running { since, .. } = record.state {
        return check_listening(service, &seen.job, held, &report, since).await;
    }
    if is_withdrawn(inbox.as_ref(), held) {
        // Its worker waits for GitHub's answer about the runner and then ends the machine; if it
        // died, the reaper does after the claim's lease. Taking over would only restart the wait.
        return Ok(Processed::Again { at: stack.now().after(stack.limits.row_look_again) });
    }
    match (registers_by(inbox.as_ref(), held), seen.next_look) {
        (Some(by), _) => resume_prepared(service, &seen.job, held, &record, &report, by).await,
        // Its worker has just named the machine, and is about to tell the agent.
        (None, Some(at)) if stack.now() < at => Ok(Processed::Again { at }),
        (None, _) => free(service, &seen.job, held, Setback::WorkerLost).await,
    }
}

/// Whether the worker has withdrawn the assignment that it gave to the agent.
fn is_withdrawn(inbox: Option<&Inbox>, held: &JobMachine) -> bool {
    let order = inbox.map(|inbox| &inbox.order);
    matches!(order, Some(Order::Withdrawn(order)) if order.generation == held.generation)
}

/// Until when the agent may register the runner, if it has an assignment.
fn registers_by(inbox: Option<&Inbox>, held: &JobMachine) -> Option<Timestamp> {
    match &inbox?.order {
        Order::Assigned(assignment) if assignment.generation == held.generation => {
            assignment.register_by
        }
        Order::Assigned(_) | Order::Withdrawn(_) => None,
    }
}

/// Handles a machine whose agent has the assignment, and whose record is not yet marked as running.
async fn resume_prepared<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    job: &Job,
    held: &JobMachine,
    record: &Record,
    report: &Report,
    by: Timestamp,
) -> Result<Processed, Fault> {
    let stack = service.stack;
    if report.signal(SignalKind::Registered, held.generation).is_some() {
        let now = stack.now();
        let owner = owner_of(&job.id);
        let event = InstanceEvent::Registered {
            generation: held.generation,
            claim: match &record.state {
                State::Claimed { claim, .. } => Some(claim.clone()),
                _ => None,
            },
            at: now,
            deadline: now.after(stack.max_runtime(&owner)),
            cap: now.after(stack.limits.hard_cap),
            owner,
        };
        let _ = latest(stack, record, &event, service.patience()).await?;
        return Ok(Processed::Done);
    }
    let over = by.after(stack.limits.clock_skew);
    if stack.now() < over {
        return Ok(Processed::Again { at: over });
    }
    // The agent registers nothing after its deadline. If GitHub gave a job to a runner that
    // registered before, the facts of that job will name the runner.
    let deletion = stack.ports.forge().delete(&held.runner).await;
    match after_removal(deletion, Some(by), &stack.limits, stack.now()) {
        AfterRemoval::End => {
            tracing::info!(instance_id = %record.id, "listener did not register in time");
            worker::condemn(stack, &owner_of(&job.id), record, EndReason::FailedChecks).await;
            free(service, job, held, Setback::NeverRegistered).await
        }
        AfterRemoval::Running | AfterRemoval::GiveBack | AfterRemoval::AskAgain { .. } => {
            Ok(Processed::Again { at: stack.now().after(stack.limits.release_retry) })
        }
    }
}

/// Checks on a runner that listens while its job still waits. Asks GitHub about the job after a
/// while, or at once if the listener has ended. Frees the row of a runner that works for another
/// job, even if that job is unknown, because jobs without a row take runners too.
async fn check_listening<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    job: &Job,
    held: &JobMachine,
    report: &Report,
    since: Timestamp,
) -> Result<Processed, Fault> {
    let stack = service.stack;
    let has = |kind| report.signal(kind, held.generation).is_some();
    let has_ended = has(SignalKind::ListenerEnded);
    let patience = register_by(stack, since, CheckKind::Warm).after(stack.limits.clock_skew);
    if stack.now() < patience && !has_ended {
        return Ok(Processed::Again { at: patience });
    }
    if !finish::is_queued(service, job).await? {
        return Ok(Processed::Done);
    }
    let started = report.signal(SignalKind::JobStarted, held.generation);
    if has_ended {
        let setback = if started.is_some() { Setback::RunnerTaken } else { Setback::ListenerEnded };
        return free(service, job, held, setback).await;
    }
    let skew = stack.limits.clock_skew;
    let begun = started.map(|started| started.happened(since, stack.now(), skew));
    if begun.is_some_and(|begun| stack.now() >= begun.after(taken_after(stack))) {
        return free(service, job, held, Setback::RunnerTaken).await;
    }
    Ok(Processed::Again { at: stack.now().after(stack.limits.row_look_again) })
}

/// How long a runner may work for an unknown job before its own job is served again. GitHub may
/// report the job later than the runner does, and that job may have a machine to exchange.
fn taken_after<P: Ports>(stack: &Stack<P>) -> Duration {
    stack.limits.fleet_validation + stack.limits.clock_skew
}

/// Releases a machine that is of no use to its job, and has the job served again.
async fn free<P: Ports, J: JobForge>(
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
    let not_before = match job.after_setback(&setback, at, &stack.limits, Duration::ZERO) {
        AfterSetback::Again { not_before } => not_before,
        // The next worker that takes the row fails the job.
        AfterSetback::GiveUp(_) => at,
    };
    let event = JobEvent::Freed { held: held.clone(), setback, at, not_before };
    match rows::apply(stack, &job.id, &event, service.patience()).await? {
        RowChange::To(seen) => {
            queues::wake(stack, &seen).await;
            Ok(Processed::Again { at: not_before })
        }
        RowChange::Not(_) => Ok(Processed::Done),
    }
}
