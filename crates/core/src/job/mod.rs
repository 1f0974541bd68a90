//! A job of the service: the facts that are known of it, the state of our work on it, and its end.
//!
//! GitHub reports *facts*, and they only grow ([`fact`]); our own work on a job has a *state*. The
//! stored row holds both, and the state follows from the facts: the same facts leave the same row
//! in any order. [`Job::learn`] takes a fact, and [`Job::on`] takes an event; nothing else moves a
//! job ([`transition`]).
//!
//! Not here: storing rows (the `Ledger` port), labels and pools (`route`), GitHub's JSON.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{
    ClaimId, ClassName, Generation, InstanceId, JobId, PoolName, Repository, RequestId, RunnerName,
};
use crate::sabotage;
use crate::time::Timestamp;

pub mod active;
pub mod aside;
pub mod capacity;
pub mod event;
pub mod fact;
pub mod fair;
pub mod ingest;
pub mod origin;
pub mod placement;
pub mod reason;
pub mod rerun;
pub mod returning;
pub mod run_note;
pub mod search;
pub mod step;
mod stored;
#[cfg(test)]
mod tests;
pub mod transition;
pub mod wake;

pub use event::{JobEvent, JobRefusal, JobStateName};
pub use fact::{Conclusion, JobDetails, JobFact, JobKnowledge, JobPhase, ReportedStatus};
pub use ingest::{IngestOutcome, ingest, reroute};
pub use origin::{
    CodeRules, OnlyUnused, Origin, Provenance, RunFact, SharedLabels, UsedMachines, Visibility,
    used_machines,
};
pub use placement::{Placement, place};
pub use reason::{Reason, Setback, SetbackAt};
pub use returning::{AfterJob, after_job, ends_anyway};
pub use step::{JobStep, JobStepAt, MachineSource, STEPS_FIRST_KEPT, STEPS_KEPT_MAX};
pub use stored::{ENDED_LOOK_AGAIN, FOREIGN_LOOK_AGAIN, QUEUED_BELIEVED_FOR, RUNNING_LOOK_AGAIN};
pub use transition::{AfterSetback, SETBACKS_KEPT_MAX};
pub use wake::{DeadLetter, UnreadableWake, Wake};

/// A job as its row holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Job {
    /// GitHub's id, which differs for every attempt of its run.
    pub id: JobId,
    /// The facts that GitHub reported.
    pub known: JobKnowledge,
    /// Where it is served; none until the service has read a configuration.
    pub lane: Option<Lane>,
    /// Whether its pool had no machine for it, so that a worker may launch one.
    #[serde(default)]
    pub overflowed: bool,
    /// How many attempts have failed.
    pub attempts: u32,
    /// How many runner names it has used up. GitHub may still give a job to a runner that this job
    /// gave up, so no later runner may have that name.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub names: u32,
    /// Machines that it gave up before it ran there, newest last: the release of such a machine
    /// needs the name of its runner.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub let_go: Vec<JobMachine>,
    /// The other job that GitHub started on the runner that it has, or had last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_by: Option<JobId>,
    /// The last setbacks, oldest first.
    #[serde(default)]
    pub setbacks: Vec<SetbackAt>,
    /// What the service did about it, oldest first: `explain` shows how long each step took.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<JobStepAt>,
    /// The state of our work on it.
    #[serde(rename = "life")]
    pub state: JobState,
}

/// Where a job is served.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lane {
    /// From this standby pool.
    Pool(PoolName),
    /// By a machine of this named class, reused or new.
    Class(ClassName),
    /// By a new machine of a class that has no name.
    Anonymous,
    /// By a machine like those of this request, which is over.
    Request(RequestId),
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool(name) => write!(f, "pool/{name}"),
            Self::Class(name) => write!(f, "class/{name}"),
            Self::Anonymous => f.write_str("launch"),
            Self::Request(id) => write!(f, "request/{id}"),
        }
    }
}

