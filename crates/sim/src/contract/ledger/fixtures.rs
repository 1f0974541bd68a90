//! Records and rows for the cases, made as the engine makes them: reserved, recorded and moved by
//! events.
//!
//! Not here: assertions about the ledger, beyond that these steps work.

use std::time::Duration;

use bullpen_core::class::{Architecture, Usage};
use bullpen_core::creation::Intent;
use bullpen_core::ids::{
    ClaimId, ClassName, Generation, InstanceId, InstanceType, IntentId, JobId, MailboxKey,
    PoolName, Revision, SpecHash, StopOp, TrustGroup, Zone,
};
use bullpen_core::instance::AfterWarmUp;
use bullpen_core::instance::{Authority, EndReason, InstanceEvent, InstanceFacts, Owner, Record};
use bullpen_core::mailbox::{Inbox, Order, Withdrawal, WithdrawalMode, prove_unexposed};
use bullpen_core::ports::{
    ClaimWrite, Fault, JobRow, Ledger, Listing, Page, Recorded, Reserved, Written,
};
use bullpen_core::time::Timestamp;

use crate::contract::{Harness, answered, won};

pub(super) const HOUR: Duration = Duration::from_secs(3_600);
pub(super) const MARGIN: Duration = Duration::from_secs(30);

pub(super) fn class() -> ClassName {
    ClassName::new("large")
}

pub(super) fn pool() -> PoolName {
    PoolName::new("linux")
}

pub(super) fn job(name: &str) -> Owner {
    Owner::Job(JobId::new(name))
}

pub(super) fn intent(name: &str, outstanding: u32, deadline: Timestamp) -> Intent {
    Intent {
        id: IntentId::new(name),
        owner: Owner::Pool(pool()),
        trust: None,
        class: class(),
        pool: Some(pool()),
        usage: Usage::OnDemand,
        spec_hash: SpecHash::new("1:abc"),
        count: outstanding,
        avoid: std::collections::BTreeSet::new(),
        outstanding,
        deadline,
        revision: Revision(0),
    }
}

pub(super) fn facts(id: &str, under: &Intent, launched_at: Timestamp) -> InstanceFacts {
    InstanceFacts {
        class: under.class.clone(),
        instance_type: InstanceType::new("c6i.large"),
        vcpu: 2,
        memory_mib: 4_096,
        zone: Zone::new("eu-west-1a"),
        usage: under.usage,
        architecture: Architecture::X64,
        spec_hash: under.spec_hash.clone(),
        pool: under.pool.clone(),
        mailbox: MailboxKey::new(format!("box-{id}")),
        intent: under.id.clone(),
        launched_at,
    }
}

/// A machine's first record, not stored.
pub(super) fn newborn(id: &str, under: &Intent, now: Timestamp) -> Record {
    let (facts, owner) = (facts(id, under, now), under.owner.clone());
    Record::born(InstanceId::new(id), facts, owner, under.trust.clone(), now.after(HOUR))
}

/// Reserves without a ceiling.
pub(super) async fn reserve(ledger: &impl Ledger, intent: &Intent) {
    assert_eq!(won(ledger.reserve(intent, &[]).await), Reserved::Granted);
}

/// Records a new machine.
pub(super) async fn record(ledger: &impl Ledger, born: &Record) -> Record {
    match won(ledger.record(born).await) {
        Recorded::Stored(stored) => stored,
        other => panic!("a new machine under a live intent was {other:?}"),
    }
}

/// Moves a record by an event.
pub(super) async fn step(ledger: &impl Ledger, seen: &Record, event: &InstanceEvent) -> Record {
    won(ledger.replace(seen, &moved(seen, event)).await)
}

/// A record after an event, not stored.
pub(super) fn moved(seen: &Record, event: &InstanceEvent) -> Record {
    seen.on(event).expect("the transition is legal")
}

pub(super) fn warmed(at: Timestamp, deadline: Timestamp) -> InstanceEvent {
    InstanceEvent::WarmedUp { pool: pool(), at, into: AfterWarmUp::Hot { deadline, shared: true } }
}

pub(super) fn to_stop(at: Timestamp) -> InstanceEvent {
    let (until, deadline) = (at.after(Duration::from_secs(60)), at.after(HOUR));
    let into = AfterWarmUp::ToStop { op: StopOp::new("op-1"), until, deadline };
    InstanceEvent::WarmedUp { pool: pool(), at, into }
}

pub(super) fn claim(seen: &Record, owner: &Owner, nonce: &str, at: Timestamp) -> ClaimWrite {
    ClaimWrite {
        id: seen.id.clone(),
        seen: seen.generation,
        owner: owner.clone(),
        claim: ClaimId::new(nonce),
        trust: TrustGroup::new("octo/repo"),
        at,
        margin: MARGIN,
        lease: at.after(Duration::from_secs(300)),
    }
}

