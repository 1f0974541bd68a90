//! A won tenure: the proof that the ledger says that an instance is an owner's.
//!
//! [`super::Prepare`] takes the proof by value, so that no assignment is written before its claim or
//! launch is in the ledger, and none twice for one proof.
//!
//! Not here: the writes that win it (the `Ledger` port).

use crate::claim::CheckKind;
use crate::ids::Generation;
use crate::instance::{Authority, EndReason, InstanceEvent, Owner, Record, State, Tier};
use crate::limits::Limits;
use crate::ports::ClaimWrite;
use crate::sabotage;
use crate::time::Timestamp;

/// An instance that the ledger says an owner has and that does not run for the owner yet.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub struct Won {
    pub(super) record: Record,
    pub(super) owner: Owner,
    pub(super) kind: CheckKind,
}

impl Won {
    /// A claim, by the record that the ledger stores for it. `None`: the record has another claim. An
    /// equal owner proves nothing, because another worker of the same owner may have won.
    pub fn claimed(write: &ClaimWrite, stored: Record) -> Option<Self> {
        match &stored.state {
            State::Claimed { claim, .. } if *claim == write.claim => {
                Self::held(stored, &write.owner)
            }
            _ => None,
        }
    }

    /// What `owner` has by the record: a machine that was launched for the owner, or a claim that
    /// another process of the owner left. `None`: the record is neither created nor claimed, or
    /// another owner has the machine by now.
    pub fn held(stored: Record, owner: &Owner) -> Option<Self> {
        let kind = match &stored.state {
            State::Created { .. } => CheckKind::Created,
            State::Claimed { tier: Tier::Stopped, .. } => CheckKind::Started,
            State::Claimed { tier: Tier::Hot | Tier::Released, .. } => CheckKind::Warm,
            State::Idle { .. }
            | State::Running { .. }
            | State::Releasing { .. }
            | State::Stopping { .. }
            | State::Terminating { .. }
            | State::Terminated { .. } => return None,
        };
        let is_owners = stored.state.owner() == Some(owner);
        is_owners.then(|| Self { record: stored, owner: owner.clone(), kind })
    }

    /// The record by which it is won.
    pub const fn record(&self) -> &Record {
        &self.record
    }

    /// What kind of machine it is for its owner.
    pub const fn kind(&self) -> CheckKind {
        self.kind
    }

    /// The event that ends it in its owner's name.
    pub fn condemned(&self, why: EndReason, at: Timestamp) -> InstanceEvent {
        condemned(&self.owner, self.record.generation, why, at)
    }

    /// The event that takes it back in its owner's name; the release continues from there. A created
    /// machine must be warm.
    pub fn given_back(&self, at: Timestamp, limits: &Limits) -> InstanceEvent {
        given_back(&self.owner, self.record.generation, at, limits)
    }
}

pub(super) fn condemned(
    owner: &Owner,
    generation: Generation,
    why: EndReason,
    at: Timestamp,
) -> InstanceEvent {
    let authority = Authority::Owner { owner: owner.clone(), generation };
    InstanceEvent::Condemned { authority, why, at }
}

pub(super) fn given_back(
    owner: &Owner,
    generation: Generation,
    at: Timestamp,
    limits: &Limits,
) -> InstanceEvent {
    let authority = Authority::Owner { owner: owner.clone(), generation };
    InstanceEvent::Withdrawn { authority, warm: true, at, cap: at.after(limits.hard_cap) }
}

/// What became of a claim whose answer was lost.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub enum SettledClaim {
    /// It landed.
    Won(Won),
    /// It has not landed: make the same write again.
    Again,
    /// Another worker has the instance, or the instance is gone.
    Lost,
}

/// Settles a claim whose answer was lost, by the record as it is stored now.
pub fn settle(write: &ClaimWrite, stored: Option<Record>) -> SettledClaim {
    let Some(stored) = stored else { return SettledClaim::Lost };
    if matches!(stored.state, State::Idle { .. }) && stored.generation == write.seen {
        return SettledClaim::Again;
    }
    let won = if sabotage!("unknown-claim-is-won") {
        let owner = stored.state.owner().cloned();
        let won = owner.and_then(|owner| Won::held(stored, &owner));
        won.filter(|won| won.kind != CheckKind::Created)
    } else {
        Won::claimed(write, stored)
    };
    won.map_or(SettledClaim::Lost, SettledClaim::Won)
}

#[cfg(test)]
mod tests;
