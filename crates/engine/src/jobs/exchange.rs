//! Exchanging machines: if GitHub gives a job's runner to another job with the same labels, the
//! worker exchanges the machines in both rows.
//!
//! If a worker still prepares the machine of the job that runs, both jobs wait for it. If that job
//! has no machine at all, the displaced job loses its runner and is served again. In a burst many
//! jobs exchange at once: an overtaken worker looks again at once, for the sweep takes minutes.
//!
//! Not here: the atomic write (the `Ledger` port), or which job has which runner
//! ([`super::runners`]).

use std::time::Duration;

use bullpen_core::ids::RunnerName;
use bullpen_core::instance::{Record, State};
use bullpen_core::job::{Job, JobEvent, JobMachine, Setback};
use bullpen_core::ports::{Fault, JobForge, Ledger, Ports, RowSwap, Swap, Written};
use bullpen_core::sabotage;

use super::rows::{self, RowChange, SeenRow};
use super::{Processed, Service, launch, owner_of, queues, runners};
use crate::release;
use crate::retry::retry_until;
use crate::transition;

/// Exchanges the machines in two rows, if the job of `seen` runs on a machine of another job.
pub(super) async fn exchange<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    seen: &SeenRow,
) -> Result<Processed, Fault> {
    let stack = service.stack;
    let Some(runner) = seen.job.taken_by_another().cloned() else { return Ok(Processed::Done) };
    if sabotage!("nothing-is-exchanged") {
        return Ok(Processed::Done);
    }
    let Some(other) = runners::holder(stack, &runner, service.patience()).await? else {
        return Ok(Processed::Done);
    };
    if other.job.id == seen.job.id {
        return Ok(Processed::Done);
    }
    let Some(theirs) = other.job.keeps().cloned() else { return Ok(Processed::Done) };
    let Some(ours) = seen.job.keeps().cloned() else {
        // Its worker will soon have a machine for the other job.
        if is_under_way(service, &seen.job).await? {
            return Ok(Processed::Again { at: stack.now().after(stack.limits.heartbeat) });
        }
        return free_displaced_job(service, &runner).await;
    };
    let until = service.patience();
    let one = transition::read(stack, &ours.instance, until).await?;
    let two = transition::read(stack, &theirs.instance, until).await?;
    let (Some(one), Some(two)) = (one, two) else { return Ok(Processed::Done) };
    match (stage(&one, &seen.job, &ours), stage(&two, &other.job, &theirs)) {
        (Stage::Runs, Stage::Runs) => {}
        (Stage::Gone, _) | (_, Stage::Gone) if is_overtaken(service, [seen, &other]).await? => {
            return Ok(Processed::Again { at: stack.now() });
        }
        (Stage::Gone, _) => return free_displaced_job(service, &runner).await,
        (_, Stage::Gone) => return Ok(Processed::Done),
        // Its worker will soon mark the machine as running, or `resume` finds it lost.
        (Stage::Prepared, _) | (_, Stage::Prepared) => {
            return Ok(Processed::Again { at: stack.now().after(stack.limits.heartbeat) });
        }
    }
    let row = |seen: &SeenRow, from: &JobMachine, to: &JobMachine| -> Option<RowSwap> {
        let event = JobEvent::Swapped { from: from.clone(), to: to.clone(), at: stack.now() };
        let job = seen.job.on(&event).ok()?;
        let row = job.row(Some(seen.revision), stack.now(), &stack.limits);
        Some(RowSwap { seen: seen.revision, row })
    };
    let (Some(first), Some(second)) = (row(seen, &ours, &theirs), row(&other, &theirs, &ours))
    else {
        return Ok(Processed::Done);
    };
    tracing::info!(job_id = %seen.job.id, other = %other.job.id, "two jobs exchange machines");
    let swap = Swap { records: [one, two], rows: [first, second] };
    // Won, lost or unknown: the next look reads the row, and does nothing if the swap landed. After a
    // lost one it comes at once: a job that releases its machine meanwhile breaks the chain of names
    // that leads to the runner, and then the machine ends although it could serve on.
    let wait = match stack.ports.ledger().swap(&swap).await {
        Ok(Written::Lost) => Duration::ZERO,
        Ok(Written::Won(()) | Written::Unknown) => stack.limits.heartbeat,
        // DynamoDB refuses one of two swaps that it has in hand at once.
        Err(fault) if fault.is_transient() => stack.limits.heartbeat,
        Err(fault) => return Err(fault),
    };
    Ok(Processed::Again { at: stack.now().after(wait) })
}

