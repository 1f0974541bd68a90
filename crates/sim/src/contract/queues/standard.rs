//! Standard queues: at-least-once delivery, in no order.
//!
//! Not here: FIFO queues (`fifo`).

use std::collections::BTreeSet;
use std::time::Duration;

use bullpen_core::ids::{QueueName, Receipt};
use bullpen_core::message::{Decoded, decode};
use bullpen_core::ports::{Depth, Fault, Outgoing, QueueKind, QueueSpec, Queues};
use futures_util::future::join_all;

use super::{
    MOMENT, VISIBILITY, bodies, dead, is_empty, name, plain, receive, receive_one, send, sorted,
    spec, with_dead_letters,
};
use crate::contract::{Harness, answered, while_this_happens, while_time_passes};

async fn ensure(queues: &impl Queues) {
    answered(queues.ensure(&spec(name(), QueueKind::Standard)).await);
}

/// A received body equals the sent one, with any content.
pub async fn bodies_come_back_byte_for_byte<H: Harness<Port: Queues>>(harness: H) {
    let texts = [
        "plain",
        " leading and trailing \n",
        "{\"quote\":\"\\\" ' \\\\ \\u0000\"}",
        "snow ☃ and 🦀",
        "<xml>&amp;</xml>\t;--",
    ];
    ensure(harness.port()).await;
    send(harness.port(), &plain(&texts)).await;
    let received = receive(&harness, &name(), texts.len()).await;
    let mut expected = texts;
    expected.sort_unstable();
    assert_eq!(sorted(&received), expected);
}

/// A message that only a newer program can read passes through unchanged.
pub async fn a_message_of_an_unknown_version_survives_a_round<H: Harness<Port: Queues>>(
    harness: H,
) {
    let newer = r#"{ "v": 99,  "id": {"new":"shape"}, "later": [1, 2.50, null] }"#;
    assert_eq!(decode(newer).ok(), Some(Decoded::Newer { version: "99".into() }));
    ensure(harness.port()).await;
    send(harness.port(), &plain(&[newer])).await;
    for round in 0..3 {
        let received = receive_one(&harness).await;
        assert_eq!(received.body, newer, "round {round}");
        answered(harness.port().delete(&name(), &[received.receipt]).await);
        send(harness.port(), &[Outgoing::now(received.body)]).await;
    }
}

/// A delayed message appears after its delay and not before.
pub async fn a_delayed_message_is_not_seen_before_its_time<H: Harness<Port: Queues>>(harness: H) {
    ensure(harness.port()).await;
    let delay = Duration::from_secs(3);
    send(harness.port(), &[Outgoing { delay, ..Outgoing::now("later".into()) }]).await;
    send(harness.port(), &plain(&["now"])).await;
    // No weather delivers a message before its delay is over.
    assert_eq!(bodies(&receive(&harness, &name(), 1).await), ["now"]);
    harness.pass(delay + MOMENT).await;
    // A double of the first message may come too.
    let received = receive(&harness, &name(), 2).await;
    assert!(bodies(&received).contains(&"later"), "{received:?}");
}

/// A received message is hidden from other receivers; if it is not deleted, it comes back.
pub async fn a_received_message_is_hidden_and_comes_back<H: Harness<Port: Queues>>(harness: H) {
    ensure(harness.port()).await;
    send(harness.port(), &plain(&["one"])).await;
    let first = receive_one(&harness).await;
    assert_eq!(first.body, "one");
    assert!(H::WEAK || first.receives == 1, "{first:?}");
    is_empty(&harness, "in flight").await;
    harness.pass(VISIBILITY.saturating_sub(MOMENT * 2)).await;
    is_empty(&harness, "shortly before its visibility ends").await;
    harness.pass(MOMENT * 3).await;
    let second = receive_one(&harness).await;
    assert_eq!(second.body, "one");
    assert!(second.receives > first.receives, "{second:?} after {first:?}");
    assert_ne!(second.receipt, first.receipt);
}

