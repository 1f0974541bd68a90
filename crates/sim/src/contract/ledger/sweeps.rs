//! Sweeps: all items, page by page. They may lag, so every case lets them catch up first.
//!
//! Not here: acting on the items.

use std::collections::BTreeSet;
use std::time::Duration;

use bullpen_core::ids::InstanceId;
use bullpen_core::instance::Record;
use bullpen_core::ports::Ledger;
use bullpen_core::time::Timestamp;

use super::fixtures::{
    HOUR, all_pages, condemned, gone, intent, job, moved, newborn, record, reserve, running, step,
    withdrawn,
};
use crate::contract::{Harness, answered, won};

async fn due(ledger: &impl Ledger, before: Timestamp) -> Vec<Record> {
    all_pages(async |after: Option<String>| ledger.due(before, after.as_deref()).await).await
}

async fn live(ledger: &impl Ledger) -> Vec<Record> {
    all_pages(async |after: Option<String>| ledger.live(after.as_deref()).await).await
}

fn ids(records: &[Record]) -> BTreeSet<InstanceId> {
    records.iter().map(|record| record.id.clone()).collect()
}

/// A sweep lists every item once, over more than three pages of any store, with most items at one
/// deadline.
pub async fn sweeps_turn_every_page_once<H: Harness<Port: Ledger>>(harness: H) {
    const MANY: u32 = 450;
    let (ledger, now) = (harness.port(), harness.now());
    let under = intent("many", MANY, now.after(HOUR));
    reserve(ledger, &under).await;
    let mut expected = BTreeSet::new();
    for number in 0..MANY {
        let mut born = newborn(&format!("i-{number}"), &under, now);
        if number % 9 == 0 {
            let bullpen_core::instance::State::Created { deadline, .. } = &mut born.state else {
                panic!("a first record is created");
            };
            *deadline = now.after(Duration::from_secs(u64::from(number)));
        }
        expected.insert(record(ledger, &born).await.id);
    }
    harness.settle().await;
    let swept = live(ledger).await;
    assert_eq!((swept.len(), &ids(&swept)), (expected.len(), &expected), "live");
    let swept = due(ledger, now.after(HOUR)).await;
    assert_eq!((swept.len(), &ids(&swept)), (expected.len(), &expected), "due");
    let looks: Vec<_> = swept.iter().map(|record| record.state.look_at()).collect();
    assert!(looks.is_sorted(), "`due` is not in the order of looks");
}

/// Due records come earliest first; a deadline at the given time is due, a later one is not.
pub async fn due_is_in_order_and_ends_in_time<H: Harness<Port: Ledger>>(harness: H) {
    let (ledger, now) = (harness.port(), harness.now());
    let under = intent("due", 4, now.after(HOUR));
    reserve(ledger, &under).await;
    for (id, seconds) in [("i-1", 30), ("i-2", 10), ("i-3", 20), ("i-4", 31)] {
        let deadline = now.after(Duration::from_secs(seconds));
        let owner = under.owner.clone();
        let mut born = newborn(id, &under, now);
        born.state = bullpen_core::instance::State::Created { owner, deadline };
        record(ledger, &born).await;
    }
    harness.settle().await;
    let swept = due(ledger, now.after(Duration::from_secs(30))).await;
    let order: Vec<_> = swept.iter().map(|record| record.id.as_str()).collect();
    assert_eq!(order, ["i-2", "i-3", "i-1"]);
    assert_eq!(due(ledger, now.before(HOUR)).await, []);
    // A record that changed is listed at its new time.
    let first = &swept[0];
    let condemned = step(ledger, first, &condemned(now.after(Duration::from_secs(25)))).await;
    harness.settle().await;
    let swept = due(ledger, now.after(Duration::from_secs(25))).await;
    assert_eq!(swept.iter().map(|record| record.id.as_str()).collect::<Vec<_>>(), ["i-3", "i-2"]);
    assert!(swept.contains(&condemned));
}

/// A releasing record is due at once, not only at its deadline: the next sweep continues the
/// release.
pub async fn a_releasing_instance_is_due_at_once<H: Harness<Port: Ledger>>(harness: H) {
    let running = running(&harness, "i-1", &job("j-1")).await;
    let (ledger, now) = (harness.port(), harness.now());
    harness.settle().await;
    assert_eq!(due(ledger, now).await, []);
    let leaving = step(ledger, &running, &withdrawn(&running, &job("j-1"), now)).await;
    assert!(leaving.state.deadline() > now);
    harness.settle().await;
    assert_eq!(due(ledger, now).await, [leaving]);
}

/// A tombstone can be read by its id and is in no sweep.
pub async fn buried_records_are_not_swept<H: Harness<Port: Ledger>>(harness: H) {
    let (ledger, now) = (harness.port(), harness.now());
    let under = intent("dead", 2, now.after(HOUR));
    reserve(ledger, &under).await;
    let created = record(ledger, &newborn("i-1", &under, now)).await;
    record(ledger, &newborn("i-2", &under, now)).await;
    let ending = step(ledger, &created, &condemned(now)).await;
    let buried = won(ledger.bury(&ending, &moved(&ending, &gone(now))).await);
    harness.settle().await;
    let alive = BTreeSet::from([InstanceId::new("i-2")]);
    assert_eq!(ids(&live(ledger).await), alive);
    assert_eq!(ids(&due(ledger, now.after(HOUR * 100)).await), alive);
    assert_eq!(answered(ledger.read(&buried.id).await), Some(buried));
}

/// A sweep lists all intents with an outstanding reservation, and no others.
pub async fn only_open_intents_are_swept<H: Harness<Port: Ledger>>(harness: H) {
    const MANY: usize = 660;
    let (ledger, now) = (harness.port(), harness.now());
    let mut open = BTreeSet::new();
    for number in 0..MANY {
        let one = intent(&format!("intent-{number}"), 1, now.after(HOUR));
        reserve(ledger, &one).await;
        match number % 3 {
            0 => drop(record(ledger, &newborn(&format!("i-{number}"), &one, now)).await),
            1 => {
                let seen = answered(ledger.intent(&one.id).await).expect("the intent is stored");
                won(ledger.give_back(&seen).await);
            }
            _ => drop(open.insert(one.id)),
        }
    }
    harness.settle().await;
    let swept =
        all_pages(async |after: Option<String>| ledger.intents(after.as_deref()).await).await;
    let ids: BTreeSet<_> = swept.iter().map(|intent| intent.id.clone()).collect();
    assert_eq!((swept.len(), ids), (open.len(), open));
    assert!(
        swept.iter().all(|intent| intent.outstanding == 1 && intent.deadline == now.after(HOUR))
    );
}
