//! The one function that moves an instance from state to state.
//!
//! [`Record::on`] is total: every pair of state and event gives the next record or a typed
//! [`InstanceRefusal`]. An event carries the *authority* of its writer (owner and generation, a
//! claim's nonce, a deadline that has passed, a proof that no runner listens), and the function
//! checks it. The ledger checks that the record has not changed since the writer read it: it
//! compares revisions.
//!
//! Not here: deciding which event to write, or a machine's first record ([`Record::born`]).

use super::event::{AfterWarmUp, Authority, InstanceEvent, InstanceRefusal};
use super::{Owner, Record, State, Tier};
use crate::ids::{ClaimId, Generation, TrustGroup};
use crate::mailbox::{RemovalProof, Unexposed};
use crate::sabotage;
use crate::time::Timestamp;

impl Record {
    /// The record after `event`, or why the record refuses it. The ledger raises the revision.
    pub fn on(&self, event: &InstanceEvent) -> Result<Self, InstanceRefusal> {
        let mut next = self.clone();
        match event {
            InstanceEvent::Claimed { .. }
            | InstanceEvent::TakenOver { .. }
            | InstanceEvent::Renewed { .. } => {
                next.claim_event(event)?;
            }
            InstanceEvent::WarmedUp { .. }
            | InstanceEvent::FoundRunning { .. }
            | InstanceEvent::StopAgain { .. }
            | InstanceEvent::FoundStopped { .. } => next.standby_event(event)?,
            InstanceEvent::Registered { .. } | InstanceEvent::Extended { .. } => {
                next.tenure_event(event)?;
            }
            InstanceEvent::Withdrawn { .. }
            | InstanceEvent::Returned { .. }
            | InstanceEvent::Condemned { .. }
            | InstanceEvent::Gone { .. } => next.ending_event(event)?,
        }
        Ok(next)
    }

    fn claim_event(&mut self, event: &InstanceEvent) -> Result<(), InstanceRefusal> {
        match (&mut self.state, event) {
            (
                State::Idle { tier, deadline, .. },
                InstanceEvent::Claimed { owner, claim, trust, seen, at, margin, lease },
            ) => {
                fenced(self.generation, *seen)?;
                if *deadline <= at.after(*margin) && !sabotage!("claims-what-has-expired") {
                    return Err(InstanceRefusal::Expiring { deadline: *deadline });
                }
                self.state = State::Claimed {
                    owner: owner.clone(),
                    claim: claim.clone(),
                    tier: *tier,
                    trusted_before: self.trust.replace(trust.clone()),
                    lease: *lease,
                };
                self.generation = self.generation.next();
            }
            (
                State::Claimed { owner, claim, lease, .. },
                InstanceEvent::TakenOver { owner: by, generation, claim: nonce, lease: until },
            ) => {
                owned_by(owner, by)?;
                fenced(self.generation, *generation)?;
                *claim = nonce.clone();
                *lease = *until;
                self.generation = self.generation.next();
            }
            (
                State::Claimed { claim, lease, .. },
                InstanceEvent::Renewed { claim: nonce, generation, lease: until },
            ) => {
                fenced(self.generation, *generation)?;
                same_claim(claim, nonce)?;
                *lease = (*lease).max(*until);
            }
            (state, event) => return Err(illegal(state, event)),
        }
        Ok(())
    }

