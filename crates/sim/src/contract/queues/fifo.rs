//! FIFO queues: ordered within a group, one receiver of a group at a time, deduplicated.
//!
//! Not here: standard queues (`standard`).

use std::time::Duration;

use bullpen_core::ports::{Fifo, Outgoing, QueueKind, Queues};

use super::{
    MOMENT, VISIBILITY, bodies, dead, in_group, name, receive, receive_one, send, spec,
    with_dead_letters,
};
use crate::contract::{Harness, answered};

async fn ensure(queues: &impl Queues) {
    answered(queues.ensure(&spec(name(), QueueKind::Fifo)).await);
}

/// Fails if a message can be received: a FIFO queue delivers no doubles.
async fn is_blocked<H: Harness<Port: Queues>>(harness: &H, when: &str) {
    for _ in 0..3 {
        let received = answered(harness.port().receive(&name(), 10, Duration::ZERO).await);
        assert_eq!(received, [], "{when}");
    }
}

/// A group's messages come in the order they were sent, singly, in batches, and when repeated.
pub async fn a_group_keeps_its_order<H: Harness<Port: Queues>>(harness: H) {
    ensure(harness.port()).await;
    let texts = ["1", "2", "3", "4", "5", "6"];
    let messages: Vec<_> = texts.iter().map(|text| in_group("g", text)).collect();
    send(harness.port(), &messages[..4]).await;
    send(harness.port(), &messages[4..]).await;
    let first = receive_one(&harness).await;
    assert_eq!(first.body, "1");
    // The first is not deleted, so it comes again before its followers.
    harness.pass(VISIBILITY + MOMENT).await;
    for text in texts {
        let delivery = receive_one(&harness).await;
        assert_eq!(delivery.body, text);
        answered(harness.port().delete(&name(), &[delivery.receipt]).await);
    }
    is_blocked(&harness, "empty").await;
}

/// While a message of a group is in flight, the group delivers no other; other groups do.
pub async fn a_busy_group_blocks_and_others_do_not<H: Harness<Port: Queues>>(harness: H) {
    ensure(harness.port()).await;
    send(harness.port(), &[in_group("a", "a1")]).await;
    let first = receive_one(&harness).await;
    send(harness.port(), &[in_group("a", "a2"), in_group("b", "b1")]).await;
    let other = receive(&harness, &name(), 2).await;
    assert_eq!(bodies(&other), ["b1"], "only the other group delivers");
    is_blocked(&harness, "both groups are busy").await;
    answered(harness.port().delete(&name(), &[first.receipt]).await);
    assert_eq!(receive_one(&harness).await.body, "a2");
}

/// A deferred message also holds back the later messages of its group.
pub async fn a_deferred_message_blocks_its_group<H: Harness<Port: Queues>>(harness: H) {
    ensure(harness.port()).await;
    send(harness.port(), &[in_group("a", "a1"), in_group("a", "a2")]).await;
    let first = receive_one(&harness).await;
    answered(harness.port().defer(&name(), &first.receipt, VISIBILITY * 2).await);
    is_blocked(&harness, "deferred").await;
    harness.pass(VISIBILITY + MOMENT).await;
    is_blocked(&harness, "still deferred").await;
    harness.pass(VISIBILITY).await;
    let again = receive_one(&harness).await;
    assert_eq!((again.body.as_str(), again.receives), ("a1", 2));
    answered(harness.port().defer(&name(), &again.receipt, Duration::ZERO).await);
    assert_eq!(receive_one(&harness).await.body, "a1", "visible at once, and still first");
}

/// A deduplication id is accepted once in five minutes, even if the first message was deleted.
pub async fn the_same_again_within_five_minutes_is_swallowed<H: Harness<Port: Queues>>(harness: H) {
    let queues = harness.port();
    ensure(queues).await;
    let again = |body: &str| Outgoing {
        fifo: Some(Fifo { group: "g".into(), deduplication: "same".into() }),
        ..Outgoing::now(body.to_owned())
    };
    send(queues, &[again("first")]).await;
    let first = receive_one(&harness).await;
    answered(queues.delete(&name(), &[first.receipt]).await);
    harness.pass(Duration::from_secs(290)).await;
    send(&harness.another_process(), &[again("second")]).await;
    is_blocked(&harness, "a double within five minutes").await;
    // Five minutes count from the first message: the dropped one does not restart them.
    harness.pass(Duration::from_secs(11)).await;
    send(queues, &[again("third")]).await;
    assert_eq!(receive_one(&harness).await.body, "third");
}

/// Deduplication also holds inside one call, and only for equal ids.
pub async fn a_batch_is_deduplicated_message_by_message<H: Harness<Port: Queues>>(harness: H) {
    ensure(harness.port()).await;
    let batch = [in_group("a", "one"), in_group("a", "one"), in_group("a", "two")];
    send(harness.port(), &batch).await;
    for text in ["one", "two"] {
        let delivery = receive_one(&harness).await;
        assert_eq!(delivery.body, text);
        answered(harness.port().delete(&name(), &[delivery.receipt]).await);
    }
    is_blocked(&harness, "the double was dropped").await;
}

/// A FIFO queue has no delay per message, and ignores a requested one.
pub async fn a_fifo_message_ignores_its_delay<H: Harness<Port: Queues>>(harness: H) {
    ensure(harness.port()).await;
    let delay = VISIBILITY;
    send(harness.port(), &[Outgoing { delay, ..in_group("g", "now") }]).await;
    assert_eq!(receive_one(&harness).await.body, "now");
}

/// A message that no receiver deletes does not block its group for ever.
pub async fn a_worn_message_frees_its_group<H: Harness<Port: Queues>>(harness: H) {
    with_dead_letters(harness.port(), QueueKind::Fifo, 2).await;
    send(harness.port(), &[in_group("g", "poison"), in_group("g", "good")]).await;
    for receives in 1..=2 {
        let delivery = receive_one(&harness).await;
        assert_eq!((delivery.body.as_str(), delivery.receives), ("poison", receives));
        harness.pass(VISIBILITY + MOMENT).await;
    }
    assert_eq!(receive_one(&harness).await.body, "good");
    assert_eq!(bodies(&receive(&harness, &dead(), 1).await), ["poison"]);
}
