//! The two records between the control plane and one agent, and the rules that fence them.
//!
//! The control plane writes the *inbox* and the agent reads it; the *report* goes the other way. An
//! agent sees nothing else, so the inbox must fence it: [`Inbox::accept`] takes an order only if it
//! is newer than the stored one, and `assigned` keeps the last assigned generation, so that
//! [`prove_unexposed`] reads *exposure* instead of guessing it.
//!
//! Orders rank by generation, then assignment < drain < stop. [`agent`] has the agent's side.
//!
//! Not here: storing records (the `Mailbox` port), or the text they are stored as ([`wire`]).

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{Generation, RunnerGroup, RunnerName};
use crate::instance::Owner;
use crate::request::stranger::{OwnRun, RanJob};
use crate::time::Timestamp;

pub mod agent;
mod reading;
pub mod wire;

pub use reading::{RawReport, ReportRead, UnreadableReport, shown};

/// A value that must never be printed.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps the text.
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The only way to the value; the caller keeps it out of every log.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

/// The credential with which a runner registers at GitHub.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Credential {
    /// For one job, one runner name.
    Jit(Secret),
    /// For any runner, for an hour.
    RegistrationToken(Secret),
}

/// The order to register a runner for an owner.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Assignment {
    /// The generation it was written at.
    pub generation: Generation,
    /// The new owner.
    pub owner: Owner,
    /// The runner's name.
    pub runner: RunnerName,
    /// The runner's label.
    pub label: String,
    /// The runner's credential; removed once the listener listens.
    pub credential: Option<Credential>,
    /// When the agent gives up an unregistered listener. A JIT configuration needs no such time.
    pub register_by: Option<Timestamp>,
    /// When the machine must end in any case.
    pub hard_cap: Timestamp,
    /// When the control plane wrote this; the agent measures its own clock against it. Older
    /// control planes do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issued_at: Option<Timestamp>,
    /// The only run whose jobs may run there. Older control planes do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_run: Option<OwnRun>,
    /// Whether a runner that registers by token serves one job only. Older agents ignore it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ephemeral: bool,
    /// The group that a runner which registers by token joins; GitHub's default group if absent. A
    /// JIT configuration has its own. Older agents ignore it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<RunnerGroup>,
}

/// What a withdrawal asks of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WithdrawalMode {
    /// Start nothing; leave a registered listener alone.
    Drain,
    /// Stop the listener, clean, acknowledge.
    Stop,
}

/// The order that ends an owner's use of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Withdrawal {
    /// The generation it was written at.
    pub generation: Generation,
    /// What the agent must do.
    pub mode: WithdrawalMode,
    /// When the control plane wrote this; the wait for a stop's acknowledgement starts here.
    pub at: Timestamp,
    /// When an idle agent ends itself.
    pub idle_deadline: Timestamp,
    /// For a control plane without a credential of its own: the agent removes the runner itself.
    pub removal_token: Option<Secret>,
}

/// An order to an agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Take jobs for this owner.
    Assigned(Assignment),
    /// Take no jobs.
    Withdrawn(Withdrawal),
}

/// The rank of an order among all orders to one agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderRank {
    /// First by generation.
    pub generation: Generation,
    /// Then assignment, drain, stop.
    pub step: u8,
}

impl Order {
    /// When the control plane wrote it; none if an older control plane did not say.
    pub const fn issued_at(&self) -> Option<Timestamp> {
        match self {
            Self::Assigned(assignment) => assignment.issued_at,
            Self::Withdrawn(withdrawal) => Some(withdrawal.at),
        }
    }

    /// This order's rank. Only a higher one may replace it.
    pub const fn rank(&self) -> OrderRank {
        match self {
            Self::Assigned(assignment) => OrderRank { generation: assignment.generation, step: 0 },
            Self::Withdrawn(Withdrawal { generation, mode: WithdrawalMode::Drain, .. }) => {
                OrderRank { generation: *generation, step: 1 }
            }
            Self::Withdrawn(Withdrawal { generation, mode: WithdrawalMode::Stop, .. }) => {
                OrderRank { generation: *generation, step: 2 }
            }
        }
    }
}

/// The record the control plane writes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Inbox {
    /// The generation of the last assignment ever stored; a withdrawal never erases it.
    pub assigned: Generation,
    /// The latest order.
    pub order: Order,
}

/// A refusal of an order: the mailbox already holds a newer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the mailbox already holds an order of generation {}", stored.generation)]
pub struct Overtaken {
    /// The rank of the stored order.
    pub stored: OrderRank,
}