/// A deleted message does not come back.
pub async fn a_deleted_message_does_not_come_back<H: Harness<Port: Queues>>(harness: H) {
    ensure(harness.port()).await;
    send(harness.port(), &plain(&["one", "two"])).await;
    let received = receive(&harness, &name(), 2).await;
    let receipts: Vec<_> = received.into_iter().map(|delivery| delivery.receipt).collect();
    answered(harness.port().delete(&name(), &receipts).await);
    answered(harness.port().delete(&name(), &receipts).await);
    harness.pass(VISIBILITY + MOMENT).await;
    is_empty(&harness, "deleted").await;
}

/// A receipt of an earlier delivery, or an unknown one, causes no error and has no effect.
pub async fn a_stale_receipt_changes_nothing<H: Harness<Port: Queues>>(harness: H) {
    let queues = harness.port();
    ensure(queues).await;
    send(queues, &plain(&["one"])).await;
    let stale = receive_one(&harness).await.receipt;
    harness.pass(VISIBILITY + MOMENT).await;
    let fresh = receive_one(&harness).await.receipt;
    answered(queues.delete(&name(), &[stale.clone(), Receipt::new("never-was")]).await);
    answered(queues.defer(&name(), &stale, Duration::ZERO).await);
    is_empty(&harness, "a stale receipt made it visible").await;
    harness.pass(VISIBILITY + MOMENT).await;
    assert_eq!(receive_one(&harness).await.body, "one", "a stale receipt deleted it");
    // By now this receipt is stale too.
    answered(queues.delete(&name(), &[fresh]).await);
    harness.pass(VISIBILITY + MOMENT).await;
    assert_eq!(receive_one(&harness).await.body, "one");
}

/// Deferring counts from now: for longer than the visibility, for less, or not at all.
pub async fn a_deferred_message_comes_back_in_time<H: Harness<Port: Queues>>(harness: H) {
    let queues = harness.port();
    ensure(queues).await;
    send(queues, &plain(&["one"])).await;
    let received = receive_one(&harness).await;
    answered(queues.defer(&name(), &received.receipt, Duration::ZERO).await);
    let received = receive_one(&harness).await;
    answered(queues.defer(&name(), &received.receipt, Duration::from_secs(5)).await);
    is_empty(&harness, "deferred").await;
    harness.pass(Duration::from_secs(5) + MOMENT).await;
    let received = receive_one(&harness).await;
    answered(queues.defer(&name(), &received.receipt, VISIBILITY * 2).await);
    harness.pass(VISIBILITY + MOMENT).await;
    is_empty(&harness, "deferred beyond its visibility").await;
    harness.pass(VISIBILITY).await;
    let last = receive_one(&harness).await;
    answered(queues.delete(&name(), &[last.receipt]).await);
}

/// After its maximum of receives without a deletion a message is in the dead-letter queue.
pub async fn a_worn_message_goes_to_the_dead_letters<H: Harness<Port: Queues>>(harness: H) {
    with_dead_letters(harness.port(), QueueKind::Standard, 3).await;
    send(harness.port(), &plain(&["poison"])).await;
    for receive in 1..=3 {
        let delivery = receive_one(&harness).await;
        assert!(H::WEAK || delivery.receives == receive, "{delivery:?}");
        harness.pass(VISIBILITY + MOMENT).await;
    }
    // Each double is received that often by itself.
    for _ in 0..if H::WEAK { 30 } else { 1 } {
        is_empty(&harness, "worn").await;
        harness.pass(VISIBILITY + MOMENT).await;
    }
    let dead = receive(&harness, &dead(), 1).await;
    assert_eq!(bodies(&dead), ["poison"]);
}

/// A message exists until its retention has passed.
pub async fn a_message_is_kept_for_its_retention<H: Harness<Port: Queues>>(harness: H) {
    let retention = Duration::from_secs(600);
    let short = QueueSpec { retention, ..spec(name(), QueueKind::Standard) };
    answered(harness.port().ensure(&short).await);
    send(harness.port(), &plain(&["one"])).await;
    harness.pass(retention.saturating_sub(VISIBILITY * 2)).await;
    assert_eq!(receive_one(&harness).await.body, "one");
    harness.pass(VISIBILITY * 2 + MOMENT).await;
    for _ in 0..3 {
        let received = answered(harness.port().receive(&name(), 1, Duration::ZERO).await);
        assert_eq!(received, [], "older than its retention");
    }
}