    fn standby_event(&mut self, event: &InstanceEvent) -> Result<(), InstanceRefusal> {
        match (&mut self.state, event) {
            (State::Created { owner, .. }, InstanceEvent::WarmedUp { pool, at, into }) => {
                owned_by(owner, &Owner::Pool(pool.clone()))?;
                self.state = match into {
                    AfterWarmUp::Hot { deadline, shared } => State::Idle {
                        tier: Tier::Hot,
                        since: *at,
                        deadline: *deadline,
                        shared: *shared,
                    },
                    AfterWarmUp::ToStop { op, until, deadline } => {
                        State::Stopping { op: op.clone(), until: *until, deadline: *deadline }
                    }
                };
                self.generation = self.generation.next();
            }
            (
                State::Idle { tier: Tier::Stopped, .. },
                InstanceEvent::FoundRunning { op, until, deadline },
            ) => {
                self.state = State::Stopping { op: op.clone(), until: *until, deadline: *deadline };
            }
            (
                State::Stopping { op, until, .. },
                InstanceEvent::StopAgain { op: again, until: later },
            ) => {
                *op = again.clone();
                // An earlier stop call may still land until its own `until`.
                *until = (*until).max(*later);
            }
            (
                State::Stopping { until, .. },
                InstanceEvent::FoundStopped { at, skew, deadline, shared },
            ) => {
                let fenced_until = until.after(*skew);
                if *at < fenced_until {
                    return Err(InstanceRefusal::TooEarly { until: fenced_until });
                }
                self.state = State::Idle {
                    tier: Tier::Stopped,
                    since: *at,
                    deadline: *deadline,
                    shared: *shared,
                };
            }
            (state, event) => return Err(illegal(state, event)),
        }
        Ok(())
    }

    fn tenure_event(&mut self, event: &InstanceEvent) -> Result<(), InstanceRefusal> {
        match (&mut self.state, event) {
            (
                State::Created { owner, .. },
                InstanceEvent::Registered { owner: by, generation, at, deadline, cap, .. },
            ) if !matches!(owner, Owner::Pool(_)) => {
                owned_by(owner, by)?;
                fenced(self.generation, *generation)?;
                self.run_for(by.clone(), *at, *deadline, *cap);
            }
            (
                State::Claimed { owner, claim, .. },
                InstanceEvent::Registered {
                    owner: by,
                    generation,
                    claim: nonce,
                    at,
                    deadline,
                    cap,
                },
            ) => {
                owned_by(owner, by)?;
                fenced(self.generation, *generation)?;
                same_claim(claim, nonce.as_ref().ok_or(InstanceRefusal::AnotherClaim)?)?;
                self.run_for(by.clone(), *at, *deadline, *cap);
            }
            (
                State::Running { owner, deadline, cap, .. },
                InstanceEvent::Extended { owner: by, generation, deadline: later },
            ) => {
                owned_by(owner, by)?;
                fenced(self.generation, *generation)?;
                let later = (*deadline).max(*later);
                *deadline =
                    if sabotage!("beats-extend-the-hard-cap") { later } else { later.min(*cap) };
            }
            (state, event) => return Err(illegal(state, event)),
        }
        Ok(())
    }

    fn run_for(&mut self, owner: Owner, at: Timestamp, deadline: Timestamp, cap: Timestamp) {
        self.state = State::Running { owner, since: at, deadline: deadline.min(cap), cap };
        self.uses = self.uses.saturating_add(1);
    }

    fn ending_event(&mut self, event: &InstanceEvent) -> Result<(), InstanceRefusal> {
        match (&self.state, event) {
            (
                State::Created { owner, .. }
                | State::Claimed { owner, .. }
                | State::Running { owner, .. },
                InstanceEvent::Withdrawn { authority, warm, at, cap },
            ) => {
                let owner = owner.clone();
                self.permits(authority)?;
                self.withdraw(owner, *warm, *at, *cap)?;
            }
            (
                State::Releasing { tier, trusted_before, .. },
                InstanceEvent::Returned { proof, at, deadline, shared },
            ) => {
                let (tier, trust) = self.after_return(proof, *tier, trusted_before.as_ref())?;
                self.trust = trust;
                self.state = State::Idle { tier, since: *at, deadline: *deadline, shared: *shared };
            }
            (
                State::Created { .. }
                | State::Idle { .. }
                | State::Claimed { .. }
                | State::Running { .. }
                | State::Releasing { .. }
                | State::Stopping { .. },
                InstanceEvent::Condemned { authority, why, at },
            ) => {
                self.permits(authority)?;
                self.state = State::Terminating { why: *why, since: *at };
                self.generation = self.generation.next();
            }
            (State::Terminating { why, .. }, InstanceEvent::Gone { at, forget_at }) => {
                self.state = State::Terminated { why: *why, at: *at, forget_at: *forget_at };
            }
            (state, event) => return Err(illegal(state, event)),
        }
        Ok(())
    }

