//! An instance's record, and the states it can be in.
//!
//! A state carries its own data: the owner, the deadline, the reason for the end. There is no empty
//! owner and no absent deadline. Only [`Record::on`], in [`transition`], moves an instance from one
//! state to the next. [`standby`] derives the status that operators see; it is never stored.
//!
//! Not here: writing records (the `Ledger` port), or deciding what happens to an instance (`claim`,
//! `pool`).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{
    ClaimId, Generation, InstanceId, JobId, PoolName, RequestId, Revision, StopOp, TrustGroup,
};
use crate::message::Advert;
use crate::time::Timestamp;

pub mod event;
mod facts;
pub mod standby;
pub mod transition;

pub use event::{AfterWarmUp, Authority, InstanceEvent, InstanceRefusal};
pub use facts::InstanceFacts;

/// The holder of an instance.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Owner {
    /// A request of a workflow, with all its runners.
    Request(RequestId),
    /// One job, in the service.
    Job(JobId),
    /// A standby pool, until the machine is warm.
    Pool(PoolName),
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(id) => write!(f, "request {id}"),
            Self::Job(id) => write!(f, "job {id}"),
            Self::Pool(name) => write!(f, "pool {name}"),
        }
    }
}

/// How an instance came to be idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tier {
    /// Running and used before.
    Released,
    /// Running, never used.
    Hot,
    /// Warmed up, then stopped.
    Stopped,
}

impl Tier {
    /// Whether an earlier owner's code may have run on an idle machine of this tier.
    pub const fn is_used(self) -> bool {
        match self {
            Self::Released => true,
            Self::Hot | Self::Stopped => false,
        }
    }
}

/// Why a machine ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndReason {
    /// Its deadline passed: idle too long, never registered, over its time.
    DeadlinePassed,
    /// The checks after a claim failed.
    FailedChecks,
    /// Its warm-up reported a failure, or never completed.
    FailedWarmUp,
    /// The request it was created for failed or was cancelled.
    RequestFailed,
    /// An unexpected error; everything the request held is dumped.
    Dumped,
    /// The agent never acknowledged that its runner is removed.
    NotAcknowledged,
    /// It reached its maximum number of uses or its maximum age.
    WornOut,
    /// Its class, image or runner is no longer the configured one.
    Outdated,
    /// Code from outside its trust group may have run on it.
    Untrusted,
    /// There are more machines than wanted.
    Surplus,
    /// The cloud took it away, or it cannot be found.
    MachineGone,
    /// An operator asked for it.
    Operator,
}

/// The state of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum State {
    /// Launched for an owner; not ready yet.
    Created {
        /// The owner it was launched for.
        owner: Owner,
        /// When it must be ready.
        deadline: Timestamp,
    },
    /// Without an owner; claimable until shortly before its deadline.
    Idle {
        /// How it came to be idle.
        tier: Tier,
        /// When this state began.
        since: Timestamp,
        /// When it ends unless it is claimed.
        deadline: Timestamp,
        /// Whether it may serve requests of its class, or only its own pool.
        shared: bool,
    },
    /// Claimed by an owner; being prepared for it.
    Claimed {
        /// The owner.
        owner: Owner,
        /// The nonce of the owner's claim.
        claim: ClaimId,
        /// Its tier when it was claimed.
        tier: Tier,
        /// The trust group to restore if it comes back unexposed.
        trusted_before: Option<TrustGroup>,
        /// When the claim lapses unless renewed.
        lease: Timestamp,
    },
    /// Its owner's runner listens or runs a job.
    Running {
        /// The owner.
        owner: Owner,
        /// When this state began.
        since: Timestamp,
        /// When it ends unless extended.
        deadline: Timestamp,
        /// The latest time that an extension can reach.
        cap: Timestamp,
    },
    /// Taken back from its owner; not yet proven that no runner listens.
    Releasing {
        /// The former owner.
        owner: Owner,
        /// The tier to restore if it comes back unexposed.
        tier: Tier,
        /// The trust group to restore if it comes back unexposed.
        trusted_before: Option<TrustGroup>,
        /// When this state began.
        since: Timestamp,
        /// When waiting for the agent ends.
        cap: Timestamp,
    },
    /// Being stopped; not claimable until a late stop call can no longer land.
    Stopping {
        /// The latest stop call.
        op: StopOp,
        /// Until when that call may land.
        until: Timestamp,
        /// When the machine must have stopped.
        deadline: Timestamp,
    },
    /// To be terminated; the control plane asks the cloud until it confirms.
    Terminating {
        /// The reason for the end.
        why: EndReason,
        /// When this state began.
        since: Timestamp,
    },
    /// Confirmed gone. A tombstone.
    Terminated {
        /// The reason for the end.
        why: EndReason,
        /// When the cloud confirmed it.
        at: Timestamp,
        /// When the tombstone may be deleted.
        forget_at: Timestamp,
    },
}

/// The states' names, for tables, tags and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "they mirror the variants of `State`, which are documented")]
pub enum StateName {
    Created,
    Idle,
    Claimed,
    Running,
    Releasing,
    Stopping,
    Terminating,
    Terminated,
}

impl StateName {
    /// All states, in the order of an instance's life.
    pub const ALL: [Self; 8] = [
        Self::Created,
        Self::Idle,
        Self::Claimed,
        Self::Running,
        Self::Releasing,
        Self::Stopping,
        Self::Terminating,
        Self::Terminated,
    ];

