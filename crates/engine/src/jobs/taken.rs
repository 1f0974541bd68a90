//! Taken runners: GitHub may start a job on the runner of another job with the same labels.
//!
//! No machine changes hands: the other job's row notes which job runs on its machine, and the
//! machine is released when that job is over. The job that lost its runner waits for the runner that
//! the first job left behind, if there is one or a worker still prepares it; otherwise the job is
//! served again.
//!
//! Not here: following the names ([`super::runners`]), or releasing machines ([`super::finish`]).

use std::time::Duration;

use bullpen_core::instance::{Record, State};
use bullpen_core::job::{Job, JobEvent, JobMachine, JobPhase, JobState, Setback};
use bullpen_core::ports::{Fault, JobForge, Ledger, Ports};
use bullpen_core::sabotage;
use bullpen_core::tenure::{LeftAction, ListeningRunner, left, left_listening};

use super::rows::{self, RowChange, SeenRow};
use super::runners::Chain;
use super::{Processed, Service, finish, launch, owner_of, resume, runners};
use crate::mail;
use crate::reports;
use crate::retry::retry_until;
use crate::transition;

/// Notes in both rows that a job runs, or ran, on the runner of another job, and looks after the
/// jobs and machines that this concerns.
pub(super) async fn note<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    seen: &SeenRow,
) -> Result<(), Fault> {
    let (stack, job) = (service.stack, &seen.job);
    let Some((owner, runner)) = job.took(&stack.name) else { return Ok(()) };
    if sabotage!("taken-runners-are-not-noted") {
        return Ok(());
    }
    let until = service.patience();
    let Some(mut other) = rows::load(stack, &owner, until).await? else { return Ok(()) };
    let Some(held) = other.job.machine_of(runner).cloned() else { return Ok(()) };
    let is_news = other.job.keeps() == Some(&held) && other.job.taken_by.is_none();
    if is_news {
        tracing::info!(job_id = %job.id, other = %owner, "job runs on another job's runner");
        let event = JobEvent::Taken { runner: runner.clone(), by: job.id.clone() };
        if let RowChange::To(noted) = rows::apply(stack, &owner, &event, until).await? {
            other = noted;
        }
    }
    if job.runs_on() != Some(&held.instance) {
        let event = JobEvent::RunsOn { instance: held.instance, at: stack.now() };
        let _ = rows::apply(stack, &job.id, &event, until).await?;
    }
    let _ = follow_up(service, &other).await?;
    // The job that waits may be another one, whose runner a job has that now lost its own.
    if is_news
        && other.job.known.phase() != JobPhase::Queued
        && let Some(displaced) = runners::displaced(stack, job, until).await?
    {
        let _ = follow_up(service, &displaced).await?;
    }
    Ok(())
}

/// Does what a row needs whose machine another job took, or whose job runs elsewhere or is over.
pub(super) async fn follow_up<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    seen: &SeenRow,
) -> Result<Processed, Fault> {
    let (stack, until) = (service.stack, service.patience());
    let mut noted = None;
    // Both jobs run on each other's runners, and the other one has not been noted yet.
    if let Some(held) = seen.job.keeps().filter(|held| seen.job.is_elsewhere(held))
        && seen.job.taken_by.is_none()
        && let Chain::Closed(by, runner) = runners::chain(stack, &seen.job, until).await?
        && runner == held.runner
    {
        let event = JobEvent::Taken { runner, by };
        if let RowChange::To(now) = rows::apply(stack, &seen.job.id, &event, until).await? {
            noted = Some(now);
        }
    }
    let seen = noted.as_ref().unwrap_or(seen);
    match &seen.job.state {
        JobState::Ended { .. } => finish::run_end_tasks(service, seen).await,
        JobState::Assigned { held, .. } if seen.job.known.phase() == JobPhase::Queued => {
            if seen.job.taken_by.is_some() {
                await_spare(service, &seen.job, held).await?;
            }
            Ok(Processed::Done)
        }
        JobState::Assigned { held, .. } => finish::release_early(service, seen, held).await,
        JobState::Dormant
        | JobState::Waiting { .. }
        | JobState::Assigning { .. }
        | JobState::Elsewhere => Ok(Processed::Done),
    }
}

/// Frees a job that lost its runner if no other runner is left for it.
async fn await_spare<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    job: &Job,
    held: &JobMachine,
) -> Result<(), Fault> {
    let owner = runners::spare_owner(service.stack, job, service.patience()).await?;
    let spare = match &owner {
        Some(owner) => spare_runner(service, owner).await?,
        None => SpareRunner::None,
    };
    match spare {
        SpareRunner::Left => return Ok(()),
        // GitHub may have given it the job, and may not have said so.
        SpareRunner::Useless if !finish::is_wanted(service, job).await? => return Ok(()),
        SpareRunner::Useless | SpareRunner::None => {}
    }
    // The machine is released once the job that took it is over.
    let _ = resume::free(service, job, held, Setback::RunnerTaken).await?;
    Ok(())
}

/// The runner that a job left behind.
enum SpareRunner {
    /// It listens, or a worker prepares it.
    Left,
    /// It has ended, or GitHub gives it no job.
    Useless,
    /// The job has none.
    None,
}

async fn spare_runner<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    row: &SeenRow,
) -> Result<SpareRunner, Fault> {
    let (stack, until, job) = (service.stack, service.patience(), &row.job);
    let Some(held) = job.keeps() else {
        let is_coming = is_under_way(service, job).await?;
        return Ok(if is_coming { SpareRunner::Left } else { SpareRunner::None });
    };
    let owner = owner_of(&job.id);
    let ours = |record: &Record| {
        record.generation == held.generation && record.state.owner() == Some(&owner)
    };
    let record = transition::read(stack, &held.instance, until).await?;
    let Some(record) = record.filter(ours) else { return Ok(SpareRunner::None) };
    let inbox = mail::inbox(stack, &record.facts.mailbox, until).await?;
    let report = reports::of(stack, &record, until).await?.unwrap_or_default();
    let (mail, max_runtime) = ((inbox.as_ref(), &report), stack.max_runtime(&owner));
    let now = stack.now();
    Ok(match left(&record, mail, row.next_look, max_runtime, now, &stack.limits) {
        LeftAction::LookAgain(_) => SpareRunner::Left,
        LeftAction::Untold | LeftAction::DeleteRunner { .. } => SpareRunner::None,
        LeftAction::MarkRunning(event) => {
            let _ = transition::latest(stack, &record, &event, until).await?;
            SpareRunner::Left
        }
        LeftAction::Listens { since } => {
            // Before its own job ran elsewhere, the runner was not left to any other.
            let began = job.known.started.as_ref().and_then(|started| started.at);
            let since = began.map_or(since, |began| since.max(began));
            match left_listening(&report, held.generation, since, now, &stack.limits) {
                ListeningRunner::IsPatient(_) | ListeningRunner::Waits => SpareRunner::Left,
                ListeningRunner::HasEnded
                | ListeningRunner::IsTaken
                | ListeningRunner::IsNeglected => SpareRunner::Useless,
            }
        }
    })
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
