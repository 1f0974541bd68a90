//! A job of the service: what is known of it, what we do about it, and how it ends.
//!
//! What GitHub says are *facts* and only grow ([`fact`]); what we do is a *life* with states. The
//! row that is stored holds both, and its state follows from the facts: whatever order they come in,
//! the same facts leave the same row. [`Job::learn`] takes a fact, [`Job::on`] is the only other way
//! to move ([`transition`]).
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
    /// GitHub's id; another for every attempt of its run.
    pub id: JobId,
    /// What GitHub said.
    pub known: JobKnowledge,
    /// Where it is served; none until a configuration was read.
    pub lane: Option<Lane>,
    /// Whether its pool had nothing for it, so that it may be launched for.
    #[serde(default)]
    pub overflowed: bool,
    /// How many attempts have failed.
    pub attempts: u32,
    /// How many names its runners have used up. GitHub may be giving a job to a runner that was let
    /// go of, so that no other may be called like it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub names: u32,
    /// Machines that it had and let go of before it ran there, the last ones last. After an exchange
    /// the runner on one is named after another job, and whoever takes it back has to know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub let_go: Vec<JobMachine>,
    /// The last setbacks, oldest first.
    #[serde(default)]
    pub setbacks: Vec<SetbackAt>,
    /// What was done about it, oldest first, for whoever asks why it took as long as it did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<JobStepAt>,
    /// What the service does about it.
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
    /// By a machine as this request had them, which is over.
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

/// The lane of rows that wait for a configuration.
pub const UNROUTED: &str = "unrouted";

/// A machine that a job has, and the runner on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct JobMachine {
    /// Which machine.
    pub instance: InstanceId,
    /// Since which change of owner.
    pub generation: Generation,
    /// What its runner is called at GitHub.
    pub runner: RunnerName,
}

/// What we do about a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum JobState {
    /// Nothing: it wants no runner yet.
    Dormant,
    /// It wants a runner, and nobody works on it.
    Waiting {
        /// When it must have a runner, or a failure that its author can see.
        deadline: Timestamp,
        /// Not before this: a failed attempt is not repeated at once.
        not_before: Timestamp,
    },
    /// Somebody works on it.
    Assigning {
        /// Whose nonce this is.
        worker: ClaimId,
        /// Until when, unless it is renewed.
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
    },
    /// It runs, and not on a machine that it has.
    Elsewhere,
    /// It is over.
    Ended {
        /// How.
        end: End,
        /// When.
        at: Timestamp,
        /// What is still to be done about it.
        debts: EndTasks,
    },
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// It ran, well or badly, or was skipped.
    Completed(Conclusion),
    /// Somebody stopped it.
    Cancelled,
    /// We gave it up.
    Failed(Reason),
}

/// What is still to be done about a job that is over. A row with debts is looked at until it has
/// none, so that a crash between the end and its consequences loses neither.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct EndTasks {
    /// Its author must be told.
    #[serde(default)]
    pub tell: bool,
    /// Its run must be cancelled, once its other jobs are over or at this time.
    #[serde(default)]
    pub cancel_by: Option<Timestamp>,
    /// This machine must be released.
    #[serde(default)]
    pub release: Option<JobMachine>,
    /// What becomes of it then, once that is decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<AfterJob>,
}

impl EndTasks {
    /// Whether nothing is left to do.
    pub const fn is_settled(&self) -> bool {
        !self.tell && self.cancel_by.is_none() && self.release.is_none()
    }
}

impl Job {
    /// Whether it is over.
    pub const fn is_over(&self) -> bool {
        matches!(self.state, JobState::Ended { .. })
    }

    /// Whose job it is.
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

    /// The machine that is its own, also if releasing it is all that is left to do.
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

    /// What a runner of this job on this machine may be called at GitHub. While the job is being
    /// served its latest name is left out, unless it is this machine's: it may be another's.
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

    /// Whether it ran to its end on this runner: GitHub removes it then, and gives it no other job.
    pub fn is_done_on(&self, runner: &RunnerName) -> bool {
        self.known.completed.is_some() && self.known.runner() == Some(runner)
    }

    /// The runner that GitHub gave it to, if that is not the one it has. Whoever has that one, if it
    /// is ours, is to exchange with it, also when it is over already: what it would release is a
    /// machine that the other may be running on.
    pub fn taken_by_another(&self) -> Option<&RunnerName> {
        let runner = self.known.runner()?;
        match self.keeps() {
            Some(held) => (held.runner != *runner).then_some(runner),
            None => matches!(self.state, JobState::Elsewhere).then_some(runner),
        }
    }

    /// Whether a worker took it on since then, and was not set back.
    pub fn is_begun_since(&self, then: Timestamp) -> bool {
        let Some(JobStepAt { at, step: JobStep::Begun }) = self.steps.last() else { return false };
        *at >= then && self.setbacks.last().is_none_or(|setback| setback.at < *at)
    }

    /// Why it is to be given up now: its time is up, and nobody has a machine for it.
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

/// The name of a job's runner at GitHub. A lost race uses it again, so that nothing is left over
/// under another; once an agent was told it, it is used up ([`Job::names`]).
pub fn runner_name(stack: &str, job: &JobId, names: u32) -> RunnerName {
    RunnerName::new(format!("{stack}-{job}-{names}"))
}

/// The request that a job's machines are launched under.
pub fn request_id(job: &JobId) -> RequestId {
    RequestId::new(format!("job-{job}"))
}

/// The job that a runner of this name was minted for, if it is one of this stack's jobs.
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
