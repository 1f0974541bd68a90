//! Claims: at most one claimer wins, and every process sees which one.
//!
//! Not here: choosing the instance to claim.

use std::time::Duration;

use bullpen_core::ids::{ClaimId, Generation, InstanceId, TrustGroup};
use bullpen_core::instance::{InstanceEvent, State, Tier};
use bullpen_core::ports::Ledger;
use futures_util::future::join_all;

use super::fixtures::{
    HOUR, MARGIN, claim, idle, intent, job, moved, newborn, record, registered, reserve, returned,
    step, stored, warmed, winners, withdrawn,
};
use crate::contract::{Harness, all_of, answered, landed, lost, won};

/// The number of processes that claim one instance at once.
const CLAIMERS: usize = 64;

/// Of many processes that claim one idle instance at once, one wins; every process sees which one.
pub async fn exactly_one_of_many_claimers_wins<H: Harness<Port: Ledger>>(harness: H) {
    let (ledger, now) = (harness.port(), harness.now());
    let claimers: Vec<_> = (0..CLAIMERS).map(|_| harness.another_process()).collect();
    let under = intent("many", H::ROUNDS, now.after(HOUR));
    reserve(ledger, &under).await;
    for round in 0..H::ROUNDS {
        let now = harness.now();
        let created = record(ledger, &newborn(&format!("i-{round}"), &under, now)).await;
        let idle = step(ledger, &created, &warmed(now, now.after(HOUR))).await;
        let writes: Vec<_> = (0..CLAIMERS)
            .map(|claimer| {
                claim(&idle, &job(&format!("j-{round}-{claimer}")), &format!("n-{claimer}"), now)
            })
            .collect();
        let claims = claimers.iter().zip(&writes).map(|(ledger, write)| ledger.claim(write));
        let winners = winners(join_all(claims).await);
        assert_eq!(winners.len(), 1, "round {round} had {} winners", winners.len());
        let (winner, won) = &winners[0];
        assert_eq!(stored(ledger, &idle.id).await, *won, "round {round}");
        assert!(
            matches!(&won.state, State::Claimed { claim, .. } if *claim == writes[*winner].claim)
        );
        let owned = all_of(ledger.owned_by(&writes[*winner].owner).await);
        assert!(owned.contains(won), "round {round}: the winner is not in its owner's directory");
    }
}

/// After a claim's answer was lost, only the nonce on the record says whether the claim won.
pub async fn a_claim_whose_answer_was_lost_is_settled_by_its_nonce<H: Harness<Port: Ledger>>(
    harness: H,
) {
    let idle = idle(&harness, "i-1").await;
    let (ledger, now, owner) = (harness.port(), harness.now(), job("j-1"));
    let write = claim(&idle, &owner, "mine", now);
    let answer_lost = harness.lose_next_answer();
    landed(ledger.claim(&write).await, answer_lost);
    let found = stored(ledger, &idle.id).await;
    assert!(matches!(&found.state, State::Claimed { claim, .. } if *claim == write.claim));
    // Another worker of the same owner must not take the claim for its own.
    lost(ledger.claim(&claim(&idle, &owner, "another", now)).await);
    lost(ledger.claim(&write).await);
    assert_eq!(stored(ledger, &idle.id).await, found);
}

/// A claim wins up to the last millisecond before the margin, and loses on it.
pub async fn a_claim_stays_clear_of_the_deadline_by_its_margin<H: Harness<Port: Ledger>>(
    harness: H,
) {
    let (ledger, now) = (harness.port(), harness.now());
    let under = intent("margin", 2, now.after(HOUR));
    reserve(ledger, &under).await;
    let millisecond = Duration::from_millis(1);
    for (id, deadline, wins) in
        [("i-1", now.after(MARGIN), false), ("i-2", now.after(MARGIN + millisecond), true)]
    {
        let created = record(ledger, &newborn(id, &under, now)).await;
        let idle = step(ledger, &created, &warmed(now, deadline)).await;
        let answer = ledger.claim(&claim(&idle, &job("j-1"), id, now)).await;
        if wins {
            won(answer);
        } else {
            lost(answer);
            assert_eq!(stored(ledger, &idle.id).await, idle);
        }
    }
}

/// An advert of an earlier generation cannot claim an instance.
pub async fn a_claim_of_a_stale_generation_loses<H: Harness<Port: Ledger>>(harness: H) {
    let idle = idle(&harness, "i-1").await;
    let (ledger, now, owner) = (harness.port(), harness.now(), job("j-1"));
    for seen in [Generation(idle.generation.0 - 1), idle.generation.next()] {
        let mut write = claim(&idle, &owner, "stale", now);
        write.seen = seen;
        lost(ledger.claim(&write).await);
    }
    assert_eq!(stored(ledger, &idle.id).await, idle);
    won(ledger.claim(&claim(&idle, &owner, "fresh", now)).await);
}