    /// The name in tables and tags.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Idle => "idle",
            Self::Claimed => "claimed",
            Self::Running => "running",
            Self::Releasing => "releasing",
            Self::Stopping => "stopping",
            Self::Terminating => "terminating",
            Self::Terminated => "terminated",
        }
    }
}

impl State {
    /// This state's name.
    pub const fn name(&self) -> StateName {
        match self {
            Self::Created { .. } => StateName::Created,
            Self::Idle { .. } => StateName::Idle,
            Self::Claimed { .. } => StateName::Claimed,
            Self::Running { .. } => StateName::Running,
            Self::Releasing { .. } => StateName::Releasing,
            Self::Stopping { .. } => StateName::Stopping,
            Self::Terminating { .. } => StateName::Terminating,
            Self::Terminated { .. } => StateName::Terminated,
        }
    }

    /// When the control plane must look at this state. Every state has such a time.
    pub const fn deadline(&self) -> Timestamp {
        match self {
            Self::Created { deadline, .. }
            | Self::Idle { deadline, .. }
            | Self::Running { deadline, .. }
            | Self::Stopping { deadline, .. } => *deadline,
            Self::Claimed { lease, .. } => *lease,
            Self::Releasing { cap, .. } => *cap,
            // Due at once and until confirmed.
            Self::Terminating { since, .. } => *since,
            Self::Terminated { forget_at, .. } => *forget_at,
        }
    }

    /// When a sweep should look at this state: at its deadline, or at once if a release or a
    /// termination is unfinished.
    pub const fn look_at(&self) -> Timestamp {
        match self {
            Self::Releasing { since, .. } | Self::Terminating { since, .. } => *since,
            Self::Created { .. }
            | Self::Idle { .. }
            | Self::Claimed { .. }
            | Self::Running { .. }
            | Self::Stopping { .. }
            | Self::Terminated { .. } => self.deadline(),
        }
    }

    /// The owner that may act on the machine now. A releasing machine has none.
    pub const fn owner(&self) -> Option<&Owner> {
        match self {
            Self::Created { owner, .. }
            | Self::Claimed { owner, .. }
            | Self::Running { owner, .. } => Some(owner),
            Self::Idle { .. }
            | Self::Releasing { .. }
            | Self::Stopping { .. }
            | Self::Terminating { .. }
            | Self::Terminated { .. } => None,
        }
    }

    /// The owner under which the owner directory lists it: during a release still the former owner,
    /// so that a second release finds the machines that the first has not finished.
    pub const fn listed_under(&self) -> Option<&Owner> {
        match self {
            Self::Releasing { owner, .. } => Some(owner),
            Self::Created { .. }
            | Self::Idle { .. }
            | Self::Claimed { .. }
            | Self::Running { .. }
            | Self::Stopping { .. }
            | Self::Terminating { .. }
            | Self::Terminated { .. } => self.owner(),
        }
    }

    /// Whether a machine may still exist in this state.
    pub const fn is_live(&self) -> bool {
        !matches!(self, Self::Terminated { .. })
    }
}

/// One row of the ledger: the only truth about a machine's owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The machine's id.
    pub id: InstanceId,
    /// The properties that never change.
    pub facts: InstanceFacts,
    /// Its present state.
    pub state: State,
    /// Raised by every change of owner.
    pub generation: Generation,
    /// Raised by every write; the ledger sets it.
    pub revision: Revision,
    /// How many owners it has served.
    pub uses: u32,
    /// The trust group whose code may have run on it last; absent if none can have run.
    pub trust: Option<TrustGroup>,
    /// Whether code of another group may have run on it too: an earlier version let two machines
    /// change owners. Such a machine is never used again.
    #[serde(default)]
    pub tainted: bool,
}

impl Record {
    /// The first record of a machine that was just launched.
    pub fn born(
        id: InstanceId,
        facts: InstanceFacts,
        owner: Owner,
        trust: Option<TrustGroup>,
        deadline: Timestamp,
    ) -> Self {
        Self {
            id,
            facts,
            state: State::Created { owner, deadline },
            generation: Generation(1),
            revision: Revision(1),
            uses: 0,
            trust,
            tainted: false,
        }
    }

    /// Whether it has completed a warm-up, judged by its record and not by its agent's report.
    pub fn was_warm(&self) -> bool {
        /// A record is born at one; ending it before it is ready makes two.
        const ENDED_UNUSED: Generation = Generation(2);
        match self.state {
            State::Created { .. } => false,
            State::Terminating { .. } | State::Terminated { .. } => {
                self.uses > 0 || self.generation > ENDED_UNUSED
            }
            State::Idle { .. }
            | State::Claimed { .. }
            | State::Running { .. }
            | State::Releasing { .. }
            | State::Stopping { .. } => true,
        }
    }

    /// The instance's advertisement for the resource pool; none unless it is idle and shared.
    pub fn advert(&self) -> Option<Advert> {
        let State::Idle { tier, deadline, shared: true, .. } = self.state else { return None };
        Some(Advert {
            id: self.id.clone(),
            class: self.facts.class.clone(),
            instance_type: self.facts.instance_type.clone(),
            vcpu: self.facts.vcpu,
            memory_mib: self.facts.memory_mib,
            usage: self.facts.usage,
            deadline,
            generation: Some(self.generation),
            tier,
            pool: self.facts.pool.clone(),
            trust: self.trust.clone(),
            spec_hash: Some(self.facts.spec_hash.clone()),
        })
    }
}