impl Inbox {
    /// The inbox after `order`: the rule every adapter's conditional write must follow.
    pub fn accept(stored: Option<&Self>, order: Order) -> Result<Self, Overtaken> {
        let unconditional =
            crate::sabotage!("unconditional-assignment") && matches!(order, Order::Assigned(_));
        if let Some(stored) = stored.map(|inbox| inbox.order.rank())
            && stored >= order.rank()
            && !unconditional
        {
            return Err(Overtaken { stored });
        }
        let assigned = match &order {
            Order::Assigned(assignment) => assignment.generation,
            Order::Withdrawn(_) if crate::sabotage!("withdrawal-forgets-assigned") => Generation(0),
            Order::Withdrawn(_) => stored.map_or(Generation(0), |inbox| inbox.assigned),
        };
        Ok(Self { assigned, order })
    }

    /// The inbox without its credential, once the listener of this generation listens.
    #[must_use]
    pub fn redacted(&self, generation: Generation) -> Option<Self> {
        let Order::Assigned(assignment) = &self.order else { return None };
        (assignment.generation == generation && assignment.credential.is_some()).then(|| Self {
            assigned: self.assigned,
            order: Order::Assigned(Assignment { credential: None, ..assignment.clone() }),
        })
    }
}

/// What an agent is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AgentPhase {
    /// Running its warm-up.
    WarmingUp,
    /// Waiting for an assignment.
    Waiting,
    /// Its listener is starting.
    Registering,
    /// Its listener listens.
    Listening,
    /// A job runs.
    Busy,
    /// Stopping, cleaning.
    Cleaning,
}

/// An agent's heartbeat.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Beat {
    /// Counts up, across restarts of the agent within one boot.
    pub seq: u64,
    /// By the machine's own clock.
    pub at: Timestamp,
    /// What the agent is doing.
    pub phase: AgentPhase,
    /// The id of the machine's boot.
    pub boot: String,
}

impl Beat {
    /// Whether this beat came after `other`. A new boot starts counting again, and only one boot is
    /// alive at a time.
    pub fn follows(&self, other: &Self) -> bool {
        self.boot != other.boot || self.seq > other.seq
    }
}

/// The kinds of signal. Their texts are the names that the earliest scripts used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SignalKind {
    /// The warm-up is complete.
    #[serde(rename = "UD_OK")]
    WarmUpOk,
    /// The warm-up failed.
    #[serde(rename = "UD_FAILED")]
    WarmUpFailed,
    /// The assignment was read and is being acted on.
    #[serde(rename = "UD_ACK")]
    Acknowledged,
    /// The listener listens for jobs.
    #[serde(rename = "UD_REG_OK")]
    Registered,
    /// The listener could not register.
    #[serde(rename = "UD_REG_FAILED")]
    RegistrationFailed,
    /// A job started on the listener.
    #[serde(rename = "UD_JOB_STARTED")]
    JobStarted,
    /// The listener ended by itself.
    #[serde(rename = "UD_LISTENER_ENDED")]
    ListenerEnded,
    /// No runner listens any more, and the machine is clean.
    #[serde(rename = "UD_REMOVE_REG_OK")]
    Removed,
    /// The cloud will take the machine away.
    #[serde(rename = "UD_INTERRUPTED")]
    Interrupted,
}

/// The first word of a failed registration's detail if the cause is not the machine: GitHub is
/// down, refuses the credential, or limits the rate.
pub const SYSTEMIC: &str = "systemic:";

/// One signal: the latest of its kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Signal {
    /// The generation it is about.
    pub generation: Generation,
    /// The owner it is about.
    pub owner: Option<Owner>,
    /// By the machine's own clock.
    pub at: Timestamp,
    /// More about it: a reason, the tail of an output, a runner's id.
    pub detail: String,
    /// With [`SignalKind::JobStarted`]: the run that the job belongs to. Older agents do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran: Option<RanJob>,
}

impl Signal {
    /// When it happened, by the machine's clock. A machine must not put anything off with a forged
    /// time, so a future time counts as `earliest`.
    pub fn happened(&self, earliest: Timestamp, now: Timestamp, skew: Duration) -> Timestamp {
        if self.at > now.after(skew) { earliest } else { self.at }
    }
}

/// The record the agent writes, attribute by attribute.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Report {
    /// The last beat.
    pub beat: Option<Beat>,
    /// The latest signal of each kind.
    pub signals: BTreeMap<SignalKind, Signal>,
}