/// Only an idle instance can be claimed, at any generation.
pub async fn a_claim_of_an_instance_that_is_not_idle_loses<H: Harness<Port: Ledger>>(harness: H) {
    let (ledger, now, owner) = (harness.port(), harness.now(), job("j-1"));
    let under = intent("busy", 1, now.after(HOUR));
    reserve(ledger, &under).await;
    let created = record(ledger, &newborn("i-1", &under, now)).await;
    lost(ledger.claim(&claim(&created, &owner, "n", now)).await);
    let idle = step(ledger, &created, &warmed(now, now.after(HOUR))).await;
    let claimed = won(ledger.claim(&claim(&idle, &owner, "n", now)).await);
    lost(ledger.claim(&claim(&claimed, &owner, "n", now)).await);
    let running = step(ledger, &claimed, &registered(&claimed, &owner, "n", now)).await;
    lost(ledger.claim(&claim(&running, &owner, "n", now)).await);
    let mut unknown = claim(&running, &owner, "n", now);
    unknown.id = InstanceId::new("i-unknown");
    lost(ledger.claim(&unknown).await);
    assert_eq!(answered(ledger.read(&unknown.id).await), None);
    assert_eq!(stored(ledger, &running.id).await, running);
}

/// A claim stores exactly the transition's record, and raises generation and revision.
pub async fn a_claim_writes_all_that_a_claim_says<H: Harness<Port: Ledger>>(harness: H) {
    let idle = idle(&harness, "i-1").await;
    let (ledger, now, owner) = (harness.port(), harness.now(), job("j-1"));
    let write = claim(&idle, &owner, "n-1", now);
    let claimed = won(ledger.claim(&write).await);
    assert_eq!(
        claimed.state,
        State::Claimed {
            owner,
            claim: ClaimId::new("n-1"),
            tier: Tier::Hot,
            trusted_before: None,
            lease: write.lease,
        }
    );
    assert_eq!(claimed.generation, idle.generation.next());
    assert_eq!(claimed.trust, Some(TrustGroup::new("octo/repo")));
    assert_eq!((&claimed.facts, claimed.uses), (&idle.facts, idle.uses));
    assert!(claimed.revision > idle.revision);
}

/// Once another worker of the same owner has taken over a claim, the first worker cannot write.
pub async fn a_fenced_worker_can_write_nothing<H: Harness<Port: Ledger>>(harness: H) {
    let idle = idle(&harness, "i-1").await;
    let (ledger, now, owner) = (harness.port(), harness.now(), job("j-1"));
    let second = harness.another_process();
    let first = won(ledger.claim(&claim(&idle, &owner, "first", now)).await);
    let over = InstanceEvent::TakenOver {
        owner: owner.clone(),
        generation: first.generation,
        claim: ClaimId::new("second"),
        lease: now.after(HOUR),
    };
    let taken = won(second.replace(&first, &moved(&first, &over)).await);
    let renewal = InstanceEvent::Renewed {
        claim: ClaimId::new("first"),
        generation: first.generation,
        lease: now.after(HOUR * 2),
    };
    lost(ledger.replace(&first, &moved(&first, &renewal)).await);
    lost(ledger.replace(&first, &moved(&first, &registered(&first, &owner, "first", now))).await);
    lost(ledger.replace(&first, &moved(&first, &withdrawn(&first, &owner, now))).await);
    assert_eq!(stored(ledger, &idle.id).await, taken);
}

/// A claimer that stalled while its instance was released and claimed by another owner cannot
/// write.
pub async fn a_stalled_claimer_cannot_write_over_a_newer_owner<H: Harness<Port: Ledger>>(
    harness: H,
) {
    let idle = idle(&harness, "i-1").await;
    let (ledger, now, old) = (harness.port(), harness.now(), job("old"));
    let others = harness.another_process();
    let stalled = won(ledger.claim(&claim(&idle, &old, "old", now)).await);
    let taken = step(&others, &stalled, &withdrawn(&stalled, &old, now)).await;
    let back = step(&others, &taken, &returned(taken.generation, now)).await;
    let newer = won(others.claim(&claim(&back, &job("new"), "new", now)).await);
    lost(ledger.replace(&stalled, &moved(&stalled, &registered(&stalled, &old, "old", now))).await);
    lost(ledger.claim(&claim(&idle, &old, "old", now)).await);
    assert_eq!(stored(ledger, &idle.id).await, newer);
}
