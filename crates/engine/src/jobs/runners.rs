//! Finding jobs by runner name: which job has a runner, and whether a job still waits for it.
//!
//! A runner is named after the job it was minted for. Jobs that exchanged machines have each
//! other's runners, so [`holder`] follows the names: each exchange is one more step.
//!
//! A job whose runner works for another job may itself run on a third job's runner. The displaced
//! job, which has no runner, is at the end of such a chain. A chain without one displaces no job.
//!
//! Not here: exchanging ([`super::exchange`]), or removing runners ([`crate::refresh`]).

use bullpen_core::ids::{InstanceId, RunnerName};
use bullpen_core::job::{JobPhase, JobState, minted_for, runner_name};
use bullpen_core::ports::{Fault, Ports};
use bullpen_core::time::Timestamp;

use super::rows::{self, SeenRow};
use crate::Stack;

/// How many exchanges a walk follows: as many as there may be in a burst of equal labels.
const STEPS_MAX: usize = 256;
/// How many times [`displaced`] walks a chain that changes meanwhile.
const WALKS_MAX: usize = 8;

/// Finds the job that has this runner.
pub(super) async fn holder<P: Ports>(
    stack: &Stack<P>,
    runner: &RunnerName,
    until: Timestamp,
) -> Result<Option<SeenRow>, Fault> {
    let mut name = runner.clone();
    for _ in 0..STEPS_MAX {
        let Some(job) = minted_for(&stack.name, &name) else { return Ok(None) };
        let Some(seen) = rows::load(stack, &job, until).await? else { return Ok(None) };
        match seen.job.keeps().map(|held| held.runner.clone()) {
            Some(held) if held == *runner => return Ok(Some(seen)),
            // This job has the runner minted for it, so the walk ends without a job.
            Some(held) if held == name => return Ok(None),
            Some(held) => name = held,
            None => return Ok(None),
        }
    }
    Ok(None)
}

/// Finds the job that waits because this runner works for another job.
///
/// Workers may exchange rows during the walk and mislead it, so a walk that finds no job is
/// repeated until two walks pass the same runners.
pub(super) async fn displaced<P: Ports>(
    stack: &Stack<P>,
    runner: &RunnerName,
    until: Timestamp,
) -> Result<Option<SeenRow>, Fault> {
    let mut before = None;
    for _ in 0..WALKS_MAX {
        match end_of_chain(stack, runner, until).await? {
            Ok(seen) => return Ok(Some(seen)),
            Err(chain) if before.as_ref() == Some(&chain) => break,
            Err(chain) => before = Some(chain),
        }
    }
    Ok(None)
}

/// Finds the waiting job at the end of the chain that begins with this runner; without one, returns
/// the runners on the chain.
async fn end_of_chain<P: Ports>(
    stack: &Stack<P>,
    runner: &RunnerName,
    until: Timestamp,
) -> Result<Result<SeenRow, Vec<RunnerName>>, Fault> {
    let mut chain = vec![runner.clone()];
    while chain.len() < STEPS_MAX {
        let Some(runner) = chain.last() else { break };
        let Some(seen) = holder(stack, runner, until).await? else { break };
        if seen.job.held().is_some() && seen.job.known.phase() == JobPhase::Queued {
            return Ok(Ok(seen));
        }
        match seen.job.taken_by_another() {
            Some(next) if !chain.contains(next) => chain.push(next.clone()),
            _ => break,
        }
    }
    Ok(Err(chain))
}

/// Whether a job still waits for a runner of this name: a worker serves the job under that name, or
/// the job has the runner on a machine that `lives`.
pub(crate) async fn is_awaited<P: Ports>(
    stack: &Stack<P>,
    runner: &RunnerName,
    lives: impl Fn(&InstanceId) -> bool,
    until: Timestamp,
) -> Result<bool, Fault> {
    let Some(job) = minted_for(&stack.name, runner) else { return Ok(false) };
    let Some(seen) = rows::load(stack, &job, until).await? else { return Ok(false) };
    if matches!(seen.job.state, JobState::Waiting { .. } | JobState::Assigning { .. }) {
        let name = runner_name(&stack.name, &job, seen.job.names);
        if name == *runner {
            return Ok(true);
        }
    }
    let has = |seen: &SeenRow| seen.job.keeps().is_some_and(|held| lives(&held.instance));
    Ok(holder(stack, runner, until).await?.as_ref().is_some_and(has))
}