/// One call each sends, receives and deletes a full batch.
pub async fn ten_messages_go_in_one_call<H: Harness<Port: Queues>>(harness: H) {
    ensure(harness.port()).await;
    let texts = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
    send(harness.port(), &plain(&texts)).await;
    let received = if H::WEAK {
        receive(&harness, &name(), texts.len()).await
    } else {
        answered(harness.port().receive(&name(), texts.len(), Duration::ZERO).await)
    };
    assert_eq!(sorted(&received), texts);
    let receipts: Vec<_> = received.into_iter().map(|delivery| delivery.receipt).collect();
    answered(harness.port().delete(&name(), &receipts).await);
    harness.pass(VISIBILITY + MOMENT).await;
    is_empty(&harness, "all ten deleted").await;
    assert_eq!(answered(harness.port().send(&name(), &[]).await), []);
    answered(harness.port().delete(&name(), &[]).await);
}

/// Concurrent receivers of a queue get different messages, and together all of them.
pub async fn many_receivers_share_the_messages<H: Harness<Port: Queues>>(harness: H) {
    ensure(harness.port()).await;
    let texts: Vec<_> = (0..40).map(|number| format!("m-{number:02}")).collect();
    for batch in texts.chunks(10) {
        let messages: Vec<_> = batch.iter().cloned().map(Outgoing::now).collect();
        send(harness.port(), &messages).await;
    }
    let receivers: Vec<_> = (0..8).map(|_| harness.another_process()).collect();
    let mut received = Vec::new();
    for _ in 0..if H::WEAK { 40 } else { 5 } {
        let queue = name();
        let polls = receivers.iter().map(|queues| queues.receive(&queue, 3, Duration::ZERO));
        received.extend(join_all(polls).await.into_iter().flat_map(answered));
    }
    let different: BTreeSet<_> = received.iter().map(|delivery| &delivery.body).collect();
    assert_eq!(different.len(), texts.len(), "a message was missed");
    assert!(H::WEAK || received.len() == texts.len(), "a message was delivered twice");
}

/// Every call about an unknown queue answers `NotFound`.
pub async fn an_unknown_queue_is_not_found<H: Harness<Port: Queues>>(harness: H) {
    let (queues, unknown) = (harness.port(), QueueName::new("unknown"));
    let receipt = Receipt::new("any");
    let not_found = Err(Fault::NotFound);
    assert_eq!(queues.send(&unknown, &plain(&["one"])).await, Err(Fault::NotFound));
    assert_eq!(queues.receive(&unknown, 1, Duration::ZERO).await, Err(Fault::NotFound));
    let waiting = queues.receive(&unknown, 1, VISIBILITY);
    let waited = while_time_passes(&harness, VISIBILITY * 2, waiting).await;
    assert_eq!(waited, Some(Err(Fault::NotFound)));
    assert_eq!(queues.delete(&unknown, std::slice::from_ref(&receipt)).await, not_found);
    assert_eq!(queues.defer(&unknown, &receipt, Duration::ZERO).await, not_found);
    assert_eq!(queues.depth(&unknown).await, Err(Fault::NotFound));
}

/// Ensuring a queue is idempotent, and applies a changed spec.
pub async fn ensuring_a_queue_again_keeps_its_messages<H: Harness<Port: Queues>>(harness: H) {
    ensure(harness.port()).await;
    send(harness.port(), &plain(&["one"])).await;
    ensure(&harness.another_process()).await;
    let longer = QueueSpec { visibility: VISIBILITY * 3, ..spec(name(), QueueKind::Standard) };
    answered(harness.port().ensure(&longer).await);
    assert_eq!(receive_one(&harness).await.body, "one");
    harness.pass(VISIBILITY * 2).await;
    is_empty(&harness, "hidden for longer now").await;
    harness.pass(VISIBILITY + MOMENT).await;
    assert_eq!(receive_one(&harness).await.body, "one");
}

