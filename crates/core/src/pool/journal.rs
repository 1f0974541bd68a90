//! A pool's journal: what must be remembered of a pool from one plan to the next, whoever makes it.
//!
//! It names every launch before it is reserved, so that whoever comes next counts it and carries it
//! on; which boots failed, and when one last succeeded; what an operator ordered; and, for people,
//! what was done lately and what the pool waits on. One is kept per pool, and it is written only when
//! something in it is different.
//!
//! Not here: storing it (the engine), or how it is decided on (`plan`).

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

/// Where journals are stored, each under its pool's name.
pub const COLLECTION: &str = "pools";
/// How many boots that failed are remembered. More say nothing new: the quarantine has its longest.
const FAILURES_MAX: usize = 64;
/// How many deeds are remembered.
const DEEDS_MAX: usize = 12;

/// What an operator ordered; it holds until another order does.
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

/// Something that was done, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionTaken {
    /// When.
    pub at: Timestamp,
    /// What: one word.
    pub act: String,
    /// Why: one word.
    pub why: String,
    /// To how many machines it was to be done.
    pub planned: u32,
    /// To how many it was done.
    pub done: u32,
    /// What was in the way of the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<String>,
}

/// What is remembered of one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Journal {
    /// The lease that it was written under last; nobody writes under an older one.
    pub token: FencingToken,
    /// What an operator ordered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<OperatorOrder>,
    /// The number of the launch that was begun last.
    pub launches: u64,
    /// Launches of which something may be outstanding.
    pub open: Vec<Intent>,
    /// Boots of the wanted specification that failed since the last success.
    pub failures: Vec<BootFailure>,
    /// The last boot that succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub booted: Option<Booted>,
    /// Until when the cloud is known to have nothing to launch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub short_until: Option<Timestamp>,
    /// What its schedule said when it was last planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    /// What it waited on when it was last planned.
    pub notes: Vec<Note>,
    /// What was done lately, the oldest first.
    pub deeds: Vec<ActionTaken>,
}

impl Journal {
    /// What is to be done with the pool. A pause is an order to do nothing, to a removed pool too.
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

    /// The number of the next launch. It follows the time, in seconds, so that a pool that was removed,
    /// forgotten and added again makes no launch under a name that was used before.
    pub fn next_launch(&self, now: Timestamp) -> u64 {
        let seconds = u64::try_from(now.as_millis() / 1_000).unwrap_or(0);
        (self.launches + 1).max(seconds)
    }

    /// With the launch of this number begun.
    #[must_use]
    pub fn with_launch(mut self, number: u64, intent: Intent) -> Self {
        self.launches = number;
        self.open.push(intent);
        self
    }

    /// With only those launches open of which something may be outstanding.
    #[must_use]
    pub fn with_open(mut self, is_open: impl Fn(&IntentId) -> bool) -> Self {
        self.open.retain(|intent| is_open(&intent.id));
        self
    }

    /// With what a plan saw, and waits on.
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

    /// With these deeds done.
    #[must_use]
    pub fn with_deeds(mut self, deeds: impl IntoIterator<Item = ActionTaken>) -> Self {
        self.deeds.extend(deeds);
        let too_many = self.deeds.len().saturating_sub(DEEDS_MAX);
        self.deeds.drain(..too_many);
        self
    }
}

/// What a launch of a pool is called.
pub fn launch_id(pool: &PoolName, number: u64) -> IntentId {
    IntentId::new(format!("pool.{pool}.{number}"))
}

/// The boots that failed, by what was seen: those that end for it, and those that this plan ends.
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
