//! Runners by their names: which job has one, and whether anybody still waits for it.
//!
//! A runner is named after the job it was minted for. Jobs that exchanged machines have each other's,
//! so whoever has a runner is found by following the names: each exchange is one more step.
//!
//! Whoever has a runner that works for another job may itself run on a third one's. The job that a
//! burst leaves without a runner is at the end of such a chain, and there may be none: then nobody
//! is to be served in its place.
//!
//! Not here: exchanging ([`super::exchange`]), or removing runners ([`crate::refresh`]).

use bullpen_core::ids::{InstanceId, RunnerName};
use bullpen_core::job::{JobPhase, JobState, minted_for, runner_name};
use bullpen_core::ports::{Fault, Ports};
use bullpen_core::time::Timestamp;

use super::rows::{self, SeenRow};
use crate::Stack;

/// How many exchanges are followed: as many as there may be in a burst of equal labels.
const STEPS_MAX: usize = 256;
/// How often a chain is walked that changes on the way.
const WALKS_MAX: usize = 8;

/// The job that has this runner.
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
            // Back at the beginning: nobody has it.
            Some(held) if held == name => return Ok(None),
            Some(held) => name = held,
            None => return Ok(None),
        }
    }
    Ok(None)
}

/// The job that waits because this runner works for another one.
///
/// Rows are exchanged while they are read. A walk that ends at nobody may have been led astray by that,
/// so it is made again until two agree.
pub(super) async fn robbed<P: Ports>(
    stack: &Stack<P>,
    runner: &RunnerName,
    until: Timestamp,
) -> Result<Option<SeenRow>, Fault> {
    let mut before = None;
    for _ in 0..WALKS_MAX {
        match at_the_end(stack, runner, until).await? {
            Ok(seen) => return Ok(Some(seen)),
            Err(way) if before.as_ref() == Some(&way) => break,
            Err(way) => before = Some(way),
        }
    }
    Ok(None)
}

/// Whoever waits at the end of the chain that begins with this runner; else the way that was gone.
async fn at_the_end<P: Ports>(
    stack: &Stack<P>,
    runner: &RunnerName,
    until: Timestamp,
) -> Result<Result<SeenRow, Vec<RunnerName>>, Fault> {
    let mut way = vec![runner.clone()];
    while way.len() < STEPS_MAX {
        let Some(runner) = way.last() else { break };
        let Some(seen) = holder(stack, runner, until).await? else { break };
        if seen.job.held().is_some() && seen.job.known.phase() == JobPhase::Queued {
            return Ok(Ok(seen));
        }
        match seen.job.taken_by_another() {
            Some(next) if !way.contains(next) => way.push(next.clone()),
            _ => break,
        }
    }
    Ok(Err(way))
}

/// Whether a job still waits for a runner of this name: it is being served under that name, or has
/// it on a machine that lives.
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
