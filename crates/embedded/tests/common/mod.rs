//! Helpers of the tests and benchmarks with several processes: a clock that stands still, and
//! records.
//!
//! Not here: starting processes (`processes`, `contention`).

use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use bullpen_core::class::{Architecture, Usage};
use bullpen_core::creation::Intent;
use bullpen_core::ids::{
    ClaimId, ClassName, InstanceId, InstanceType, IntentId, MailboxKey, RequestId, Revision,
    SpecHash, TrustGroup, Zone,
};
use bullpen_core::instance::{InstanceFacts, Owner, Record, State, Tier};
use bullpen_core::ports::{ClaimWrite, Clock, Ledger, Recorded, Written};
use bullpen_core::time::Timestamp;

/// The constant time of [`StandingClock`].
pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

/// A clock that stands still: a sleep by it never ends.
pub(crate) struct StandingClock;

impl StandingClock {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self)
    }
}

impl Clock for StandingClock {
    fn now(&self) -> Timestamp {
        NOW
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }

    fn sleep(&self, _wait: Duration) -> impl Future<Output = ()> + Send {
        pending()
    }
}

/// The value of a won write; panics if the write was not won.
pub(crate) fn won<T: std::fmt::Debug>(written: Written<T>) -> T {
    match written {
        Written::Won(value) => value,
        other => panic!("not won: {other:?}"),
    }
}

/// Stores a new machine with this id and makes it idle.
pub(crate) async fn store_idle(ledger: &impl Ledger, id: &str) -> Record {
    let record = new_record(id);
    let intent = Intent {
        id: record.facts.intent.clone(),
        owner: Owner::Request(RequestId::new("first")),
        trust: None,
        class: record.facts.class.clone(),
        pool: None,
        usage: record.facts.usage,
        spec_hash: record.facts.spec_hash.clone(),
        count: 1,
        avoid: std::collections::BTreeSet::new(),
        outstanding: 1,
        deadline: NOW.after(Duration::from_secs(600)),
        revision: Revision(1),
    };
    won(ledger.reserve(&intent, &[]).await.expect("the ledger answers"));
    let Recorded::Stored(stored) = won(ledger.record(&record).await.expect("the ledger answers"))
    else {
        panic!("{id} exists already");
    };
    won(ledger.replace(&stored, &idle(&stored)).await.expect("the ledger answers"))
}

fn new_record(id: &str) -> Record {
    let facts = InstanceFacts {
        class: ClassName::new("small"),
        instance_type: InstanceType::new("c6i.large"),
        vcpu: 2,
        memory_mib: 4096,
        zone: Zone::new("a"),
        usage: Usage::Spot,
        architecture: Architecture::X64,
        spec_hash: SpecHash::new("1-abc"),
        pool: None,
        mailbox: MailboxKey::new(id),
        intent: IntentId::new(format!("for {id}")),
        launched_at: NOW,
    };
    let owner = Owner::Request(RequestId::new("first"));
    Record::born(InstanceId::new(id), facts, owner, None, NOW.after(Duration::from_secs(600)))
}

/// `record` as idle and shared, with a deadline after the end of any test.
pub(crate) fn idle(record: &Record) -> Record {
    let deadline = NOW.after(Duration::from_secs(86_400));
    let state = State::Idle { tier: Tier::Released, since: NOW, deadline, shared: true };
    Record { state, ..record.clone() }
}

/// A claim on an idle record.
pub(crate) fn claim(seen: &Record, nonce: &str) -> ClaimWrite {
    ClaimWrite {
        id: seen.id.clone(),
        seen: seen.generation,
        owner: Owner::Request(RequestId::new("claimer")),
        claim: ClaimId::new(nonce),
        trust: TrustGroup::new("o/r"),
        at: NOW,
        margin: Duration::from_secs(30),
        lease: NOW.after(Duration::from_secs(300)),
    }
}