/// The lane name of rows that wait for a configuration.
pub const UNROUTED: &str = "unrouted";

/// A machine that a job has, and the runner on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct JobMachine {
    /// Which machine.
    pub instance: InstanceId,
    /// The machine's generation since the job got it.
    pub generation: Generation,
    /// The runner's name at GitHub.
    pub runner: RunnerName,
}

/// The state of our work on a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum JobState {
    /// It wants no runner yet.
    Dormant,
    /// It wants a runner, and no worker has it.
    Waiting {
        /// When it must have a runner, or a failure that its author can see, at the latest.
        deadline: Timestamp,
        /// The earliest time of the next attempt: a worker does not repeat a failure at once.
        not_before: Timestamp,
    },
    /// A worker looks for a machine for it.
    Assigning {
        /// The worker's nonce.
        worker: ClaimId,
        /// When the worker's lease passes, unless the worker renews it.
        lease: Timestamp,
        /// As for [`JobState::Waiting`].
        deadline: Timestamp,
    },
    /// It has a machine.
    Assigned {
        /// Which one.
        held: JobMachine,
        /// As for [`JobState::Waiting`].
        deadline: Timestamp,
        /// What happens to the machine, if that is decided before the job's end: the job runs on
        /// another machine.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<AfterJob>,
    },
    /// It runs, but not on a machine that it has.
    Elsewhere,
    /// It is over.
    Ended {
        /// How.
        end: End,
        /// When.
        at: Timestamp,
        /// The tasks that remain.
        debts: EndTasks,
    },
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// It ran, successfully or not, or was skipped.
    Completed(Conclusion),
    /// It was cancelled.
    Cancelled,
    /// The service gave it up.
    Failed(Reason),
}

/// The tasks that remain after a job's end. The sweep looks at the row until no task remains, so
/// that a crash after the end loses none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct EndTasks {
    /// Tell its author why it failed.
    #[serde(default)]
    pub tell: bool,
    /// Cancel its run once the run's other jobs are over, at this time at the latest.
    #[serde(default)]
    pub cancel_by: Option<Timestamp>,
    /// Release this machine.
    #[serde(default)]
    pub release: Option<JobMachine>,
    /// What happens to the released machine, once that is decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<AfterJob>,
}

impl EndTasks {
    /// Whether no task remains.
    pub const fn is_settled(&self) -> bool {
        !self.tell && self.cancel_by.is_none() && self.release.is_none()
    }
}

impl Job {
    /// Whether it is over.
    pub const fn is_over(&self) -> bool {
        matches!(self.state, JobState::Ended { .. })
    }

    /// The repository of its workflow.
    pub const fn repository(&self) -> &Repository {
        &self.known.about.repository
    }

    /// The machine it has.
    pub const fn held(&self) -> Option<&JobMachine> {
        match &self.state {
            JobState::Assigned { held, .. } => Some(held),
            JobState::Dormant
            | JobState::Waiting { .. }
            | JobState::Assigning { .. }
            | JobState::Elsewhere
            | JobState::Ended { .. } => None,
        }
    }

    /// The machine that it has, or that it still has to release after its end.
    pub const fn keeps(&self) -> Option<&JobMachine> {
        match &self.state {
            JobState::Ended { debts, .. } => debts.release.as_ref(),
            JobState::Dormant
            | JobState::Waiting { .. }
            | JobState::Assigning { .. }
            | JobState::Assigned { .. }
            | JobState::Elsewhere => self.held(),
        }
    }

    /// The names that a runner of this job on this machine may have at GitHub. Until the job is
    /// over its latest name is left out, unless it has this machine: another machine's runner may
    /// have that name.
    pub fn runners_on(&self, stack: &str, instance: &InstanceId) -> Vec<RunnerName> {
        if let Some(held) = self.keeps().filter(|held| held.instance == *instance) {
            return vec![held.runner.clone()];
        }
        if let Some(held) = self.let_go.iter().rev().find(|held| held.instance == *instance) {
            return vec![held.runner.clone()];
        }
        let names = self.names + u32::from(self.is_over());
        (0..names).map(|name| runner_name(stack, &self.id, name)).collect()
    }