impl Report {
    /// The signal of this kind, if it is about this generation.
    pub fn signal(&self, kind: SignalKind, generation: Generation) -> Option<&Signal> {
        self.signals.get(&kind).filter(|signal| {
            signal.generation == generation || crate::sabotage!("signals-of-any-generation")
        })
    }

    /// Whether the machine is known to be alive now. The time of a beat from the future proves
    /// nothing; a beat that follows `watched` always proves it.
    pub fn is_fresh(&self, now: Timestamp, stale: Duration, watched: Option<&Beat>) -> bool {
        self.beat.as_ref().is_some_and(|beat| {
            now.distance(beat.at) <= stale || watched.is_some_and(|seen| beat.follows(seen))
        })
    }

    /// The job that started at this generation, if the agent named its run.
    pub fn ran(&self, generation: Generation) -> Option<&RanJob> {
        self.signal(SignalKind::JobStarted, generation)?.ran.as_ref()
    }

    /// The last generation whose removal the agent acknowledged.
    pub fn removed(&self) -> Generation {
        self.signals.get(&SignalKind::Removed).map_or(Generation(0), |signal| signal.generation)
    }
}

/// How a release knows that no runner listens on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RemovalProof {
    /// The machine was not assigned since the last acknowledged removal.
    NeverAssigned,
    /// The agent acknowledged this withdrawal.
    Acknowledged,
    /// The machine is of the stopped tier, and is stopped.
    MachineStopped,
}

/// Proof that no runner listens on a machine. Only [`prove_unexposed`] can make it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Unexposed {
    generation: Generation,
    removal: RemovalProof,
}

impl Unexposed {
    /// The generation of the withdrawal it rests on.
    pub const fn generation(&self) -> Generation {
        self.generation
    }

    /// How it is known.
    pub const fn removal(&self) -> RemovalProof {
        self.removal
    }

    #[cfg(test)]
    pub(crate) const fn assumed(generation: Generation, removal: RemovalProof) -> Self {
        Self { generation, removal }
    }
}

/// Why a machine cannot be called unexposed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Exposed {
    /// Until the withdrawal is stored, an assignment may still be in flight and land.
    #[error("the withdrawal of generation {generation} is not stored")]
    NotWithdrawn {
        /// The generation of the withdrawal.
        generation: Generation,
    },
    /// The machine was assigned, and the agent never acknowledged the removal.
    #[error("generation {assigned} was assigned and only {removed} is acknowledged as removed")]
    Unacknowledged {
        /// The last assignment.
        assigned: Generation,
        /// The last acknowledged removal.
        removed: Generation,
    },
}

/// Decides for a release at `generation` whether the machine is unexposed. The caller must read
/// inbox and report *after* it stored the withdrawal. `machine_stopped` may be true only for the
/// stopped tier, when the cloud reports the machine as stopped.
pub fn prove_unexposed(
    inbox: Option<&Inbox>,
    report: Option<&Report>,
    generation: Generation,
    machine_stopped: bool,
) -> Result<Unexposed, Exposed> {
    let early =
        crate::sabotage!("exposure-judged-early") || crate::sabotage!("idle-without-withdrawal");
    let withdrawn = inbox.is_some_and(
        |inbox| matches!(&inbox.order, Order::Withdrawn(order) if order.generation == generation),
    );
    if !withdrawn && !early {
        return Err(Exposed::NotWithdrawn { generation });
    }
    let assigned = inbox.map_or(Generation(0), |inbox| inbox.assigned);
    let removed = report.map_or(Generation(0), Report::removed);
    // No order ever asked the agent to remove a later generation, so such a report is forged.
    let is_forged = removed > generation && !crate::sabotage!("future-generations-acknowledge");
    let removed = if is_forged { Generation(0) } else { removed };
    // The job of the assigned generation may itself have reported its removal. Then no runner
    // listens, but the machine counts as used: it cannot deny that it was assigned.
    let is_self_reported = assigned == removed
        && assigned > Generation(0)
        && !crate::sabotage!("removals-deny-assignments");
    let is_acknowledged = removed >= generation || is_self_reported;
    let removal = if is_acknowledged || crate::sabotage!("idle-before-acknowledgement") {
        RemovalProof::Acknowledged
    } else if assigned <= removed {
        RemovalProof::NeverAssigned
    } else if machine_stopped {
        RemovalProof::MachineStopped
    } else {
        return Err(Exposed::Unacknowledged { assigned, removed });
    };
    Ok(Unexposed { generation, removal })
}

#[cfg(test)]
mod tests;
