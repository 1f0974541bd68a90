//! Ordinary writes: conditional on the revision that was read, stored unchanged.
//!
//! Not here: claims (`claims`).

use std::time::Duration;

use bullpen_core::ids::{ClaimId, InstanceId};
use bullpen_core::instance::{InstanceEvent, Record, StateName};
use bullpen_core::ports::Ledger;
use futures_util::future::join_all;

use super::fixtures::{
    HOUR, claim, condemned, gone, idle, intent, job, moved, newborn, record, registered, reserve,
    returned, stored, to_stop, warmed, winners, withdrawn,
};
use crate::contract::{Harness, landed, lost, won};

/// Checks that a write's answer is the stored record, and that it differs from the written record
/// only in its revision.
async fn is_stored(ledger: &impl Ledger, meant: &Record, answer: &Record) {
    assert_eq!(stored(ledger, &answer.id).await, *answer);
    assert_eq!(Record { revision: answer.revision, ..meant.clone() }, *answer);
}

/// A record is read back unchanged after every step of a life through every state.
pub async fn every_state_is_read_back_as_it_was_written<H: Harness<Port: Ledger>>(harness: H) {
    let (ledger, now, owner) = (harness.port(), harness.now(), job("j-1"));
    let under = intent("life", 2, now.after(HOUR));
    reserve(ledger, &under).await;
    let mut seen = record(ledger, &newborn("i-1", &under, now)).await;
    let mut names = vec![seen.state.name()];
    let later = now.after(Duration::from_secs(61));
    let stop = to_stop(now);
    let stopped = InstanceEvent::FoundStopped {
        at: later,
        skew: Duration::ZERO,
        deadline: later.after(HOUR),
        shared: true,
    };
    for event in [&stop, &stopped] {
        let next = moved(&seen, event);
        let answer = won(ledger.replace(&seen, &next).await);
        is_stored(ledger, &next, &answer).await;
        names.push(answer.state.name());
        seen = answer;
    }
    seen = won(ledger.claim(&claim(&seen, &owner, "n-1", now)).await);
    names.push(seen.state.name());
    let steps: [&dyn Fn(&Record) -> InstanceEvent; 4] = [
        &|seen| registered(seen, &owner, "n-1", now),
        &|seen| withdrawn(seen, &owner, now),
        &|seen| returned(seen.generation, now),
        &|_| condemned(now),
    ];
    for event in steps {
        let next = moved(&seen, &event(&seen));
        let answer = won(ledger.replace(&seen, &next).await);
        is_stored(ledger, &next, &answer).await;
        names.push(answer.state.name());
        seen = answer;
    }
    let tombstone = moved(&seen, &gone(now));
    let buried = won(ledger.bury(&seen, &tombstone).await);
    is_stored(ledger, &tombstone, &buried).await;
    names.push(buried.state.name());
    for state in StateName::ALL {
        assert!(names.contains(&state), "the case misses {}", state.as_str());
    }
}

/// Of many writers that write over the same revision, one wins.
pub async fn of_many_writers_who_read_the_same_one_wins<H: Harness<Port: Ledger>>(harness: H) {
    const WRITERS: u64 = 32;
    let idle = idle(&harness, "i-1").await;
    let (ledger, now, owner) = (harness.port(), harness.now(), job("j-1"));
    let writers: Vec<_> = (0..WRITERS).map(|_| harness.another_process()).collect();
    let mut seen = won(ledger.claim(&claim(&idle, &owner, "n-1", now)).await);
    for round in 0..5_u32 {
        let nexts: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let lease = now.after(HOUR * (round + 1) + Duration::from_millis(writer));
                let (claim, generation) = (ClaimId::new("n-1"), seen.generation);
                moved(&seen, &InstanceEvent::Renewed { claim, generation, lease })
            })
            .collect();
        let replacing =
            writers.iter().zip(&nexts).map(|(ledger, next)| ledger.replace(&seen, next));
        let winners = winners(join_all(replacing).await);
        assert_eq!(winners.len(), 1, "round {round}");
        let (winner, answer) = &winners[0];
        is_stored(ledger, &nexts[*winner], answer).await;
        seen = answer.clone();
    }
}

