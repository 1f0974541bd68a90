//! The events of an instance, the authority behind each, and the reasons to refuse them.
//!
//! Not here: what an event does ([`super::transition`]).

use std::time::Duration;

use super::{EndReason, Owner, StateName};
use crate::ids::{ClaimId, Generation, PoolName, StopOp, TrustGroup};
use crate::mailbox::Unexposed;
use crate::time::Timestamp;

/// What entitles a writer to take back or end an instance.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Authority {
    /// Its owner, at the generation it owns.
    Owner {
        /// The owner.
        owner: Owner,
        /// The generation that the writer read.
        generation: Generation,
    },
    /// The process that carries out a release, at the generation the release made.
    Release {
        /// The generation that the writer read.
        generation: Generation,
    },
    /// The state's own deadline has passed.
    Deadline {
        /// The present time.
        at: Timestamp,
    },
    /// The pool it stands by in. Never over anything claimed, running or being released.
    Pool {
        /// The pool's name.
        pool: PoolName,
    },
    /// An operator's explicit command.
    Operator,
    /// The cloud reports that the machine is gone.
    Cloud,
}

/// What a pool's machine becomes when its warm-up is complete.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AfterWarmUp {
    /// It stays running.
    Hot {
        /// When it expires.
        deadline: Timestamp,
        /// Whether it may serve other requests of its class.
        shared: bool,
    },
    /// It is stopped.
    ToStop {
        /// The stop call that will be made.
        op: StopOp,
        /// Until when that call may land.
        until: Timestamp,
        /// When the machine must have stopped.
        deadline: Timestamp,
    },
}

/// Something that happened to an instance, or that an authorised writer decides.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum InstanceEvent {
    /// A pool's machine reported that its warm-up is complete.
    WarmedUp {
        /// The pool's name.
        pool: PoolName,
        /// The present time.
        at: Timestamp,
        /// The next step for the machine.
        into: AfterWarmUp,
    },
    /// The cloud reports that a machine recorded as stopped runs: a start call landed late.
    FoundRunning {
        /// The stop call that will be made.
        op: StopOp,
        /// Until when it may land.
        until: Timestamp,
        /// When the machine must have stopped.
        deadline: Timestamp,
    },
    /// The writer will repeat the stop call.
    StopAgain {
        /// The new call.
        op: StopOp,
        /// Until when it may land.
        until: Timestamp,
    },
    /// The cloud reports the machine as stopped.
    FoundStopped {
        /// The present time.
        at: Timestamp,
        /// How far the clock that wrote `until` may be behind the reader's clock.
        skew: Duration,
        /// When it expires.
        deadline: Timestamp,
        /// Whether it may serve other requests of its class.
        shared: bool,
    },
    /// A claim worker takes an idle instance.
    Claimed {
        /// The new owner.
        owner: Owner,
        /// The claim's nonce.
        claim: ClaimId,
        /// The trust group whose code will run.
        trust: TrustGroup,
        /// The generation the worker saw.
        seen: Generation,
        /// The present time.
        at: Timestamp,
        /// How close to its deadline an idle machine can no longer be claimed.
        margin: Duration,
        /// When the claim lapses.
        lease: Timestamp,
    },
    /// A second worker of the same owner takes the claim over; the first is fenced.
    TakenOver {
        /// The owner.
        owner: Owner,
        /// The generation the second worker saw.
        generation: Generation,
        /// The second worker's nonce.
        claim: ClaimId,
        /// When the claim lapses.
        lease: Timestamp,
    },
    /// A worker keeps its claim alive.
    Renewed {
        /// The claim's nonce.
        claim: ClaimId,
        /// Its generation.
        generation: Generation,
        /// When the claim lapses from now on.
        lease: Timestamp,
    },
    /// The owner's runner listens for jobs.
    Registered {
        /// The owner.
        owner: Owner,
        /// The generation that the writer read.
        generation: Generation,
        /// The claim's nonce; a created machine was never claimed.
        claim: Option<ClaimId>,
        /// The present time.
        at: Timestamp,
        /// When it ends unless extended.
        deadline: Timestamp,
        /// The latest time that an extension can reach.
        cap: Timestamp,
    },
    /// The agent reports a job: the deadline moves, never past the cap.
    Extended {
        /// The owner.
        owner: Owner,
        /// The generation that the writer read.
        generation: Generation,
        /// The new deadline.
        deadline: Timestamp,
    },
    /// A writer takes the machine back from its owner.
    Withdrawn {
        /// What entitles the writer.
        authority: Authority,
        /// Whether the agent has reported `UD_OK`; a created machine that has not is ended instead.
        warm: bool,
        /// The present time.
        at: Timestamp,
        /// When waiting for the agent ends.
        cap: Timestamp,
    },
    /// No runner listens any more.
    Returned {
        /// The proof of that.
        proof: Unexposed,
        /// The present time.
        at: Timestamp,
        /// When it expires.
        deadline: Timestamp,
        /// Whether it may serve other requests of its class.
        shared: bool,
    },
    /// A writer decides that the machine ends.
    Condemned {
        /// What entitles the writer.
        authority: Authority,
        /// The reason for the end.
        why: EndReason,
        /// The present time.
        at: Timestamp,
    },
    /// The cloud confirms that the machine is gone.
    Gone {
        /// The present time.
        at: Timestamp,
        /// When the tombstone may be deleted.
        forget_at: Timestamp,
    },
}

impl InstanceEvent {
    /// The event's name, for tables and refusals.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::WarmedUp { .. } => "warmed-up",
            Self::FoundRunning { .. } => "found-running",
            Self::StopAgain { .. } => "stop-again",
            Self::FoundStopped { .. } => "found-stopped",
            Self::Claimed { .. } => "claimed",
            Self::TakenOver { .. } => "taken-over",
            Self::Renewed { .. } => "renewed",
            Self::Registered { .. } => "registered",
            Self::Extended { .. } => "extended",
            Self::Withdrawn { .. } => "withdrawn",
            Self::Returned { .. } => "returned",
            Self::Condemned { .. } => "condemned",
            Self::Gone { .. } => "gone",
        }
    }
}

/// Why a record refuses an event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InstanceRefusal {
    /// The state does not accept this event.
    #[error("{} does not accept {event}", state.as_str())]
    Illegal {
        /// The state.
        state: StateName,
        /// The event.
        event: &'static str,
    },
    /// The writer's generation is not the record's: another writer fenced it, or it read an old
    /// record.
    #[error("the record is at generation {actual}, not {claimed}")]
    Fenced {
        /// The writer's generation.
        claimed: Generation,
        /// The record's generation.
        actual: Generation,
    },
    /// The instance has another owner.
    #[error("the instance belongs to another owner")]
    NotTheOwner,
    /// The owner is the same, but the claim is another.
    #[error("another claim of the same owner holds the instance")]
    AnotherClaim,
    /// The idle instance is too close to its end to be claimed.
    #[error("the idle deadline {deadline} is too close to be claimed")]
    Expiring {
        /// Its end.
        deadline: Timestamp,
    },
    /// The time that gives this authority has not come.
    #[error("not before {until}")]
    TooEarly {
        /// When it comes.
        until: Timestamp,
    },
    /// A created machine without `UD_OK` cannot be reused; it must end.
    #[error("the machine has not completed its warm-up")]
    NotWarm,
    /// The proof is of another kind or generation than this state needs.
    #[error("the proof that no runner listens does not fit")]
    UnfitProof,
    /// This authority does not extend to instances in this state.
    #[error("{} is protected from this authority", state.as_str())]
    Protected {
        /// The state.
        state: StateName,
    },
}