/// How far a machine is with the job whose row names it.
enum Stage {
    Prepared,
    Runs,
    /// The job does not have it any more, or it is being released.
    Gone,
}

fn stage(record: &Record, job: &Job, held: &JobMachine) -> Stage {
    if record.generation != held.generation || record.state.owner() != Some(&owner_of(&job.id)) {
        return Stage::Gone;
    }
    match record.state {
        State::Created { .. } | State::Claimed { .. } => Stage::Prepared,
        State::Running { .. } => Stage::Runs,
        _ => Stage::Gone,
    }
}

/// Whether a worker still prepares a machine for a job that runs on another job's machine. Waits
/// for a worker no longer than its lease, and for a machine no longer than its launch may take.
async fn is_under_way<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    job: &Job,
) -> Result<bool, Fault> {
    let stack = service.stack;
    let began = job.known.started.as_ref().and_then(|started| started.at);
    let is_within = |patience: Duration| {
        let patience = patience + stack.limits.clock_skew;
        began.is_some_and(|at| stack.now().since(at) < patience)
    };
    if !is_within(stack.limits.row_lease.max(stack.limits.fleet_validation)) {
        return Ok(false);
    }
    if is_within(stack.limits.row_lease)
        && job.is_begun_since(stack.now().before(stack.limits.row_look_again))
    {
        return Ok(true);
    }
    let (owner, until) = (owner_of(&job.id), service.patience());
    let records =
        retry_until(stack, until, || stack.ports.ledger().owned_by(&owner)).await?.complete()?;
    let prepared = |record: &Record| {
        matches!(record.state, State::Created { .. } | State::Claimed { .. })
            && record.state.owner() == Some(&owner)
    };
    Ok(records.iter().any(prepared) || launch::is_launching(stack, &job.id, until).await?)
}

/// Whether one of these rows has changed since it was read.
async fn is_overtaken<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    rows: [&SeenRow; 2],
) -> Result<bool, Fault> {
    for seen in rows {
        let now = rows::load(service.stack, &seen.job.id, service.patience()).await?;
        if now.is_none_or(|now| now.revision != seen.revision) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Frees the job that waits for `runner`, which works for a job without a machine to give in
/// return. The machine is released once that other job is done, and the freed job is served again.
async fn free_displaced_job<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    runner: &RunnerName,
) -> Result<Processed, Fault> {
    let stack = service.stack;
    let now = stack.now();
    let Some(other) = runners::displaced(stack, runner, service.patience()).await? else {
        return Ok(Processed::Done);
    };
    let Some(theirs) = other.job.held().cloned() else { return Ok(Processed::Done) };
    let (held, setback) = (theirs.clone(), Setback::RunnerTaken);
    let event = JobEvent::Freed { held, setback, at: now, not_before: now };
    if other.job.on(&event).is_err() {
        return Ok(Processed::Done);
    }
    // Before the row forgets the machine: a crash in between must not leave one without a row.
    let judged = (&theirs.instance, theirs.generation);
    release::take_back_one(stack, &owner_of(&other.job.id), judged).await?;
    let freed = rows::apply(stack, &other.job.id, &event, service.patience()).await?;
    if let RowChange::To(seen) = freed {
        queues::wake(stack, &seen).await;
    }
    Ok(Processed::Done)
}