/// A read finds a write whose answer was lost, and the write cannot land again.
pub async fn a_write_whose_answer_was_lost_is_settled_by_reading<H: Harness<Port: Ledger>>(
    harness: H,
) {
    let idle = idle(&harness, "i-1").await;
    let (ledger, now) = (harness.port(), harness.now());
    let next = moved(&idle, &condemned(now));
    let answer_lost = harness.lose_next_answer();
    landed(ledger.replace(&idle, &next).await, answer_lost);
    let found = stored(ledger, &idle.id).await;
    assert_eq!(Record { revision: found.revision, ..next.clone() }, found);
    assert!(found.revision > idle.revision);
    lost(ledger.replace(&idle, &next).await);
    let tombstone = moved(&found, &gone(now));
    let answer_lost = harness.lose_next_answer();
    landed(ledger.bury(&found, &tombstone).await, answer_lost);
    assert_eq!(stored(ledger, &idle.id).await.state, tombstone.state);
    lost(ledger.bury(&found, &tombstone).await);
}

/// The ledger raises the revision itself and ignores the writer's.
pub async fn every_write_raises_the_revision<H: Harness<Port: Ledger>>(harness: H) {
    let (ledger, now) = (harness.port(), harness.now());
    let under = intent("revisions", 1, now.after(HOUR));
    reserve(ledger, &under).await;
    let created = record(ledger, &newborn("i-1", &under, now)).await;
    assert_eq!(stored(ledger, &created.id).await, created);
    let mut next = moved(&created, &warmed(now, now.after(HOUR)));
    next.revision = bullpen_core::ids::Revision(0);
    let idle = won(ledger.replace(&created, &next).await);
    assert!(idle.revision > created.revision);
    let claimed = won(ledger.claim(&claim(&idle, &job("j-1"), "n", now)).await);
    assert!(claimed.revision > idle.revision);
}

/// A write to an unknown record loses.
pub async fn a_write_to_an_unknown_record_loses<H: Harness<Port: Ledger>>(harness: H) {
    let idle = idle(&harness, "i-1").await;
    let (ledger, now) = (harness.port(), harness.now());
    let unknown = Record { id: InstanceId::new("i-unknown"), ..idle };
    lost(ledger.replace(&unknown, &moved(&unknown, &condemned(now))).await);
    let ending = moved(&unknown, &condemned(now));
    lost(ledger.bury(&ending, &moved(&ending, &gone(now))).await);
    assert_eq!(ledger.read(&unknown.id).await, Ok(None));
}

/// Writes of one batch win and lose one by one, and are answered in their order.
pub async fn a_batch_is_won_and_lost_one_by_one<H: Harness<Port: Ledger>>(harness: H) {
    const MACHINES: usize = 60;
    let (ledger, now, owner) = (harness.port(), harness.now(), job("j-1"));
    let mut writes = Vec::new();
    for number in 0..MACHINES {
        let nonce = format!("n-{number}");
        let idle = idle(&harness, &format!("i-{number:02}")).await;
        let claimed = won(ledger.claim(&claim(&idle, &owner, &nonce, now)).await);
        let next = moved(&claimed, &registered(&claimed, &owner, &nonce, now));
        writes.push((claimed, next));
    }
    // Another process overtakes every third write before the batch is sent.
    let (claim, lease) = (|number| ClaimId::new(format!("n-{number}")), now.after(HOUR * 2));
    for (number, (seen, _)) in writes.iter().enumerate().step_by(3) {
        let generation = seen.generation;
        let renewed =
            moved(seen, &InstanceEvent::Renewed { claim: claim(number), generation, lease });
        won(harness.another_process().replace(seen, &renewed).await);
    }
    let answers = ledger.replace_all(&writes).await;
    assert_eq!(answers.len(), MACHINES);
    for (number, (answer, (_, next))) in answers.into_iter().zip(&writes).enumerate() {
        if number % 3 == 0 {
            lost(answer);
        } else {
            is_stored(ledger, next, &won(answer)).await;
        }
    }
    assert!(ledger.replace_all(&[]).await.is_empty());
}
