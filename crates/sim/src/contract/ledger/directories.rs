//! Directories: directly after a write, every process finds the record there; they may list too
//! much.
//!
//! Not here: sweeps, which may lag (`sweeps`).

use std::time::Duration;

use bullpen_core::instance::{Owner, Record, State};
use bullpen_core::ports::Ledger;
use futures_util::future::join_all;

use super::fixtures::{
    HOUR, claim, class, condemned, idle, intent, job, newborn, pool, record, registered, reserve,
    returned, step, warmed, withdrawn,
};
use crate::contract::{Harness, all_of, won};

/// Fails if a directory misses this record.
async fn is_listed(ledger: &impl Ledger, record: &Record, when: &str) {
    if let Some(owner) = record.state.listed_under() {
        let owned = all_of(ledger.owned_by(owner).await);
        assert!(owned.contains(record), "{when}: {owner} misses {}", record.id);
    }
    if let Some(advert) = record.advert() {
        let idle = all_of(ledger.idle_in(&record.facts.class).await);
        assert!(idle.contains(&advert), "{when}: the class misses {}", record.id);
    }
    if let Some(pool) = &record.facts.pool {
        let standing = all_of(ledger.standing_by(pool).await);
        assert!(standing.contains(record), "{when}: the pool misses {}", record.id);
    }
}

/// Cycles one instance through its states; another process looks it up after every write.
async fn go_round<L: Ledger>(writer: &L, reader: &L, idle: Record, owner: &Owner) {
    let State::Idle { since: now, .. } = idle.state else { panic!("not idle") };
    let mut idle = idle;
    for round in 0..8 {
        let nonce = format!("n-{round}");
        let claimed = won(writer.claim(&claim(&idle, owner, &nonce, now)).await);
        is_listed(reader, &claimed, "claimed").await;
        let used = if round % 2 == 0 {
            step(writer, &claimed, &registered(&claimed, owner, &nonce, now)).await
        } else {
            claimed
        };
        is_listed(reader, &used, "running").await;
        let leaving = step(writer, &used, &withdrawn(&used, owner, now)).await;
        is_listed(reader, &leaving, "releasing").await;
        idle = step(writer, &leaving, &returned(leaving.generation, now)).await;
        is_listed(reader, &idle, "idle").await;
    }
}

/// Many instances change between few owners at once, and no directory ever misses an instance.
pub async fn directories_never_miss_while_everything_moves<H: Harness<Port: Ledger>>(harness: H) {
    const INSTANCES: usize = 16;
    let handles: Vec<_> = (0..INSTANCES).map(|_| harness.another_process()).collect();
    let owners = [job("j-1"), job("j-2"), job("j-3")];
    let mut rounds = Vec::new();
    for (number, handle) in handles.iter().enumerate() {
        let idle = idle(&harness, &format!("i-{number}")).await;
        is_listed(handle, &idle, "warm").await;
        let reader = &handles[(number + 1) % INSTANCES];
        rounds.push(go_round(handle, reader, idle, &owners[number % owners.len()]));
    }
    join_all(rounds).await;
}

/// A second release finds the instances that the first one left, until they have no owner.
pub async fn a_releasing_instance_is_listed_under_its_owner<H: Harness<Port: Ledger>>(harness: H) {
    let idle = idle(&harness, "i-1").await;
    let (ledger, now, owner) = (harness.port(), harness.now(), job("j-1"));
    let claimed = won(ledger.claim(&claim(&idle, &owner, "n-1", now)).await);
    let leaving = step(ledger, &claimed, &withdrawn(&claimed, &owner, now)).await;
    assert!(all_of(harness.another_process().owned_by(&owner).await).contains(&leaving));
    step(ledger, &leaving, &returned(leaving.generation, now)).await;
    let left = all_of(ledger.owned_by(&owner).await);
    assert!(H::WEAK || left.is_empty(), "{left:?}");
}

/// The class's directory lists the instance first that has been idle longest.
pub async fn the_class_directory_lists_the_oldest_first<H: Harness<Port: Ledger>>(harness: H) {
    let (ledger, now) = (harness.port(), harness.now());
    let under = intent("ages", 3, now.after(HOUR));
    reserve(ledger, &under).await;
    for (id, seconds) in [("i-1", 20), ("i-2", 10), ("i-3", 30)] {
        let created = record(ledger, &newborn(id, &under, now)).await;
        let at = now.after(Duration::from_secs(seconds));
        step(ledger, &created, &warmed(at, at.after(HOUR))).await;
    }
    let listed = all_of(ledger.idle_in(&class()).await);
    let ids: Vec<_> = listed.iter().map(|advert| advert.id.as_str()).collect();
    assert_eq!(ids, ["i-2", "i-1", "i-3"]);
}

/// A directory's advert equals the record's own advert, so that a claim needs no read.
pub async fn an_advert_equals_its_record<H: Harness<Port: Ledger>>(harness: H) {
    let idle = idle(&harness, "i-1").await;
    let listed = all_of(harness.port().idle_in(&class()).await);
    assert_eq!(listed, [idle.advert().expect("it is idle and shared")]);
    let unknown = bullpen_core::ids::ClassName::new("unknown");
    assert_eq!(all_of(harness.port().idle_in(&unknown).await), []);
}

/// A pool finds its instances in every live state, under every owner.
pub async fn a_pool_finds_everything_it_launched<H: Harness<Port: Ledger>>(harness: H) {
    let (ledger, now, owner) = (harness.port(), harness.now(), job("j-1"));
    let idle_one = idle(&harness, "i-1").await;
    let under = intent("more", 1, now.after(HOUR));
    reserve(ledger, &under).await;
    let created = record(ledger, &newborn("i-2", &under, now)).await;
    let taken = idle(&harness, "i-3").await;
    let taken = won(ledger.claim(&claim(&taken, &owner, "n", now)).await);
    let ending = idle(&harness, "i-4").await;
    let ending = step(ledger, &ending, &condemned(now)).await;
    let standing = all_of(ledger.standing_by(&pool()).await);
    for record in [idle_one, created, taken, ending] {
        assert!(standing.contains(&record), "the pool misses {record:?}");
    }
    let unknown = bullpen_core::ids::PoolName::new("unknown");
    assert_eq!(all_of(ledger.standing_by(&unknown).await), []);
}

/// Directories have no pages: one call lists all entries.
pub async fn directories_list_more_than_a_page<H: Harness<Port: Ledger>>(harness: H) {
    const MANY: u32 = 250;
    let (ledger, now, owner) = (harness.port(), harness.now(), job("j-1"));
    let under = intent("many", MANY, now.after(HOUR));
    reserve(ledger, &under).await;
    let mut idle = Vec::new();
    for number in 0..MANY {
        let created = record(ledger, &newborn(&format!("i-{number}"), &under, now)).await;
        idle.push(step(ledger, &created, &warmed(now, now.after(HOUR))).await);
    }
    assert_eq!(all_of(ledger.idle_in(&class()).await).len(), idle.len());
    assert_eq!(all_of(ledger.standing_by(&pool()).await).len(), idle.len());
    for record in &idle {
        won(ledger.claim(&claim(record, &owner, record.id.as_str(), now)).await);
    }
    assert_eq!(all_of(ledger.owned_by(&owner).await).len(), idle.len());
}
