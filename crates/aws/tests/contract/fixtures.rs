//! Records, claims and orders for the tests.
//!
//! Not here: assertions beyond the success of these steps.

use std::time::Duration;

use bullpen_aws::DynamoLedger;
use bullpen_core::class::{Architecture, Usage};
use bullpen_core::creation::Intent;
use bullpen_core::ids::{Generation, Revision};
use bullpen_core::instance::{
    AfterWarmUp, Authority, EndReason, InstanceEvent, InstanceFacts, Owner, Record,
};
use bullpen_core::mailbox::{Assignment, Credential, Order, Secret, Withdrawal, WithdrawalMode};
use bullpen_core::ports::{ClaimWrite, Ledger, Recorded, Written};
use bullpen_core::time::Timestamp;
use bullpen_sim::clock::ManualClock;

pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

pub(crate) fn intent(count: u32, deadline: Timestamp) -> Intent {
    Intent {
        id: "n-1".into(),
        owner: Owner::Pool("linux".into()),
        trust: None,
        class: "large".into(),
        pool: Some("linux".into()),
        usage: Usage::Spot,
        spec_hash: "1:abc".into(),
        count,
        avoid: std::collections::BTreeSet::new(),
        outstanding: count,
        deadline,
        revision: Revision(0),
    }
}

pub(crate) fn newborn(id: &str, now: Timestamp) -> Record {
    let facts = InstanceFacts {
        class: "large".into(),
        instance_type: "c6i.large".into(),
        vcpu: 2,
        memory_mib: 4_096,
        zone: "eu-west-1a".into(),
        usage: Usage::Spot,
        architecture: Architecture::X64,
        spec_hash: "1:abc".into(),
        pool: Some("linux".into()),
        mailbox: format!("AROA:{id}").as_str().into(),
        intent: "n-1".into(),
        launched_at: now,
    };
    Record::born(id.into(), facts, Owner::Pool("linux".into()), None, now.after(HOUR))
}

pub(crate) fn won<T>(answer: Result<Written<T>, bullpen_core::ports::Fault>) -> T {
    match answer {
        Ok(Written::Won(stored)) => stored,
        _ => panic!("a write did not win"),
    }
}

/// Records so many new machines.
pub(crate) async fn newborns(
    ledger: &DynamoLedger<ManualClock>,
    count: u32,
    now: Timestamp,
) -> Vec<Record> {
    won(ledger.reserve(&intent(count, now.after(HOUR)), &[]).await);
    let mut all = Vec::new();
    for number in 0..count {
        match won(ledger.record(&newborn(&format!("i-{number:02}"), now)).await) {
            Recorded::Stored(created) => all.push(created),
            other => panic!("not stored: {other:?}"),
        }
    }
    all
}

pub(crate) fn assigned(generation: u64, job: &str, hard_cap: Timestamp) -> Order {
    Order::Assigned(Assignment {
        generation: Generation(generation),
        owner: Owner::Job(job.into()),
        runner: format!("stack-{job}").as_str().into(),
        label: "warm".to_owned(),
        credential: Some(Credential::Jit(Secret::new("not a real one"))),
        register_by: None,
        hard_cap,
        issued_at: None,
        own_run: None,
        group: None,
        ephemeral: false,
    })
}

pub(crate) fn withdrawn(generation: u64, at: Timestamp) -> Order {
    Order::Withdrawn(Withdrawal {
        generation: Generation(generation),
        mode: WithdrawalMode::Drain,
        at,
        idle_deadline: at.after(HOUR),
        removal_token: None,
    })
}

/// The end of a warm-up, into the shared pool.
pub(crate) fn warmed(now: Timestamp) -> InstanceEvent {
    let into = AfterWarmUp::Hot { deadline: now.after(HOUR), shared: true };
    InstanceEvent::WarmedUp { pool: "linux".into(), at: now, into }
}

pub(crate) fn condemned(at: Timestamp) -> InstanceEvent {
    InstanceEvent::Condemned { authority: Authority::Operator, why: EndReason::Operator, at }
}

pub(crate) fn claim(seen: &Record, job: &str, now: Timestamp) -> ClaimWrite {
    ClaimWrite {
        id: seen.id.clone(),
        seen: seen.generation,
        owner: Owner::Job(job.into()),
        claim: format!("nonce-{job}").as_str().into(),
        trust: "octo/repo".into(),
        at: now,
        margin: Duration::from_secs(30),
        lease: now.after(HOUR),
    }
}

/// Each record with its next version after the event.
pub(crate) fn transitions(seen: &[Record], event: &InstanceEvent) -> Vec<(Record, Record)> {
    seen.iter().map(|seen| (seen.clone(), seen.on(event).expect("a legal transition"))).collect()
}

/// Records so many idle machines.
pub(crate) async fn idles(
    ledger: &DynamoLedger<ManualClock>,
    count: u32,
    now: Timestamp,
) -> Vec<Record> {
    let created = newborns(ledger, count, now).await;
    ledger.replace_all(&transitions(&created, &warmed(now))).await.into_iter().map(won).collect()
}
