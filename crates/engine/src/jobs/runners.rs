//! Finding jobs by runner name: which job waits because another job has its runner, and whether a
//! runner is still awaited.
//!
//! A runner is named after the job it was minted for, and a machine belongs to that job until its
//! release. A job that runs on another job's runner leaves its own runner to the job that waits at
//! the end of this chain: the owner of the runner it runs on, or, if that job runs too, the owner of
//! the runner that *that* job runs on, and so on. A chain without a waiting job displaces no job.
//!
//! Not here: what becomes of the jobs and machines of a chain ([`super::taken`]), or removing
//! runners ([`crate::refresh`]).

use bullpen_core::ids::{InstanceId, JobId, RunnerName};
use bullpen_core::job::{Job, JobMachine, JobPhase, JobState, minted_for, runner_name};
use bullpen_core::ports::{Fault, Ports};
use bullpen_core::time::Timestamp;

use super::rows::{self, SeenRow};
use crate::Stack;

/// How many jobs a walk follows: as many as there may be in a burst of equal labels.
const STEPS_MAX: usize = 256;

/// How the chain of a job ends that runs, or ran, on another job's runner.
pub(super) enum Chain {
    /// With a job that waits.
    Waits(Box<SeenRow>),
    /// With the job itself: this job runs, or ran, on the runner of the first.
    Closed(JobId, RunnerName),
    /// Without a job that waits.
    Open,
}

/// Follows the chain of a job.
pub(super) async fn chain<P: Ports>(
    stack: &Stack<P>,
    job: &Job,
    until: Timestamp,
) -> Result<Chain, Fault> {
    let next = |job: &Job| job.took(&stack.name).map(|(owner, runner)| (owner, runner.clone()));
    let (mut from, mut passed) = (next(job), vec![job.id.clone()]);
    while let Some((owner, runner)) = from {
        if let (true, Some(last)) = (owner == job.id, passed.last()) {
            return Ok(Chain::Closed(last.clone(), runner));
        }
        if passed.contains(&owner) || passed.len() > STEPS_MAX {
            break;
        }
        let Some(seen) = rows::load(stack, &owner, until).await? else { break };
        if seen.job.known.phase() == JobPhase::Queued {
            let waits = seen.job.held().is_some_and(|held| held.runner == runner);
            return Ok(if waits { Chain::Waits(Box::new(seen)) } else { Chain::Open });
        }
        from = next(&seen.job);
        passed.push(owner);
    }
    Ok(Chain::Open)
}

/// Finds the job that waits because this job runs, or ran, on another job's runner.
pub(super) async fn displaced<P: Ports>(
    stack: &Stack<P>,
    job: &Job,
    until: Timestamp,
) -> Result<Option<SeenRow>, Fault> {
    Ok(match chain(stack, job, until).await? {
        Chain::Waits(seen) => Some(*seen),
        Chain::Closed(..) | Chain::Open => None,
    })
}

/// Finds the job whose runner is left for a job that lost its own: follows the jobs that took one
/// another's runners to the first whose runner no job took.
pub(super) async fn spare_owner<P: Ports>(
    stack: &Stack<P>,
    job: &Job,
    until: Timestamp,
) -> Result<Option<SeenRow>, Fault> {
    let (mut taker, mut passed): (_, Vec<JobId>) = (job.taken_by.clone(), vec![job.id.clone()]);
    while let Some(id) = taker {
        if passed.contains(&id) || passed.len() > STEPS_MAX {
            return Ok(None);
        }
        let Some(seen) = rows::load(stack, &id, until).await? else { return Ok(None) };
        if seen.job.taken_by.is_none() {
            return Ok(Some(seen));
        }
        taker = seen.job.taken_by;
        passed.push(id);
    }
    Ok(None)
}

/// Whether a job still needs this machine: the job that runs on it is not over, or a job waits for
/// its runner.
pub(super) async fn is_needed<P: Ports>(
    stack: &Stack<P>,
    job: &Job,
    held: &JobMachine,
    until: Timestamp,
) -> Result<bool, Fault> {
    if let Some(taker) = &job.taken_by {
        let taker = rows::load(stack, taker, until).await?;
        return Ok(taker.is_some_and(|taker| !taker.job.is_over()));
    }
    if !job.is_elsewhere(held) {
        return Ok(!job.is_over());
    }
    Ok(match chain(stack, job, until).await? {
        Chain::Waits(_) => true,
        // The row will note that job.
        Chain::Closed(_, runner) => runner == held.runner,
        Chain::Open => false,
    })
}

/// Whether a job still waits for a runner of this name: a worker serves the job under that name, or
/// the job has the runner on a machine that `lives`.
pub(crate) async fn is_awaited<P: Ports>(
    stack: &Stack<P>,
    runner: &RunnerName,
    lives: impl Fn(&InstanceId) -> bool,
    until: Timestamp,
) -> Result<bool, Fault> {
    let Some(id) = minted_for(&stack.name, runner) else { return Ok(false) };
    let Some(SeenRow { job, .. }) = rows::load(stack, &id, until).await? else { return Ok(false) };
    if matches!(job.state, JobState::Waiting { .. } | JobState::Assigning { .. }) {
        return Ok(runner_name(&stack.name, &id, job.names) == *runner);
    }
    Ok(job.keeps().is_some_and(|held| held.runner == *runner && lives(&held.instance)))
}
