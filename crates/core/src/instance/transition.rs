//! The one function that moves an instance from state to state.
//!
//! [`Record::on`] is total: every pair of state and event either moves or is a typed [`Refusal`].
//! An event carries the *authority* of whoever writes it (owner and generation, a claim's nonce, a
//! deadline that has passed, a proof that nobody listens) and the function checks it. That the
//! record is still what the writer read is the ledger's part: it compares revisions.
//!
//! Not here: deciding which event to write, or a machine's first record ([`Record::born`]).

use std::time::Duration;

use super::{EndReason, Owner, Record, State, StateName, Tier};
use crate::ids::{ClaimId, Generation, PoolName, StopOp, TrustGroup};
use crate::mailbox::{Removal, Unexposed};
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
pub enum Warm {
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
pub enum Event {
    /// A pool's machine reported that its warm-up is complete.
    WarmedUp {
        /// Whose.
        pool: PoolName,
        /// Now.
        at: Timestamp,
        /// What it becomes.
        into: Warm,
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

impl Event {
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
pub enum Refusal {
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

impl Record {
    /// The record after `event`, or why there is none. The revision is left for the ledger to raise.
    pub fn on(&self, event: &Event) -> Result<Self, Refusal> {
        let mut next = self.clone();
        match event {
            Event::Claimed { .. } | Event::TakenOver { .. } | Event::Renewed { .. } => {
                next.claim_event(event)?;
            }
            Event::WarmedUp { .. }
            | Event::FoundRunning { .. }
            | Event::StopAgain { .. }
            | Event::FoundStopped { .. } => next.standby_event(event)?,
            Event::Registered { .. } | Event::Extended { .. } | Event::Swapped { .. } => {
                next.tenure_event(event)?;
            }
            Event::Withdrawn { .. }
            | Event::Returned { .. }
            | Event::Condemned { .. }
            | Event::Gone { .. } => next.ending_event(event)?,
        }
        Ok(next)
    }

    fn claim_event(&mut self, event: &Event) -> Result<(), Refusal> {
        match (&mut self.state, event) {
            (
                State::Idle { tier, deadline, .. },
                Event::Claimed { owner, claim, trust, seen, at, margin, lease },
            ) => {
                fenced(self.generation, *seen)?;
                if *deadline <= at.after(*margin) {
                    return Err(Refusal::Expiring { deadline: *deadline });
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
                Event::TakenOver { owner: by, generation, claim: nonce, lease: until },
            ) => {
                owned_by(owner, by)?;
                fenced(self.generation, *generation)?;
                *claim = nonce.clone();
                *lease = *until;
                self.generation = self.generation.next();
            }
            (
                State::Claimed { claim, lease, .. },
                Event::Renewed { claim: nonce, generation, lease: until },
            ) => {
                fenced(self.generation, *generation)?;
                same_claim(claim, nonce)?;
                *lease = (*lease).max(*until);
            }
            (state, event) => return Err(illegal(state, event)),
        }
        Ok(())
    }

    fn standby_event(&mut self, event: &Event) -> Result<(), Refusal> {
        match (&mut self.state, event) {
            (State::Created { owner, .. }, Event::WarmedUp { pool, at, into }) => {
                owned_by(owner, &Owner::Pool(pool.clone()))?;
                self.state = match into {
                    Warm::Hot { deadline, shared } => State::Idle {
                        tier: Tier::Hot,
                        since: *at,
                        deadline: *deadline,
                        shared: *shared,
                    },
                    Warm::ToStop { op, until, deadline } => {
                        State::Stopping { op: op.clone(), until: *until, deadline: *deadline }
                    }
                };
                self.generation = self.generation.next();
            }
            (
                State::Idle { tier: Tier::Stopped, .. },
                Event::FoundRunning { op, until, deadline },
            ) => {
                self.state = State::Stopping { op: op.clone(), until: *until, deadline: *deadline };
            }
            (State::Stopping { op, until, .. }, Event::StopAgain { op: again, until: later }) => {
                *op = again.clone();
                // An earlier call may still land until its own time.
                *until = (*until).max(*later);
            }
            (State::Stopping { until, .. }, Event::FoundStopped { at, deadline, shared }) => {
                if at < until {
                    return Err(Refusal::TooEarly { until: *until });
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

    fn tenure_event(&mut self, event: &Event) -> Result<(), Refusal> {
        match (&mut self.state, event) {
            (
                State::Created { owner, .. },
                Event::Registered { owner: by, generation, at, deadline, cap, .. },
            ) if !matches!(owner, Owner::Pool(_)) => {
                owned_by(owner, by)?;
                fenced(self.generation, *generation)?;
                self.run_for(by.clone(), *at, *deadline, *cap);
            }
            (
                State::Claimed { owner, claim, .. },
                Event::Registered { owner: by, generation, claim: nonce, at, deadline, cap },
            ) => {
                owned_by(owner, by)?;
                fenced(self.generation, *generation)?;
                same_claim(claim, nonce.as_ref().ok_or(Refusal::AnotherClaim)?)?;
                self.run_for(by.clone(), *at, *deadline, *cap);
            }
            (
                State::Running { owner, deadline, cap, .. },
                Event::Extended { owner: by, generation, deadline: later },
            ) => {
                owned_by(owner, by)?;
                fenced(self.generation, *generation)?;
                *deadline = (*deadline).max(*later).min(*cap);
            }
            (State::Running { owner, .. }, Event::Swapped { from, to, generation }) => {
                owned_by(owner, from)?;
                fenced(self.generation, *generation)?;
                *owner = to.clone();
            }
            (state, event) => return Err(illegal(state, event)),
        }
        Ok(())
    }

    fn run_for(&mut self, owner: Owner, at: Timestamp, deadline: Timestamp, cap: Timestamp) {
        self.state = State::Running { owner, since: at, deadline: deadline.min(cap), cap };
        self.uses = self.uses.saturating_add(1);
    }

    fn ending_event(&mut self, event: &Event) -> Result<(), Refusal> {
        match (&self.state, event) {
            (
                State::Created { owner, .. }
                | State::Claimed { owner, .. }
                | State::Running { owner, .. },
                Event::Withdrawn { authority, warm, at, cap },
            ) => {
                let owner = owner.clone();
                self.permits(authority)?;
                self.withdraw(owner, *warm, *at, *cap)?;
            }
            (
                State::Releasing { tier, trusted_before, .. },
                Event::Returned { proof, at, deadline, shared },
            ) => {
                let (tier, trust) = self.fits(proof, *tier, trusted_before.as_ref())?;
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
                Event::Condemned { authority, why, at },
            ) => {
                self.permits(authority)?;
                self.state = State::Terminating { why: *why, since: *at };
                self.generation = self.generation.next();
            }
            (State::Terminating { why, .. }, Event::Gone { at, forget_at }) => {
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
    ) -> Result<(), Refusal> {
        let (tier, trusted_before) = match &self.state {
            State::Claimed { tier, trusted_before, .. } => (*tier, trusted_before.clone()),
            // Before `UD_OK` nothing of a machine can be relied on, not even that it will answer.
            State::Created { .. } if !warm => return Err(Refusal::NotWarm),
            _ => (Tier::Released, self.trust.clone()),
        };
        self.state = State::Releasing { owner, tier, trusted_before, since: at, cap };
        self.generation = self.generation.next();
        Ok(())
    }

    /// What a returning instance becomes: unexposed ones are what they were; others were used.
    fn fits(
        &self,
        proof: &Unexposed,
        tier: Tier,
        trusted_before: Option<&TrustGroup>,
    ) -> Result<(Tier, Option<TrustGroup>), Refusal> {
        if proof.generation() != self.generation {
            return Err(Refusal::UnfitProof);
        }
        match proof.removal() {
            Removal::NeverAssigned => Ok((tier, trusted_before.cloned())),
            Removal::Acknowledged => Ok((Tier::Released, self.trust.clone())),
            Removal::MachineStopped if tier == Tier::Stopped => {
                Ok((Tier::Stopped, self.trust.clone()))
            }
            Removal::MachineStopped => Err(Refusal::UnfitProof),
        }
    }

    /// Whether this authority reaches the instance as it is. Invariant 4 is this function.
    fn permits(&self, authority: &Authority) -> Result<(), Refusal> {
        let protected = Err(Refusal::Protected { state: self.state.name() });
        match authority {
            Authority::Operator | Authority::Cloud => Ok(()),
            Authority::Deadline { at } => match self.state.deadline() {
                deadline if *at < deadline => Err(Refusal::TooEarly { until: deadline }),
                _ => Ok(()),
            },
            Authority::Owner { owner, generation } => match self.state.owner() {
                Some(actual) => {
                    owned_by(actual, owner)?;
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

fn illegal(state: &State, event: &Event) -> Refusal {
    Refusal::Illegal { state: state.name(), event: event.name() }
}

fn fenced(actual: Generation, claimed: Generation) -> Result<(), Refusal> {
    if actual == claimed { Ok(()) } else { Err(Refusal::Fenced { claimed, actual }) }
}

fn owned_by(actual: &Owner, claimed: &Owner) -> Result<(), Refusal> {
    if actual == claimed { Ok(()) } else { Err(Refusal::NotTheOwner) }
}

fn same_claim(actual: &ClaimId, claimed: &ClaimId) -> Result<(), Refusal> {
    if actual == claimed { Ok(()) } else { Err(Refusal::AnotherClaim) }
}

#[cfg(test)]
mod tests;
