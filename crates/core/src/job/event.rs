//! What can happen to a job besides what GitHub says, and why it may not.
//!
//! Not here: what each event does (`transition`).

use std::time::Duration;

use super::{AfterJob, Job, JobMachine, JobState, JobStepAt, Lane, MachineSource, Reason, Setback};
use crate::ids::{ClaimId, JobId};
use crate::time::Timestamp;

/// Something that we do about a job. Each carries the authority of whoever writes it: the worker's
/// nonce, the machine it holds, a time that has passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobEvent {
    /// It is known where it is served.
    Routed {
        /// Where.
        lane: Lane,
        /// Now.
        at: Timestamp,
    },
    /// Its pool has nothing for it: it may be launched for.
    Overflowed,
    /// A worker takes it on, or takes over from one whose lease has passed.
    Begun {
        /// The worker's nonce.
        worker: ClaimId,
        /// Now.
        at: Timestamp,
        /// Until when, unless it is renewed.
        lease: Timestamp,
        /// How far another worker's clock may be off.
        skew: Duration,
    },
    /// The worker is still on it.
    Renewed {
        /// The worker's nonce.
        worker: ClaimId,
        /// Until when, unless it is renewed again.
        lease: Timestamp,
    },
    /// The worker has a machine for it.
    Assigned {
        /// The worker's nonce.
        worker: ClaimId,
        /// The machine.
        held: JobMachine,
        /// How it was come by.
        how: MachineSource,
        /// Now.
        at: Timestamp,
        /// What the worker did on the way.
        notes: Vec<JobStepAt>,
    },
    /// The worker found nothing.
    SetBack {
        /// The worker's nonce.
        worker: ClaimId,
        /// Why.
        setback: Setback,
        /// Now.
        at: Timestamp,
        /// When to try again.
        not_before: Timestamp,
        /// What the worker did on the way.
        notes: Vec<JobStepAt>,
    },
    /// The machine it has is of no use to it any more, before it ran there.
    Freed {
        /// The machine, as it was read.
        held: JobMachine,
        /// Why.
        setback: Setback,
        /// Now.
        at: Timestamp,
        /// When to try again.
        not_before: Timestamp,
    },
    /// It runs on another machine of ours than the one it has; both jobs exchange.
    Swapped {
        /// What it has.
        from: JobMachine,
        /// What it has from now on.
        to: JobMachine,
        /// Now.
        at: Timestamp,
    },
    /// It runs on a machine of ours, and has none.
    Adopted {
        /// The machine.
        held: JobMachine,
        /// Until when a runner would have had to be there.
        deadline: Timestamp,
        /// Now.
        at: Timestamp,
    },
    /// It is given up.
    Failed {
        /// Why.
        reason: Reason,
        /// Now.
        at: Timestamp,
        /// When its run is cancelled at the latest; none if it is not to be.
        cancel_by: Option<Timestamp>,
    },
    /// Its repository is not one that this stack serves any more. Its author is told nothing.
    Dismissed {
        /// Why, for the operator.
        reason: Reason,
        /// Now.
        at: Timestamp,
    },
    /// Its author was told.
    Told {
        /// Now.
        at: Timestamp,
    },
    /// Its run is cancelled, or over.
    RunCancelled {
        /// Now.
        at: Timestamp,
    },
    /// It is decided what becomes of its machine.
    Judged {
        /// The machine.
        held: JobMachine,
        /// What becomes of it.
        after: AfterJob,
    },
    /// Its machine is released.
    Released {
        /// The machine.
        held: JobMachine,
        /// Now.
        at: Timestamp,
        /// What its record said of it before.
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
            Self::Swapped { .. } => "swapped",
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

/// A state without what is true in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobStateName {
    /// It wants no runner yet.
    Dormant,
    /// It wants one.
    Waiting,
    /// Somebody works on it.
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
    /// The state knows no such event.
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
    /// Nobody knows yet where it is served.
    #[error("no configuration has said yet where the job is served")]
    Unrouted,
    /// The time has not come.
    #[error("not before {until}")]
    TooEarly {
        /// When it comes.
        until: Timestamp,
    },
    /// Its time is up.
    #[error("its deadline {deadline} has passed")]
    Overdue {
        /// Its deadline.
        deadline: Timestamp,
    },
    /// It has begun to run.
    #[error("the job has begun to run")]
    Started,
}
