//! What can happen to an instance, in whose name, and why it may be refused.
//!
//! Not here: what an event does ([`super::transition`]).

use std::time::Duration;

use super::{EndReason, Owner, StateName};
use crate::ids::{ClaimId, Generation, PoolName, StopOp, TrustGroup};
use crate::mailbox::Unexposed;
use crate::time::Timestamp;

/// In whose name an instance is taken back or ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authority {
    /// Its owner, at the generation they own.
    Owner {
        /// Who.
        owner: Owner,
        /// At which generation.
        generation: Generation,
    },
    /// Whoever carries out a release, at the generation the release made.
    Release {
        /// At which generation.
        generation: Generation,
    },
    /// The state's own deadline, seen to have passed.
    Deadline {
        /// Now.
        at: Timestamp,
    },
    /// The pool it stands by in. Never over anything claimed, running or being released.
    Pool {
        /// Which pool.
        pool: PoolName,
    },
    /// An operator's explicit command.
    Operator,
    /// The cloud: the machine is gone.
    Cloud,
}

/// What a pool's machine becomes when its warm-up is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AfterWarmUp {
    /// It stays running.
    Hot {
        /// When it expires.
        deadline: Timestamp,
        /// Whether it may serve its class.
        shared: bool,
    },
    /// It is stopped.
    ToStop {
        /// The stop call that will be made.
        op: StopOp,
        /// Until when that call may land.
        until: Timestamp,
        /// When stopping must have worked.
        deadline: Timestamp,
    },
}

/// Something that happened, or that somebody with authority wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstanceEvent {
    /// A pool's machine reported that its warm-up is complete.
    WarmedUp {
        /// Whose.
        pool: PoolName,
        /// Now.
        at: Timestamp,
        /// What it becomes.
        into: AfterWarmUp,
    },
    /// The cloud says that a machine recorded as stopped runs: a start call landed late.
    FoundRunning {
        /// The stop call that will be made.
        op: StopOp,
        /// Until when it may land.
        until: Timestamp,
        /// When stopping must have worked.
        deadline: Timestamp,
    },
    /// The stop call will be made once more.
    StopAgain {
        /// The new call.
        op: StopOp,
        /// Until when it may land.
        until: Timestamp,
    },
    /// The cloud says stopped.
    FoundStopped {
        /// Now.
        at: Timestamp,
        /// How far the clock that wrote `until` may be behind the one that reads it.
        skew: Duration,
        /// When it expires.
        deadline: Timestamp,
        /// Whether it may serve its class.
        shared: bool,
    },
    /// A claim worker takes an idle instance.
    Claimed {
        /// For whom.
        owner: Owner,
        /// The claim's nonce.
        claim: ClaimId,
        /// Whose code will run.
        trust: TrustGroup,
        /// The generation the claimer saw.
        seen: Generation,
        /// Now.
        at: Timestamp,
        /// How close to its deadline an idle machine is left alone.
        margin: Duration,
        /// When the claim lapses.
        lease: Timestamp,
    },
    /// A second worker of the same owner takes the claim over; the first is fenced.
    TakenOver {
        /// Whose.
        owner: Owner,
        /// The generation it saw.
        generation: Generation,
        /// Its own nonce.
        claim: ClaimId,
        /// When the claim lapses.
        lease: Timestamp,
    },
    /// A claim is kept alive.
    Renewed {
        /// The claim's nonce.
        claim: ClaimId,
        /// Its generation.
        generation: Generation,
        /// When it lapses now.
        lease: Timestamp,
    },
    /// The owner's runner listens for jobs.
    Registered {
        /// Whose.
        owner: Owner,
        /// At which generation.
        generation: Generation,
        /// The claim's nonce; a created machine was never claimed.
        claim: Option<ClaimId>,
        /// Now.
        at: Timestamp,
        /// When it ends unless extended.
        deadline: Timestamp,
        /// The end of every extension.
        cap: Timestamp,
    },
    /// The agent reports a job: the deadline moves, never past the cap.
    Extended {
        /// Whose.
        owner: Owner,
        /// At which generation.
        generation: Generation,
        /// The new deadline.
        deadline: Timestamp,
    },
    /// GitHub gave this runner's job to another of ours; both records exchange owners.
    Swapped {
        /// Whose it was.
        from: Owner,
        /// Whose it is.
        to: Owner,
        /// Whose code ran there by mistake of nobody: if it is another group's, the machine is
        /// never used again.
        trust: Option<TrustGroup>,
        /// At which generation.
        generation: Generation,
    },
    /// The machine is taken back.
    Withdrawn {
        /// In whose name.
        authority: Authority,
        /// Whether the agent has reported `UD_OK`; a created machine that has not is ended instead.
        warm: bool,
        /// Now.
        at: Timestamp,
        /// When waiting for the agent ends.
        cap: Timestamp,
    },
    /// Nobody listens any more.
    Returned {
        /// The proof of that.
        proof: Unexposed,
        /// Now.
        at: Timestamp,
        /// When it expires.
        deadline: Timestamp,
        /// Whether it may serve its class.
        shared: bool,
    },
    /// The machine is to end.
    Condemned {
        /// In whose name.
        authority: Authority,
        /// Why.
        why: EndReason,
        /// Now.
        at: Timestamp,
    },
    /// The cloud confirms that the machine is gone.
    Gone {
        /// Now.
        at: Timestamp,
        /// When the tombstone may be forgotten.
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
            Self::Swapped { .. } => "swapped",
            Self::Withdrawn { .. } => "withdrawn",
            Self::Returned { .. } => "returned",
            Self::Condemned { .. } => "condemned",
            Self::Gone { .. } => "gone",
        }
    }
}

/// Why an event does not move a state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InstanceRefusal {
    /// The state knows no such event.
    #[error("{} does not accept {event}", state.as_str())]
    Illegal {
        /// The state.
        state: StateName,
        /// The event.
        event: &'static str,
    },
    /// The writer's generation is not the record's: it has been fenced, or read something old.
    #[error("the record is at generation {actual}, not {claimed}")]
    Fenced {
        /// What the writer said.
        claimed: Generation,
        /// What is true.
        actual: Generation,
    },
    /// Somebody else's.
    #[error("the instance belongs to another owner")]
    NotTheOwner,
    /// The same owner's, but another claim's.
    #[error("another claim of the same owner holds the instance")]
    AnotherClaim,
    /// Idle, but too close to its end to be claimed.
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
    /// A created machine without `UD_OK` cannot be reused; it is to be ended.
    #[error("the machine has not completed its warm-up")]
    NotWarm,
    /// The proof is of another kind or generation than this state needs.
    #[error("the proof that nobody listens does not fit")]
    UnfitProof,
    /// This authority reaches no instance in this state.
    #[error("{} is protected from this authority", state.as_str())]
    Protected {
        /// The state.
        state: StateName,
    },
}