    fn withdraw(
        &mut self,
        owner: Owner,
        warm: bool,
        at: Timestamp,
        cap: Timestamp,
    ) -> Result<(), InstanceRefusal> {
        let (tier, trusted_before) = match &self.state {
            State::Claimed { tier, trusted_before, .. } => (*tier, trusted_before.clone()),
            // Before `UD_OK` a machine may not even have an agent that will answer the withdrawal.
            State::Created { .. } if !warm => return Err(InstanceRefusal::NotWarm),
            _ => (Tier::Released, self.trust.clone()),
        };
        self.state = State::Releasing { owner, tier, trusted_before, since: at, cap };
        if sabotage!("release-does-not-fence") {
            return Ok(());
        }
        self.generation = self.generation.next();
        Ok(())
    }

    /// The tier and trust group of a returning instance: as before if it was unexposed, else as
    /// used.
    fn after_return(
        &self,
        proof: &Unexposed,
        tier: Tier,
        trusted_before: Option<&TrustGroup>,
    ) -> Result<(Tier, Option<TrustGroup>), InstanceRefusal> {
        if proof.generation() != self.generation {
            return Err(InstanceRefusal::UnfitProof);
        }
        match proof.removal() {
            RemovalProof::NeverAssigned => Ok((tier, trusted_before.cloned())),
            RemovalProof::Acknowledged => Ok((Tier::Released, self.trust.clone())),
            RemovalProof::MachineStopped if tier == Tier::Stopped => {
                Ok((Tier::Stopped, self.trust.clone()))
            }
            RemovalProof::MachineStopped => Err(InstanceRefusal::UnfitProof),
        }
    }

    /// Whether this authority may take back or end the instance in its present state: invariant 4.
    fn permits(&self, authority: &Authority) -> Result<(), InstanceRefusal> {
        let protected = Err(InstanceRefusal::Protected { state: self.state.name() });
        match authority {
            Authority::Operator | Authority::Cloud => Ok(()),
            Authority::Deadline { at } => match self.state.deadline() {
                deadline if *at < deadline => Err(InstanceRefusal::TooEarly { until: deadline }),
                _ => Ok(()),
            },
            Authority::Owner { owner, generation } => match self.state.owner() {
                Some(actual) => {
                    owned_by(actual, owner)?;
                    if crate::sabotage!("owner-is-enough") {
                        return Ok(());
                    }
                    fenced(self.generation, *generation)
                }
                None => protected,
            },
            Authority::Release { generation } => match self.state {
                State::Releasing { .. } => fenced(self.generation, *generation),
                _ => protected,
            },
            Authority::Pool { pool } => match &self.state {
                State::Created { owner, .. } => owned_by(owner, &Owner::Pool(pool.clone())),
                State::Idle { .. } | State::Stopping { .. }
                    if self.facts.pool.as_ref() == Some(pool) =>
                {
                    Ok(())
                }
                _ => protected,
            },
        }
    }
}

fn illegal(state: &State, event: &InstanceEvent) -> InstanceRefusal {
    InstanceRefusal::Illegal { state: state.name(), event: event.name() }
}

fn fenced(actual: Generation, claimed: Generation) -> Result<(), InstanceRefusal> {
    if actual == claimed { Ok(()) } else { Err(InstanceRefusal::Fenced { claimed, actual }) }
}

fn owned_by(actual: &Owner, claimed: &Owner) -> Result<(), InstanceRefusal> {
    if actual == claimed { Ok(()) } else { Err(InstanceRefusal::NotTheOwner) }
}

fn same_claim(actual: &ClaimId, claimed: &ClaimId) -> Result<(), InstanceRefusal> {
    if actual == claimed { Ok(()) } else { Err(InstanceRefusal::AnotherClaim) }
}

#[cfg(test)]
mod tests;