    /// Whether it ran to its end on this runner: GitHub then removes the runner and gives it no
    /// other job.
    pub fn is_done_on(&self, runner: &RunnerName) -> bool {
        self.known.completed.is_some() && self.known.runner() == Some(runner)
    }

    /// The other job of this stack whose runner GitHub gave it to, and that runner.
    pub fn took(&self, stack: &str) -> Option<(JobId, &RunnerName)> {
        let runner = self.known.runner()?;
        let owner = minted_for(stack, runner).filter(|owner| *owner != self.id)?;
        Some((owner, runner))
    }

    /// Whether it runs, or ran, on a runner other than the one on its machine.
    pub fn is_elsewhere(&self, held: &JobMachine) -> bool {
        self.known.runner().is_some_and(|runner| *runner != held.runner)
    }

    /// The machine on which this runner of it is, or was.
    pub fn machine_of(&self, runner: &RunnerName) -> Option<&JobMachine> {
        self.keeps().into_iter().chain(&self.let_go).find(|held| held.runner == *runner)
    }

    /// The machine of another job that it runs on.
    pub fn runs_on(&self) -> Option<&InstanceId> {
        self.steps.iter().rev().find_map(|step| match &step.step {
            JobStep::Exchanged { instance } => Some(instance),
            _ => None,
        })
    }

    /// Whether no attempt before the current one can have got it a machine.
    pub const fn is_on_first_attempt(&self) -> bool {
        self.setbacks.is_empty() && self.names == 0
    }

    /// How many times in a row GitHub's limits allowed no runner for it.
    pub fn refusals(&self) -> u32 {
        let last = self.setbacks.last();
        last.filter(|last| last.setback == Setback::RateLimited).map_or(0, |last| last.times)
    }

    /// Whether a worker took it on since `then` and has met no setback.
    pub fn is_begun_since(&self, then: Timestamp) -> bool {
        let Some(JobStepAt { at, step: JobStep::Begun }) = self.steps.last() else { return false };
        *at >= then && self.setbacks.last().is_none_or(|setback| setback.at < *at)
    }

    /// Why to give it up now: its deadline has passed, and it has no machine.
    pub fn overdue(&self, now: Timestamp) -> Option<Reason> {
        let deadline = match &self.state {
            JobState::Waiting { deadline, .. } | JobState::Assigning { deadline, .. } => *deadline,
            JobState::Dormant
            | JobState::Assigned { .. }
            | JobState::Elsewhere
            | JobState::Ended { .. } => {
                return None;
            }
        };
        let last = self.setbacks.last().map(|setback| setback.setback.clone());
        (now >= deadline && !sabotage!("jobs-have-no-deadline"))
            .then_some(Reason::DeadlinePassed { last })
    }
}

/// The name of a job's runner at GitHub. The attempt after a lost race uses the same name, so that
/// no runner stays registered under another. A name that an agent has got is used up
/// ([`Job::names`]).
pub fn runner_name(stack: &str, job: &JobId, names: u32) -> RunnerName {
    RunnerName::new(format!("{stack}-{job}-{names}"))
}

/// The request under which a job's machines are launched.
pub fn request_id(job: &JobId) -> RequestId {
    RequestId::new(format!("job-{job}"))
}

/// The job whose runner got this name, if it is a job of this stack.
pub fn minted_for(stack: &str, runner: &RunnerName) -> Option<JobId> {
    let rest = runner.as_str().strip_prefix(stack)?.strip_prefix('-')?;
    let (job, names) = rest.rsplit_once('-')?;
    names.parse::<u32>().ok()?;
    Some(JobId::new(job))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}