pub(super) fn registered(
    seen: &Record,
    owner: &Owner,
    nonce: &str,
    at: Timestamp,
) -> InstanceEvent {
    InstanceEvent::Registered {
        owner: owner.clone(),
        generation: seen.generation,
        claim: Some(ClaimId::new(nonce)),
        at,
        deadline: at.after(HOUR),
        cap: at.after(HOUR * 24),
    }
}

pub(super) fn withdrawn(seen: &Record, owner: &Owner, at: Timestamp) -> InstanceEvent {
    let authority = Authority::Owner { owner: owner.clone(), generation: seen.generation };
    InstanceEvent::Withdrawn { authority, warm: true, at, cap: at.after(HOUR) }
}

/// The return of an instance that was never assigned.
pub(super) fn returned(generation: Generation, at: Timestamp) -> InstanceEvent {
    let order = Withdrawal {
        generation,
        mode: WithdrawalMode::Drain,
        at,
        idle_deadline: at.after(HOUR),
        removal_token: None,
    };
    let inbox = Inbox::accept(None, Order::Withdrawn(order)).expect("the first order is accepted");
    let proof = prove_unexposed(Some(&inbox), None, generation, false)
        .expect("an unassigned instance is not exposed");
    InstanceEvent::Returned { proof, at, deadline: at.after(HOUR), shared: true }
}

pub(super) fn condemned(at: Timestamp) -> InstanceEvent {
    InstanceEvent::Condemned { authority: Authority::Operator, why: EndReason::Operator, at }
}

pub(super) fn gone(at: Timestamp) -> InstanceEvent {
    InstanceEvent::Gone { at, forget_at: at.after(HOUR * 24) }
}

/// An idle instance with its own intent.
pub(super) async fn idle<H: Harness<Port: Ledger>>(harness: &H, id: &str) -> Record {
    let (ledger, now) = (harness.port(), harness.now());
    let under = intent(&format!("for-{id}"), 1, now.after(HOUR));
    reserve(ledger, &under).await;
    let created = record(ledger, &newborn(id, &under, now)).await;
    step(ledger, &created, &warmed(now, now.after(HOUR))).await
}

/// A running instance of this owner.
pub(super) async fn running<H: Harness<Port: Ledger>>(
    harness: &H,
    id: &str,
    owner: &Owner,
) -> Record {
    let idle = idle(harness, id).await;
    let (ledger, now) = (harness.port(), harness.now());
    let claimed = won(ledger.claim(&claim(&idle, owner, id, now)).await);
    step(ledger, &claimed, &registered(&claimed, owner, id, now)).await
}

/// The stored record, which must exist.
pub(super) async fn stored(ledger: &impl Ledger, id: &InstanceId) -> Record {
    answered(ledger.read(id).await).expect("the record exists")
}

pub(super) fn row(job: &str, now: Timestamp) -> JobRow {
    JobRow {
        job: JobId::new(job),
        revision: Revision(0),
        body: format!("{{\"job\":\"{job}\"}}"),
        waiting: None,
        next_look: None,
        forget_at: now.after(HOUR * 24),
    }
}

/// Every item of a listing, page by page; all must be readable.
pub(super) async fn all_pages<T>(
    turn: impl AsyncFn(Option<String>) -> Result<Page<T>, Fault>,
) -> Vec<T> {
    answered(every_page(turn).await.complete())
}

/// A listing, page by page. Too many pages are a failure instead of a hang.
pub(super) async fn every_page<T>(
    turn: impl AsyncFn(Option<String>) -> Result<Page<T>, Fault>,
) -> Listing<T> {
    const PAGES_MAX: usize = 1_000;
    let (mut listing, mut next) = (Listing::from(Vec::new()), None);
    for _ in 0..PAGES_MAX {
        let page = answered(turn(next).await);
        listing.items.extend(page.items);
        listing.unreadable.extend(page.unreadable);
        match page.next {
            Some(cursor) => next = Some(cursor),
            None => return listing,
        }
    }
    panic!("a listing of more than {PAGES_MAX} pages");
}

/// The writes that won; all others must have lost.
#[track_caller]
pub(super) fn winners<T>(answers: Vec<Result<Written<T>, Fault>>) -> Vec<(usize, T)> {
    let answers = answers.into_iter().map(answered).enumerate();
    answers
        .filter_map(|(index, answer)| match answer {
            Written::Won(stored) => Some((index, stored)),
            Written::Lost => None,
            Written::Unknown => panic!("an answer was lost without a fault"),
        })
        .collect()
}
