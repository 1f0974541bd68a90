//! GitHub gave our runner to another job with the same labels: both jobs exchange machines.
//!
//! A job that runs may have a machine that is still being prepared; then both wait for that. Should it
//! have none at all, whoever waits because of it loses its runner and is served anew.
//!
//! In a burst many exchange at once, and the machine that one is about to exchange may be another's by
//! then. What was overtaken is looked at again: nobody else would for minutes.
//!
//! Not here: the atomic write (the `Ledger` port), or who has which runner ([`super::runners`]).

use std::time::Duration;

use bullpen_core::ids::RunnerName;
use bullpen_core::instance::{Record, State};
use bullpen_core::job::{Job, JobEvent, JobMachine, Setback};
use bullpen_core::ports::{Fault, JobForge, Ledger, Ports, RowSwap, Swap};
use bullpen_core::sabotage;

use super::rows::{self, RowChange, SeenRow};
use super::{Processed, Service, launch, owner_of, queues, runners};
use crate::release;
use crate::retry::retry_until;
use crate::transition;

/// Makes the rows say what is true, if the job runs on a machine that another one has.
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
        // Whoever works on it has a machine for the other in a moment.
        if is_under_way(service, &seen.job).await? {
            return Ok(Processed::Again { at: stack.now().after(stack.limits.heartbeat) });
        }
        return free_robbed_job(service, &runner).await;
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
        (Stage::Gone, _) => return free_robbed_job(service, &runner).await,
        (_, Stage::Gone) => return Ok(Processed::Done),
        // Whoever prepared them marks them in a moment, or they are lost, which is looked at too.
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
    let _ = stack.ports.ledger().swap(&swap).await?;
    // Won, lost or unknown: a look at the row tells, and there is nothing to do if it landed.
    Ok(Processed::Again { at: stack.now().after(stack.limits.heartbeat) })
}

/// How far a machine is with the job whose row names it.
enum Stage {
    Prepared,
    Runs,
    /// It is not the job's any more, or is being taken back.
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

/// Whether somebody still prepares a machine for a job that runs on another's. A worker that died
/// is not waited for longer than its lease was, and a machine not longer than it may take.
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
    let records = retry_until(stack, until, || stack.ports.ledger().owned_by(&owner)).await?;
    let prepared = |record: &Record| {
        matches!(record.state, State::Created { .. } | State::Claimed { .. })
            && record.state.owner() == Some(&owner)
    };
    Ok(records.iter().any(prepared) || launch::is_launching(stack, &job.id, until).await?)
}

/// Whether one of these rows has changed since.
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

/// Somebody waits for a runner that works for another job, which has no machine to give in return:
/// that machine is taken back once it is done, and the job that waits is served anew.
async fn free_robbed_job<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    runner: &RunnerName,
) -> Result<Processed, Fault> {
    let stack = service.stack;
    let now = stack.now();
    let Some(other) = runners::robbed(stack, runner, service.patience()).await? else {
        return Ok(Processed::Done);
    };
    let Some(theirs) = other.job.held().cloned() else { return Ok(Processed::Done) };
    let (held, setback) = (theirs.clone(), Setback::RunnerTaken);
    let event = JobEvent::Freed { held, setback, at: now, not_before: now };
    if other.job.on(&event).is_err() {
        return Ok(Processed::Done);
    }
    // Before the row forgets it: whoever dies in between must not leave a machine that no row names.
    let judged = (&theirs.instance, theirs.generation);
    release::take_back_one(stack, &owner_of(&other.job.id), judged).await?;
    let freed = rows::apply(stack, &other.job.id, &event, service.patience()).await?;
    if let RowChange::To(seen) = freed {
        queues::wake(stack, &seen).await;
    }
    Ok(Processed::Done)
}
