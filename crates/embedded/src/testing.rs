//! Helpers for this crate's tests: a clock, and records to store.
//!
//! Not here: helpers that wait for real time.

use std::sync::Arc;
use std::time::Duration;

use bullpen_core::class::{Architecture, Usage};
use bullpen_core::creation::Intent;
use bullpen_core::ids::{
    ClassName, InstanceId, InstanceType, IntentId, MailboxKey, PoolName, RequestId, Revision,
    SpecHash, TrustGroup, Zone,
};
use bullpen_core::instance::{EndReason, InstanceFacts, Owner, Record, State, Tier};
use bullpen_core::ports::{Ledger, Recorded, Reserved, Written};
use bullpen_core::time::Timestamp;
pub(crate) use bullpen_sim::clock::ManualClock;

/// The time at the start of every test.
pub(crate) const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);

/// A clock that only a test advances.
pub(crate) fn clock() -> Arc<ManualClock> {
    ManualClock::at(START)
}

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn owner(name: &str) -> Owner {
    Owner::Request(RequestId::new(name))
}

/// A machine of class `small` and pool `p`, launched under intent `intent`.
pub(crate) fn born(id: &str) -> Record {
    let facts = InstanceFacts {
        class: ClassName::new("small"),
        instance_type: InstanceType::new("c6i.large"),
        vcpu: 2,
        memory_mib: 4096,
        zone: Zone::new("a"),
        usage: Usage::Spot,
        architecture: Architecture::X64,
        spec_hash: SpecHash::new("1-abc"),
        pool: Some(PoolName::new("p")),
        mailbox: MailboxKey::new(id),
        intent: IntentId::new("intent"),
        launched_at: START,
    };
    Record::born(InstanceId::new(id), facts, owner("first"), None, START.after(secs(600)))
}

/// `record` idle and shared since `since`.
pub(crate) fn idle(record: &Record, since: Timestamp) -> Record {
    let deadline = since.after(secs(420));
    let state = State::Idle { tier: Tier::Released, since, deadline, shared: true };
    Record { state, ..record.clone() }
}

/// `record` running for `owner`.
pub(crate) fn running(record: &Record, owner: Owner) -> Record {
    let (deadline, cap) = (START.after(secs(1800)), START.after(secs(86_400)));
    Record { state: State::Running { owner, since: START, deadline, cap }, ..record.clone() }
}

/// `record` confirmed gone.
pub(crate) fn tombstone(record: &Record, forget_at: Timestamp) -> Record {
    let state = State::Terminated { why: EndReason::Operator, at: START, forget_at };
    Record { state, ..record.clone() }
}

pub(crate) fn intent(id: &str, outstanding: u32) -> Intent {
    Intent {
        id: IntentId::new(id),
        owner: owner("first"),
        trust: Some(TrustGroup::new("o/r")),
        class: ClassName::new("small"),
        pool: Some(PoolName::new("p")),
        usage: Usage::Spot,
        spec_hash: SpecHash::new("1-abc"),
        count: outstanding,
        avoid: std::collections::BTreeSet::new(),
        outstanding,
        deadline: START.after(secs(600)),
        revision: Revision(1),
    }
}

/// The value of a write that won; panics otherwise.
#[track_caller]
pub(crate) fn won<T: std::fmt::Debug>(
    written: Result<Written<T>, bullpen_core::ports::Fault>,
) -> T {
    match written {
        Ok(Written::Won(value)) => value,
        other => panic!("not won: {other:?}"),
    }
}

/// Stores a first record for each of these, under one intent.
pub(crate) async fn store_all(ledger: &impl Ledger, ids: &[&str]) -> Vec<Record> {
    let count = u32::try_from(ids.len()).unwrap();
    assert_eq!(won(ledger.reserve(&intent("intent", count), &[]).await), Reserved::Granted);
    let mut stored = Vec::new();
    for id in ids {
        match won(ledger.record(&born(id)).await) {
            Recorded::Stored(record) => stored.push(record),
            other => panic!("not stored: {other:?}"),
        }
    }
    stored
}
