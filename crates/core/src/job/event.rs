//! Events: what the service does about a job, and why a job may refuse one.
//!
//! Not here: what each event does (`transition`).

use std::time::Duration;

use super::{AfterJob, Job, JobMachine, JobState, JobStepAt, Lane, MachineSource, Reason, Setback};
use crate::ids::{ClaimId, InstanceId, JobId, RunnerName};
use crate::time::Timestamp;

/// An action of the service on a job. Each event carries its writer's authority: the worker's
/// nonce, the machine that the job has, or a time that has passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobEvent {
    /// Its route is known.
    Routed {
        /// Where it is served.
        lane: Lane,
        /// Now.
        at: Timestamp,
    },
    /// Its pool has no machine for it: a worker may launch one.
    Overflowed,
    /// A worker takes it on, or takes over from a worker whose lease has passed.
    Begun {
        /// The worker's nonce.
        worker: ClaimId,
        /// Now.
        at: Timestamp,
        /// When the lease passes, unless the worker renews it.
        lease: Timestamp,
        /// How far another worker's clock may be off.
        skew: Duration,
    },
    /// The worker renews its lease.
    Renewed {
        /// The worker's nonce.
        worker: ClaimId,
        /// When the lease passes, unless the worker renews it again.
        lease: Timestamp,
    },
    /// The worker has a machine for it.
    Assigned {
        /// The worker's nonce.
        worker: ClaimId,
        /// The machine.
        held: JobMachine,
        /// How the worker got it.
        how: MachineSource,
        /// Now.
        at: Timestamp,
        /// The worker's steps since its last write.
        notes: Vec<JobStepAt>,
    },
    /// The worker's attempt failed.
    SetBack {
        /// The worker's nonce.
        worker: ClaimId,
        /// Why.
        setback: Setback,
        /// Now.
        at: Timestamp,
        /// When to try again.
        not_before: Timestamp,
        /// The worker's steps since its last write.
        notes: Vec<JobStepAt>,
    },
    /// Its machine became useless to it before it ran there.
    Freed {
        /// The machine in the row that the writer read.
        held: JobMachine,
        /// Why.
        setback: Setback,
        /// Now.
        at: Timestamp,
        /// When to try again.
        not_before: Timestamp,
    },
    /// GitHub started another job of ours on its runner.
    Taken {
        /// The runner.
        runner: RunnerName,
        /// The other job.
        by: JobId,
    },
    /// GitHub started it on the runner of another job.
    RunsOn {
        /// The machine of that runner.
        instance: InstanceId,
        /// Now.
        at: Timestamp,
    },
    /// It runs, or ran, on another job's machine, and its worker has a machine for it all the same:
    /// a third job waits for that machine.
    Adopted {
        /// The machine.
        held: JobMachine,
        /// When it would have had to have a runner at the latest.
        deadline: Timestamp,
        /// Now.
        at: Timestamp,
    },
    /// The service gives it up.
    Failed {
        /// Why.
        reason: Reason,
        /// Now.
        at: Timestamp,
        /// The latest time to cancel its run; none to leave the run alone.
        cancel_by: Option<Timestamp>,
    },
    /// This stack no longer serves its repository. The service does not tell its author.
    Dismissed {
        /// Why, for the operator.
        reason: Reason,
        /// Now.
        at: Timestamp,
    },
    /// The service told its author.
    Told {
        /// Now.
        at: Timestamp,
    },
    /// Its run is cancelled, or over.
    RunCancelled {
        /// Now.
        at: Timestamp,
    },
    /// The service decided what happens to its machine.
    Judged {
        /// The machine.
        held: JobMachine,
        /// The job that ran there instead, as the writer read it in the row.
        taken_by: Option<JobId>,
        /// What happens to it.
        after: AfterJob,
    },
    /// The service released its machine.
    Released {
        /// The machine.
        held: JobMachine,
        /// Now.
        at: Timestamp,
        /// Steps that the machine's record showed before its release.
        notes: Vec<JobStepAt>,
    },
}

impl JobEvent {
    /// The event's name, for refusals.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Routed { .. } => "routed",
            Self::Overflowed => "overflowed",
            Self::Begun { .. } => "begun",
            Self::Renewed { .. } => "renewed",
            Self::Assigned { .. } => "assigned",
            Self::SetBack { .. } => "set-back",
            Self::Freed { .. } => "freed",
            Self::Taken { .. } => "taken",
            Self::RunsOn { .. } => "runs-on",
            Self::Adopted { .. } => "adopted",
            Self::Failed { .. } => "failed",
            Self::Dismissed { .. } => "dismissed",
            Self::Told { .. } => "told",
            Self::RunCancelled { .. } => "run-cancelled",
            Self::Judged { .. } => "judged",
            Self::Released { .. } => "released",
        }
    }
}

/// The name of a [`JobState`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobStateName {
    /// It wants no runner yet.
    Dormant,
    /// It wants one.
    Waiting,
    /// A worker looks for a machine for it.
    Assigning,
    /// It has a machine.
    Assigned,
    /// It runs on a machine that it does not have.
    Elsewhere,
    /// It is over.
    Ended,
}

impl JobStateName {
    /// The state's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dormant => "dormant",
            Self::Waiting => "waiting",
            Self::Assigning => "assigning",
            Self::Assigned => "assigned",
            Self::Elsewhere => "elsewhere",
            Self::Ended => "ended",
        }
    }
}

impl JobState {
    /// The state's name.
    pub const fn name(&self) -> JobStateName {
        match self {
            Self::Dormant => JobStateName::Dormant,
            Self::Waiting { .. } => JobStateName::Waiting,
            Self::Assigning { .. } => JobStateName::Assigning,
            Self::Assigned { .. } => JobStateName::Assigned,
            Self::Elsewhere => JobStateName::Elsewhere,
            Self::Ended { .. } => JobStateName::Ended,
        }
    }
}

impl Job {
    pub(super) fn illegal(&self, event: &JobEvent) -> JobRefusal {
        JobRefusal::Illegal { state: self.state.name(), event: event.name() }
    }
}

/// Why an event or a fact does not move a job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobRefusal {
    /// The state does not accept the event.
    #[error("{} does not accept {event}", state.as_str())]
    Illegal {
        /// The state.
        state: JobStateName,
        /// The event.
        event: &'static str,
    },
    /// The fact is about another job.
    #[error("the fact is about job {job}")]
    AnotherJob {
        /// Which.
        job: JobId,
    },
    /// Another worker has it.
    #[error("another worker has the job")]
    AnotherWorker,
    /// It has another machine.
    #[error("the job has another machine")]
    AnotherMachine,
    /// No configuration has routed it yet.
    #[error("the job has no route yet")]
    Unrouted,
    /// It is too early.
    #[error("not before {until}")]
    TooEarly {
        /// The earliest time.
        until: Timestamp,
    },
    /// Its deadline has passed.
    #[error("its deadline {deadline} has passed")]
    Overdue {
        /// Its deadline.
        deadline: Timestamp,
    },
    /// It has begun to run.
    #[error("the job has begun to run")]
    Started,
}
