//! Random lives: any attempt on an instance, in any order and by any writer, either moves it as the
//! invariants allow or is refused with a reason.
//!
//! A life is a list of [`Attempt`]s. Each picks an event and, for every field that carries
//! authority, the *right* value (as the record has it) or one of a few wrong values, so that lives
//! get far and are still attacked at every step.
//!
//! Not here: single rules (`rules`, `refusals`).

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};

use super::super::{AfterWarmUp, Authority, InstanceEvent, InstanceRefusal};
use crate::ids::{ClaimId, Generation, InstanceId, StopOp};
use crate::instance::{EndReason, Owner, Record, State, StateName};
use crate::invariants;
use crate::mailbox::{RemovalProof, Unexposed};
use crate::samples::{LIMITS, at, facts, job_owner, pool, pool_owner, request_owner, trust};
use crate::time::Timestamp;

/// Lives per property: about a second in a debug build.
const LIVES: u32 = 2_000;
const ATTEMPTS_MAX: usize = 40;

/// One try at moving an instance.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    event: u8,
    authority: u8,
    /// Zero picks the right owner, other values pick wrong owners; so do the next two fields.
    owner: u8,
    generation: u8,
    nonce: u8,
    /// For choices that carry no authority.
    choice: u8,
    /// How long after the last attempt, in seconds.
    later: u64,
    /// How far ahead it sets deadlines, in seconds.
    horizon: u64,
}

fn attempts() -> impl Strategy<Value = Vec<Attempt>> {
    let pick = || prop_oneof![6 => Just(0_u8), 1 => Just(1), 1 => Just(2), 1 => Just(3)];
    let one = (0..13_u8, 0..6_u8, pick(), pick(), pick(), any::<u8>(), 0..120_u64, 0..900_u64)
        .prop_map(|(event, authority, owner, generation, nonce, choice, later, horizon)| Attempt {
            event,
            authority,
            owner,
            generation,
            nonce,
            choice,
            later,
            horizon,
        });
    proptest::collection::vec(one, 1..ATTEMPTS_MAX)
}

fn all_owners() -> [Owner; 4] {
    [request_owner(), job_owner(), pool_owner(), Owner::Job("4243".into())]
}

fn born(owner: Owner) -> Record {
    Record::born(InstanceId::new("i-1"), facts(), owner, None, at(600))
}

/// An attempt on this record at this time.
struct Resolved<'a> {
    attempt: Attempt,
    record: &'a Record,
    now: Timestamp,
}

impl Resolved<'_> {
    fn owner(&self) -> Owner {
        match (self.attempt.owner, self.record.state.owner()) {
            (0, Some(owner)) => owner.clone(),
            (pick, _) => all_owners()[usize::from(pick)].clone(),
        }
    }

    fn generation(&self) -> Generation {
        let Generation(current) = self.record.generation;
        Generation(match self.attempt.generation {
            0 => current,
            1 => current.saturating_sub(1),
            2 => 0,
            _ => current + 1,
        })
    }

    fn nonce(&self) -> ClaimId {
        match (&self.record.state, self.attempt.nonce) {
            (State::Claimed { claim, .. }, 0) => claim.clone(),
            (_, pick) => ClaimId::new(format!("claim-{pick}-{}", self.attempt.choice % 4)),
        }
    }

    fn deadline(&self) -> Timestamp {
        self.now.after(Duration::from_secs(self.attempt.horizon))
    }

    fn odd(&self) -> bool {
        !self.attempt.choice.is_multiple_of(2)
    }

    fn op(&self) -> StopOp {
        StopOp::new(format!("stop-{}", self.attempt.choice))
    }

    fn removal(&self) -> RemovalProof {
        match self.attempt.choice % 3 {
            0 => RemovalProof::NeverAssigned,
            1 => RemovalProof::Acknowledged,
            _ => RemovalProof::MachineStopped,
        }
    }

    fn authority(&self) -> Authority {
        match self.attempt.authority {
            0 => Authority::Owner { owner: self.owner(), generation: self.generation() },
            1 => Authority::Release { generation: self.generation() },
            2 => Authority::Deadline { at: self.now },
            3 => Authority::Pool { pool: pool() },
            4 => Authority::Operator,
            _ => Authority::Cloud,
        }
    }

    /// A reason that fits the authority: the invariants see only the reason.
    fn why(&self) -> EndReason {
        let claimed = matches!(self.record.state, State::Claimed { .. });
        match self.authority() {
            Authority::Owner { .. } if claimed && self.odd() => EndReason::FailedChecks,
            Authority::Owner { .. } if self.odd() => EndReason::RequestFailed,
            Authority::Owner { .. } => EndReason::Dumped,
            Authority::Release { .. } => EndReason::WornOut,
            Authority::Deadline { .. } => EndReason::DeadlinePassed,
            Authority::Pool { .. } => EndReason::Surplus,
            Authority::Operator => EndReason::Operator,
            Authority::Cloud => EndReason::MachineGone,
        }
    }

    fn event(&self) -> InstanceEvent {
        let (at, deadline, shared) = (self.now, self.deadline(), self.odd());
        match self.attempt.event {
            0 => {
                let into = if shared {
                    AfterWarmUp::Hot { deadline, shared }
                } else {
                    AfterWarmUp::ToStop { op: self.op(), until: at, deadline }
                };
                InstanceEvent::WarmedUp { pool: pool(), at, into }
            }
            1 => InstanceEvent::FoundRunning { op: self.op(), until: deadline, deadline },
            2 => InstanceEvent::StopAgain { op: self.op(), until: deadline },
            3 => InstanceEvent::FoundStopped { at, skew: Duration::ZERO, deadline, shared },
            4..=8 => self.tenure_event(),
            9 => {
                let (authority, warm) = (self.authority(), self.odd());
                InstanceEvent::Withdrawn { authority, warm, at, cap: deadline }
            }
            10 => {
                let proof = Unexposed::assumed(self.generation(), self.removal());
                InstanceEvent::Returned { proof, at, deadline, shared }
            }
            11 => InstanceEvent::Condemned { authority: self.authority(), why: self.why(), at },
            _ => InstanceEvent::Gone { at, forget_at: deadline },
        }
    }

    fn tenure_event(&self) -> InstanceEvent {
        let (at, deadline) = (self.now, self.deadline());
        let (owner, generation, claim) = (self.owner(), self.generation(), self.nonce());
        match self.attempt.event {
            4 => InstanceEvent::Claimed {
                owner,
                claim,
                trust: trust(),
                seen: generation,
                at,
                margin: LIMITS.not_claimable_before_deadline,
                lease: deadline,
            },
            5 => InstanceEvent::TakenOver { owner, generation, claim, lease: deadline },
            6 => InstanceEvent::Renewed { claim, generation, lease: deadline },
            7 => {
                let (claim, cap) = (Some(claim), deadline.after(Duration::from_secs(60)));
                InstanceEvent::Registered { owner, generation, claim, at, deadline, cap }
            }
            _ => InstanceEvent::Extended { owner, generation, deadline },
        }
    }
}