/// A removed queue is gone with its messages; a new queue of the same name is empty.
pub async fn a_removed_queue_is_unknown<H: Harness<Port: Queues>>(harness: H) {
    ensure(harness.port()).await;
    send(harness.port(), &plain(&["one"])).await;
    answered(harness.port().remove(&name()).await);
    assert_eq!(harness.port().depth(&name()).await, Err(Fault::NotFound));
    ensure(harness.port()).await;
    let received = answered(harness.port().receive(&name(), 1, Duration::ZERO).await);
    assert_eq!(received, []);
}

/// A long poll returns early when another process sends.
pub async fn a_wait_ends_when_a_message_comes<H: Harness<Port: Queues>>(harness: H) {
    ensure(harness.port()).await;
    let (sender, began) = (harness.another_process(), harness.now());
    let long = Duration::from_secs(20);
    let (queue, later) = (name(), Duration::from_secs(2));
    let sending = async {
        harness.pass(later).await;
        send(&sender, &plain(&["one"])).await;
    };
    let receiving = harness.port().receive(&queue, 1, long);
    let received = while_this_happens(&harness, long * 2, receiving, sending).await;
    assert_eq!(bodies(&answered(received.expect("the poll returned"))), ["one"]);
    let waited = harness.now().since(began);
    assert!(waited < long, "the poll slept on for {waited:?}");
}

/// A long poll also returns when a hidden message appears by itself.
pub async fn a_wait_ends_when_a_hidden_message_appears<H: Harness<Port: Queues>>(harness: H) {
    ensure(harness.port()).await;
    let (queue, began) = (name(), harness.now());
    let delay = Duration::from_secs(3);
    send(harness.port(), &[Outgoing { delay, ..Outgoing::now("later".into()) }]).await;
    let long = Duration::from_secs(20);
    let waiting = harness.port().receive(&queue, 1, long);
    let received = while_time_passes(&harness, long * 2, waiting).await.expect("the poll returned");
    assert_eq!(bodies(&answered(received)), ["later"]);
    let waited = harness.now().since(began);
    assert!(waited >= delay && waited < long, "after {waited:?}");
}

/// A long poll that finds no message returns empty when its time is over.
pub async fn a_wait_ends_in_time_without_a_message<H: Harness<Port: Queues>>(harness: H) {
    ensure(harness.port()).await;
    let (queue, wait) = (name(), Duration::from_secs(5));
    let waiting = harness.port().receive(&queue, 1, wait);
    let received = while_time_passes(&harness, wait * 3, waiting).await;
    assert_eq!(received, Some(Ok(Vec::new())));
}

/// Without an answer a send must not report that no message was sent.
pub async fn a_send_without_an_answer_does_not_say_that_none_was_sent<H: Harness<Port: Queues>>(
    harness: H,
) {
    ensure(harness.port()).await;
    let answer_lost = harness.lose_next_answer();
    let answers = answered(harness.port().send(&name(), &plain(&["one", "two"])).await);
    assert_eq!(answers.len(), 2);
    assert!(answers.iter().all(|answer| answer.is_err() == answer_lost), "{answers:?}");
    assert_eq!(sorted(&receive(&harness, &name(), 2).await), ["one", "two"]);
}

/// The depth tells visible, delayed and in-flight messages apart; in bad weather it is approximate.
pub async fn depth_counts_the_messages<H: Harness<Port: Queues>>(harness: H) {
    let queues = harness.port();
    ensure(queues).await;
    assert!(answered(queues.depth(&name()).await).total() <= u64::from(H::WEAK) * 2);
    send(queues, &plain(&["1", "2", "3", "4", "5"])).await;
    let delay = VISIBILITY;
    send(queues, &[Outgoing { delay, ..Outgoing::now("later".into()) }]).await;
    receive(&harness, &name(), 2).await;
    let depth = answered(queues.depth(&name()).await);
    if H::WEAK {
        assert!((3..=20).contains(&depth.total()), "{depth:?}");
    } else {
        assert_eq!(depth, Depth { visible: 3, delayed: 1, in_flight: 2 });
        harness.pass(VISIBILITY + MOMENT).await;
        let depth = answered(queues.depth(&name()).await);
        assert_eq!(depth, Depth { visible: 6, delayed: 0, in_flight: 0 });
    }
}
