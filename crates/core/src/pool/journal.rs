//! A pool's journal: what every replica must know of a pool from one plan to the next.
//!
//! It holds every launch before the ledger reserves it, so that the next planner counts it and
//! carries it on; the boots that failed, and the last success; an operator's order; and, for
//! people, the last actions and notes. There is one per pool, and the planner writes it only if
//! something in it changes.
//!
//! Not here: storing it (the engine), or planning by it (`plan`).

use serde::{Deserialize, Serialize};

use super::desired::{DesiredPool, PoolMode};
use super::note::Note;
use super::observed::{BootFailure, ObservedPool, WarmUp};
use super::{Action, Plan};
use crate::creation::Intent;
use crate::ids::{FencingToken, InstanceId, IntentId, PoolName, SpecHash};
use crate::instance::{EndReason, State};
use crate::sabotage;
use crate::schedule::Target;
use crate::time::Timestamp;

/// The collection of the journals, each under its pool's name.
pub const COLLECTION: &str = "pools";
/// How many failed boots a journal keeps: with so many the quarantine is at its longest.
const FAILURES_MAX: usize = 64;
/// How many actions a journal keeps.
const ACTIONS_MAX: usize = 12;

/// An operator's order; it holds until the next order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OperatorOrder {
    /// Leave the pool as it is.
    Pause,
    /// Empty it, and keep it empty.
    Drain,
}

/// When a machine of a specification last booted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Booted {
    /// Which specification.
    pub spec_hash: SpecHash,
    /// When.
    pub at: Timestamp,
}

/// An action that the engine carried out, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionTaken {
    /// When.
    pub at: Timestamp,
    /// The action as one word.
    pub act: String,
    /// The reason as one word.
    pub why: String,
    /// How many machines the plan named.
    pub planned: u32,
    /// For how many of them it was done.
    pub done: u32,
    /// Why it was not done for the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<String>,
}

/// The journal of one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Journal {
    /// The lease that it was written under last; a replica with an older one must not write it.
    pub token: FencingToken,
    /// The operator's order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<OperatorOrder>,
    /// The number of the launch that was begun last.
    pub launches: u64,
    /// Launches that may still bring machines.
    pub open: Vec<Intent>,
    /// Boots of the wanted specification that failed since the last success.
    pub failures: Vec<BootFailure>,
    /// The last boot that succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub booted: Option<Booted>,
    /// Until when the cloud is known to have no capacity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub short_until: Option<Timestamp>,
    /// The schedule's target in the last plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    /// The notes of the last plan.
    pub notes: Vec<Note>,
    /// The last actions, the oldest first.
    pub deeds: Vec<ActionTaken>,
}

impl Journal {
    /// What to do with the pool. A pause means that the planner does nothing, not even to a
    /// removed pool.
    pub const fn mode(&self, is_configured: bool) -> PoolMode {
        match self.order {
            Some(OperatorOrder::Pause) => PoolMode::Paused,
            Some(OperatorOrder::Drain) => PoolMode::Draining,
            None if is_configured => PoolMode::Kept,
            None => PoolMode::Removed,
        }
    }

    /// When the wanted specification last booted, if it ever did.
    pub fn booted(&self, wanted: &SpecHash) -> Option<Timestamp> {
        self.booted.as_ref().filter(|booted| booted.spec_hash == *wanted).map(|booted| booted.at)
    }

    /// The number of the next launch. It is at least the time in seconds, so that a pool that was
    /// removed, forgotten and added again never uses a launch's name twice.
    pub fn next_launch(&self, now: Timestamp) -> u64 {
        let seconds = u64::try_from(now.as_millis() / 1_000).unwrap_or(0);
        (self.launches + 1).max(seconds)
    }

    /// Adds the launch of this number.
    #[must_use]
    pub fn with_launch(mut self, number: u64, intent: Intent) -> Self {
        self.launches = number;
        self.open.push(intent);
        self
    }

    /// Keeps only the launches that may still bring machines.
    #[must_use]
    pub fn with_open(mut self, is_open: impl Fn(&IntentId) -> bool) -> Self {
        self.open.retain(|intent| is_open(&intent.id));
        self
    }

    /// Adds what a plan saw, and its notes.
    #[must_use]
    pub fn after(
        mut self,
        seen: &ObservedPool,
        desired: &DesiredPool,
        plan: &Plan,
        now: Timestamp,
    ) -> Self {
        let wanted = &desired.spec_hash;
        let has_booted = seen.instances.iter().any(|one| {
            let is_created = matches!(one.record.state, State::Created { .. });
            is_created && one.warm_up == WarmUp::Complete && one.record.facts.spec_hash == *wanted
        });
        if has_booted {
            self.booted = Some(Booted { spec_hash: wanted.clone(), at: now });
        }
        for failure in failed(seen, plan, now) {
            if sabotage!("boots-are-forgotten") {
                continue;
            }
            if !self.failures.iter().any(|known| known.id == failure.id) {
                self.failures.push(failure);
            }
        }
        let since = self.booted(wanted);
        self.failures.retain(|failure| {
            failure.spec_hash == *wanted && since.is_none_or(|since| since < failure.at)
        });
        let too_many = self.failures.len().saturating_sub(FAILURES_MAX);
        self.failures.drain(..too_many);
        self.target = Some(desired.target.clone());
        self.notes.clone_from(&plan.notes);
        self
    }

    /// Adds these actions.
    #[must_use]
    pub fn with_deeds(mut self, deeds: impl IntoIterator<Item = ActionTaken>) -> Self {
        self.deeds.extend(deeds);
        let too_many = self.deeds.len().saturating_sub(ACTIONS_MAX);
        self.deeds.drain(..too_many);
        self
    }
}

/// The id of a pool's launch.
pub fn launch_id(pool: &PoolName, number: u64) -> IntentId {
    IntentId::new(format!("pool.{pool}.{number}"))
}

/// The failed boots: machines that already end because of it, and machines that this plan ends.
fn failed(seen: &ObservedPool, plan: &Plan, now: Timestamp) -> Vec<BootFailure> {
    let ends_now = |id: &InstanceId| {
        plan.actions.iter().any(|action| match action {
            Action::Terminate { endings, .. } => {
                endings.iter().any(|one| one.id == *id && one.why == EndReason::FailedWarmUp)
            }
            _ => false,
        })
    };
    let failure = |one: &super::PoolMachine| {
        let at = match one.record.state {
            State::Created { .. } if ends_now(&one.record.id) => now,
            _ => one.ends_unbooted()?,
        };
        let facts = &one.record.facts;
        Some(BootFailure {
            id: one.record.id.clone(),
            intent: facts.intent.clone(),
            spec_hash: facts.spec_hash.clone(),
            at,
        })
    };
    seen.instances.iter().filter_map(failure).collect()
}