/// Runs one life and looks at every record in it.
fn live(
    owner: Owner,
    attempts: &[Attempt],
    mut look: impl FnMut(&Record) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    let (mut record, mut now) = (born(owner), at(0));
    look(&record)?;
    for &attempt in attempts {
        now = now.after(Duration::from_secs(attempt.later));
        let event = Resolved { attempt, record: &record, now }.event();
        let Ok(mut next) = record.on(&event) else { continue };
        next.revision = record.revision.next();
        let checked = invariants::on_write(Some(&record), &next);
        prop_assert_eq!(checked, Ok(()), "{:?} on {:?}", event, record);
        prop_assert!(next.generation >= record.generation, "generations never fall");
        prop_assert!(next.uses >= record.uses && next.id == record.id);
        record = next;
        look(&record)?;
    }
    Ok(())
}

fn run(seed: u64, check: impl Fn(Owner, Vec<Attempt>) -> Result<(), TestCaseError>) {
    let config = Config {
        cases: LIVES,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        ..Config::default()
    };
    let lives = (0..3_usize, attempts());
    TestRunner::new(config)
        .run(&lives, |(owner, attempts)| check(all_owners()[owner].clone(), attempts))
        .unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn every_move_of_every_life_passes_the_invariants() {
    let reached = RefCell::new(BTreeSet::new());
    run(1, |owner, attempts| {
        live(owner, &attempts, |record| {
            reached.borrow_mut().insert(record.state.name());
            Ok(())
        })
    });
    assert_eq!(reached.into_inner(), BTreeSet::from(StateName::ALL), "the lives reach every state");
}

/// Every event that ownership justifies, written by `owner` at `generation`.
fn in_the_name_of(owner: &Owner, generation: Generation, claim: &ClaimId) -> Vec<InstanceEvent> {
    let (deadline, cap) = (at(9_000), at(9_000));
    let owner = || owner.clone();
    let authority = Authority::Owner { owner: owner(), generation };
    vec![
        InstanceEvent::TakenOver {
            owner: owner(),
            generation,
            claim: claim.clone(),
            lease: deadline,
        },
        InstanceEvent::Registered {
            owner: owner(),
            generation,
            claim: Some(claim.clone()),
            at: at(1),
            deadline,
            cap,
        },
        InstanceEvent::Extended { owner: owner(), generation, deadline },
        InstanceEvent::Withdrawn { authority: authority.clone(), warm: true, at: at(1), cap },
        InstanceEvent::Condemned { authority, why: EndReason::Dumped, at: at(1) },
    ]
}

/// Tries every event in the name of each owner that does not own this record now.
fn attack(record: &Record) -> Result<(), TestCaseError> {
    let claim = match &record.state {
        State::Claimed { claim, .. } => claim.clone(),
        _ => ClaimId::new("claim-0-0"),
    };
    let Generation(current) = record.generation;
    for generation in (0..current + 2).map(Generation) {
        let is_stale = generation != record.generation;
        let mut events = Vec::new();
        for owner in all_owners() {
            if is_stale || Some(&owner) != record.state.owner() {
                events.extend(in_the_name_of(&owner, generation, &claim));
            }
        }
        if is_stale {
            let claim = claim.clone();
            events.push(InstanceEvent::Renewed { claim, generation, lease: at(9_000) });
        }
        for event in events {
            prop_assert!(record.on(&event).is_err(), "{:?} moved {:?}", event, record);
        }
    }
    Ok(())
}

#[test]
fn a_fenced_owner_can_change_nothing() {
    run(2, |owner, attempts| live(owner, &attempts, attack));
}

#[test]
fn a_tombstone_is_final() {
    run(3, |owner, attempts| {
        let (mut record, now) = (born(owner), at(0));
        record.state = State::Terminated { why: EndReason::Dumped, at: now, forget_at: at(9) };
        for attempt in attempts {
            let event = Resolved { attempt, record: &record, now }.event();
            let refused = matches!(record.on(&event), Err(InstanceRefusal::Illegal { .. }));
            prop_assert!(refused, "{:?}", event);
        }
        Ok(())
    });
}
