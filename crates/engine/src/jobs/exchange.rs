//! GitHub gave our runner to another job with the same labels: both jobs exchange machines.
//!
//! Runners are named after the jobs they were minted for, so the job that has a runner is found by
//! following the names: each exchange is one more step. Should the job that runs have no machine of
//! its own, the other one loses its runner and is served anew.
//!
//! Not here: the atomic write (the `Ledger` port).

use bullpen_core::ids::{JobId, RunnerName};
use bullpen_core::instance::{Record, State};
use bullpen_core::job::{Event, Held, Job, Setback};
use bullpen_core::ports::{Fault, JobForge, Ledger, Ports, RowSwap, Swap};

use super::rows::{self, Changed, Seen};
use super::{Attended, Service, owner_of, queues};
use crate::release;
use crate::transition;

/// How many exchanges are followed. Each needs two jobs of equal labels that start at once.
const STEPS_MAX: usize = 16;

/// Makes the rows say what is true, if the job runs on a machine that another one has.
pub(super) async fn exchange<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    seen: &Seen,
) -> Result<Attended, Fault> {
    let stack = service.stack;
    let Some(runner) = seen.job.taken_by_another().cloned() else { return Ok(Attended::Done) };
    let Some(other) = holder(service, &runner).await? else { return Ok(Attended::Done) };
    if other.job.id == seen.job.id {
        return Ok(Attended::Done);
    }
    let Some(theirs) = other.job.keeps().cloned() else { return Ok(Attended::Done) };
    let Some(ours) = seen.job.keeps().cloned() else {
        return deprive(service, &other, theirs).await;
    };
    let until = service.patience();
    let one = transition::read(stack, &ours.instance, until).await?;
    let two = transition::read(stack, &theirs.instance, until).await?;
    let (Some(one), Some(two)) = (one, two) else { return Ok(Attended::Done) };
    match (stage(&one, &seen.job, &ours), stage(&two, &other.job, &theirs)) {
        (Stage::Runs, Stage::Runs) => {}
        (Stage::Gone, _) | (_, Stage::Gone) => return Ok(Attended::Done),
        // Whoever prepared them marks them in a moment, or they are lost, which is looked at too.
        (Stage::Prepared, _) | (_, Stage::Prepared) => {
            return Ok(Attended::Again { at: stack.now().after(stack.limits.heartbeat) });
        }
    }
    let row = |seen: &Seen, from: &Held, to: &Held| -> Option<RowSwap> {
        let event = Event::Swapped { from: from.clone(), to: to.clone() };
        let job = seen.job.on(&event).ok()?;
        let row = job.row(Some(seen.revision), stack.now(), &stack.limits);
        Some(RowSwap { seen: seen.revision, row })
    };
    let (Some(first), Some(second)) = (row(seen, &ours, &theirs), row(&other, &theirs, &ours))
    else {
        return Ok(Attended::Done);
    };
    tracing::info!(job_id = %seen.job.id, other = %other.job.id, "two jobs exchange machines");
    let swap = Swap { records: [one, two], rows: [first, second] };
    let _ = stack.ports.ledger().swap(&swap).await?;
    // Won, lost or unknown: a look at the row tells, and there is nothing to do if it landed.
    Ok(Attended::Again { at: stack.now().after(stack.limits.heartbeat) })
}

/// How far a machine is with the job whose row names it.
enum Stage {
    Prepared,
    Runs,
    /// It is not the job's any more, or is being taken back.
    Gone,
}

fn stage(record: &Record, job: &Job, held: &Held) -> Stage {
    if record.generation != held.generation || record.state.owner() != Some(&owner_of(&job.id)) {
        return Stage::Gone;
    }
    match record.state {
        State::Created { .. } | State::Claimed { .. } => Stage::Prepared,
        State::Running { .. } => Stage::Runs,
        _ => Stage::Gone,
    }
}

/// The job that has this runner.
async fn holder<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    runner: &RunnerName,
) -> Result<Option<Seen>, Fault> {
    let stack = service.stack;
    let mut name = runner.clone();
    for _ in 0..STEPS_MAX {
        let Some(job) = named_after(&stack.name, &name) else { return Ok(None) };
        let Some(seen) = rows::load(stack, &job, service.patience()).await? else {
            return Ok(None);
        };
        match held_runner(&seen.job) {
            Some(held) if held == *runner => return Ok(Some(seen)),
            // Back at the beginning: nobody has it.
            Some(held) if held == name => return Ok(None),
            Some(held) => name = held,
            None => return Ok(None),
        }
    }
    Ok(None)
}

fn held_runner(job: &Job) -> Option<RunnerName> {
    job.keeps().map(|held| held.runner.clone())
}

/// The job that a runner was minted for.
fn named_after(stack: &str, runner: &RunnerName) -> Option<JobId> {
    let rest = runner.as_str().strip_prefix(stack)?.strip_prefix('-')?;
    let (job, attempt) = rest.rsplit_once('-')?;
    attempt.parse::<u32>().ok()?;
    Some(JobId::new(job))
}

/// The other job's runner works for somebody else: that machine is taken back once it is done, and
/// the other job is served anew.
async fn deprive<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    other: &Seen,
    theirs: Held,
) -> Result<Attended, Fault> {
    let stack = service.stack;
    let now = stack.now();
    let event =
        Event::Freed { held: theirs, setback: Setback::RunnerTaken, at: now, not_before: now };
    let freed = rows::apply(stack, &other.job.id, &event, service.patience()).await?;
    if let Changed::To(seen) = freed {
        for record in release::withdraw_all(stack, &owner_of(&other.job.id)).await? {
            // Busy until the job is over; the reaper goes on from there.
            let _ = release::finish(stack, &record).await?;
        }
        queues::wake(stack, &seen).await;
    }
    Ok(Attended::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runner_names_the_job_it_was_minted_for() {
        let named = |name: &str| named_after("my-stack", &RunnerName::new(name));
        assert_eq!(named("my-stack-4242-0"), Some(JobId::new("4242")));
        assert_eq!(named("my-stack-4242-x"), None);
        assert_eq!(named("another-4242-0"), None);
        assert_eq!(named("my-stack-4242"), None);
    }
}
