//! The invariants that jobs, their machines and GitHub's runners show together.
//!
//! A listing lags and a process needs time, so a check reports only what has stood for a grace.
//!
//! Not here: records and machines alone ([`super::on_world`]).

use std::collections::BTreeMap;

use super::{Invariant, Violation, violation};
use crate::ids::{Generation, InstanceId, JobId};
use crate::instance::{Owner, Record, State};
use crate::job::{Job, JobState};
use crate::limits::Limits;
use crate::parameters::OfflineRunners;
use crate::ports::{Machine, MachineState, Runner};
use crate::tenure::runner_name;
use crate::time::Timestamp;

/// How many sweeps may pass until a runner is removed: the first notices it, and GitHub may be away.
const GHOST_SWEEPS: u32 = 10;

/// The jobs of a stack at one moment, and what they have.
#[derive(Clone, Debug)]
pub struct JobsSnapshot<'a> {
    /// The stack's name, which begins the names of its runners.
    pub stack: &'a str,
    /// The current time.
    pub now: Timestamp,
    /// The live records.
    pub records: &'a [Record],
    /// The jobs that own a live record or are due.
    pub jobs: &'a [Job],
    /// Every machine with the stack's tag.
    pub machines: &'a [Machine],
    /// The stack's runners at GitHub; none if GitHub was not asked.
    pub runners: Option<&'a [Runner]>,
    /// The runners that no machine had when the stack was last swept, and since when.
    pub offline: &'a OfflineRunners,
    /// The limits in force.
    pub limits: &'a Limits,
}

/// Checks that every job is served or ended, that no two have one machine, that no machine belongs to
/// a job that does not know it, that none was stopped under its owner, and that machines and runners
/// belong together.
pub fn on_jobs(seen: &JobsSnapshot<'_>) -> Vec<Violation> {
    let jobs: BTreeMap<&JobId, &Job> = seen.jobs.iter().map(|job| (&job.id, job)).collect();
    let mut found = overdue(seen);
    found.extend(shared(seen));
    for record in seen.records.iter().filter(|record| is_settled(record, seen)) {
        found.extend(forgotten(record, &jobs));
        found.extend(stopped(record, seen));
        found.extend(without_runner(record, seen));
    }
    found.extend(ghosts(seen));
    found
}

/// Whether an owner has had the instance for longer than the grace.
fn is_settled(record: &Record, seen: &JobsSnapshot<'_>) -> bool {
    let State::Running { since, .. } = &record.state else { return false };
    seen.now.since(*since) > seen.limits.reconcile_grace
}

fn overdue(seen: &JobsSnapshot<'_>) -> Vec<Violation> {
    let grace = seen.limits.reconcile_grace;
    let late = seen.jobs.iter().filter_map(|job| match &job.state {
        JobState::Waiting { deadline, .. } | JobState::Assigning { deadline, .. }
            if seen.now.since(*deadline) > grace =>
        {
            Some((job, deadline))
        }
        _ => None,
    });
    late.map(|(job, deadline)| Violation {
        invariant: Invariant::EveryJobEnds,
        instance: None,
        what: format!("job {} of {} waits past its deadline {deadline}", job.id, job.repository()),
    })
    .collect()
}

/// Two jobs that have one instance at one generation.
fn shared(seen: &JobsSnapshot<'_>) -> Vec<Violation> {
    let mut holders: BTreeMap<(&InstanceId, Generation), &Job> = BTreeMap::new();
    let mut found = Vec::new();
    for job in seen.jobs {
        let Some(held) = job.held() else { continue };
        if let Some(other) = holders.insert((&held.instance, held.generation), job) {
            found.push(Violation {
                invariant: Invariant::OneOwner,
                instance: Some(held.instance.clone()),
                what: format!("jobs {} and {} both have it", other.id, job.id),
            });
        }
    }
    found
}

/// An instance whose job does not exist, or does not know that it has it.
fn forgotten(record: &Record, jobs: &BTreeMap<&JobId, &Job>) -> Option<Violation> {
    let Some(Owner::Job(id)) = record.state.owner() else { return None };
    let what = match jobs.get(id) {
        None => format!("it runs for job {id}, of which there is no row"),
        Some(job) => {
            let has = job.keeps().into_iter().chain(&job.let_go);
            if has.into_iter().any(|held| held.instance == record.id) {
                return None;
            }
            format!("it runs for job {id}, whose row does not name it")
        }
    };
    Some(violation(Invariant::Conservation, record, what))
}

fn stopped(record: &Record, seen: &JobsSnapshot<'_>) -> Option<Violation> {
    let machine = seen.machines.iter().find(|machine| machine.id == record.id)?;
    matches!(machine.state, MachineState::Stopping | MachineState::Stopped).then(|| {
        violation(Invariant::Protected, record, "its machine is stopped, and it has an owner")
    })
}

/// An instance that runs for a request and has no runner at GitHub. A job's runner is gone as soon as the
/// job is over, which its row may not know yet.
fn without_runner(record: &Record, seen: &JobsSnapshot<'_>) -> Option<Violation> {
    let runners = seen.runners?;
    let Some(owner @ Owner::Request(_)) = record.state.owner() else { return None };
    let name = runner_name(seen.stack, &record.id, record.generation);
    let is_there = runners.iter().any(|runner| runner.name == name);
    (!is_there).then(|| {
        let what = format!("it runs for {owner}, and GitHub has no runner of it");
        violation(Invariant::NoGhosts, record, what)
    })
}

/// Runners that belonged to no instance at several sweeps, and that no sweep removed. One look proves
/// nothing: GitHub shows a runner for a while after its machine has ended.
fn ghosts(seen: &JobsSnapshot<'_>) -> Vec<Violation> {
    let Some(runners) = seen.runners else { return Vec::new() };
    let removed_within = seen.limits.reconcile_grace + seen.limits.upkeep * GHOST_SWEEPS;
    let lasting = |runner: &&Runner| {
        let since = seen.offline.since.get(&runner.name);
        since.is_some_and(|since| seen.now.since(*since) > removed_within)
    };
    let ghosts = runners.iter().filter(|runner| !runner.online && !runner.busy).filter(lasting);
    ghosts
        .map(|runner| Violation {
            invariant: Invariant::NoGhosts,
            instance: None,
            what: format!("the runner {} belongs to no machine, and is not removed", runner.name),
        })
        .collect()
}
