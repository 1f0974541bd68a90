//! An instance's record, and the states it can be in.
//!
//! A state carries what is true in it: who owns the machine, until when, why it ends. There is no
//! empty owner and no absent deadline. The only way from one state to the next is
//! [`Record::on`], in [`transition`]; what an operator calls a standby status is derived in
//! [`standby`] and never stored beside the state.
//!
//! Not here: writing records (the `Ledger` port), or choosing what to do with one (`claim`, `pool`).

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

/// Who holds an instance.
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
    /// Whether somebody's code may have run on a machine that came to be idle so.
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
    /// It served as often, or lived as long, as it may.
    WornOut,
    /// Its class, image or runner is no longer wanted as it is.
    Outdated,
    /// Code from outside its trust group may have run on it.
    Untrusted,
    /// More machines than wanted.
    Surplus,
    /// The cloud took it away, or it cannot be found.
    MachineGone,
    /// An operator said so.
    Operator,
}

/// What is true of an instance now.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum State {
    /// Launched for somebody, not yet of use.
    Created {
        /// For whom.
        owner: Owner,
        /// When it must be of use.
        deadline: Timestamp,
    },
    /// Nobody's; claimable until shortly before its deadline.
    Idle {
        /// How it came to be idle.
        tier: Tier,
        /// Since when.
        since: Timestamp,
        /// When it ends if nobody claims it.
        deadline: Timestamp,
        /// Whether it may serve requests of its class, or only its own pool.
        shared: bool,
    },
    /// Somebody's; being prepared for them.
    Claimed {
        /// Whose.
        owner: Owner,
        /// Which claim of theirs.
        claim: ClaimId,
        /// What it was when it was claimed.
        tier: Tier,
        /// Whose code ran before this claim, should it come back unexposed.
        trusted_before: Option<TrustGroup>,
        /// When the claim lapses unless renewed.
        lease: Timestamp,
    },
    /// Somebody's; its runner listens or works.
    Running {
        /// Whose.
        owner: Owner,
        /// Since when.
        since: Timestamp,
        /// When it ends unless extended.
        deadline: Timestamp,
        /// The end of every extension.
        cap: Timestamp,
    },
    /// Taken back from its owner; the agent has yet to confirm that nobody listens.
    Releasing {
        /// Whose it was.
        owner: Owner,
        /// What it was before.
        tier: Tier,
        /// Whose code ran before, should it come back unexposed.
        trusted_before: Option<TrustGroup>,
        /// Since when.
        since: Timestamp,
        /// When waiting ends.
        cap: Timestamp,
    },
    /// Being stopped; nobody may claim it until a late stop call can no longer land.
    Stopping {
        /// The stop call that is or was meant.
        op: StopOp,
        /// Until when that call may land.
        until: Timestamp,
        /// When stopping must have worked.
        deadline: Timestamp,
    },
    /// To be terminated; the cloud is asked until it confirms.
    Terminating {
        /// Why.
        why: EndReason,
        /// Since when.
        since: Timestamp,
    },
    /// Confirmed gone. A tombstone.
    Terminated {
        /// Why.
        why: EndReason,
        /// When that was confirmed.
        at: Timestamp,
        /// When the tombstone may be forgotten.
        forget_at: Timestamp,
    },
}

/// The states' names, for tables, tags and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "they mirror the variants of `State`, which say it")]
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
    /// All of them, in the order of a life.
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

    /// As it is written in tables and tags.
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

    /// When somebody must look at this state. Every state has such a time.
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

    /// When a sweep should look at this state: at its deadline, or at once where somebody has to
    /// carry on until it is done.
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

    /// Who may act on the machine now. A releasing machine has no owner any more.
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

    /// Under whose name the owner directory lists it: also while it is being taken back, so that
    /// a second release finds what the first one left.
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

/// One row of the ledger: the only truth about who owns what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Which machine.
    pub id: InstanceId,
    /// What never changes.
    pub facts: InstanceFacts,
    /// What is true now.
    pub state: State,
    /// Raised by every change of owner.
    pub generation: Generation,
    /// Raised by every write; the ledger sets it.
    pub revision: Revision,
    /// How many owners it has served.
    pub uses: u32,
    /// Whose code may have run on it last; nobody's yet if absent.
    pub trust: Option<TrustGroup>,
    /// Whether code from outside that group may have run on it too. It is never used again.
    #[serde(default)]
    pub tainted: bool,
}

impl Record {
    /// A machine whose id just came back from a launch.
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

    /// Whether it has completed a warm-up, by what was done with it since and not by what it says.
    pub fn was_warm(&self) -> bool {
        /// Born at one; whatever ends it before it is of use makes it two.
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

    /// What the resource pool would say of this instance; nothing unless it is idle and shared.
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
