//! The contract of the `Queues` port.
//!
//! Standard queues may double, reorder and be falsely empty, so their cases poll again until they
//! have their messages, and assert absences only where the harness is not weak. FIFO queues keep
//! their guarantees in every weather.
//!
//! Not here: the meaning of messages.

use std::collections::BTreeMap;
use std::time::Duration;

use bullpen_core::ids::QueueName;
use bullpen_core::limits::MESSAGES_PER_CALL_MAX;
use bullpen_core::ports::{Delivery, Fifo, Outgoing, QueueKind, QueueSpec, Queues};

use super::{Harness, answered};

mod fifo;
mod standard;

pub use fifo::*;
pub use standard::*;

/// One test per case of the queues' contract.
#[macro_export]
macro_rules! queues_contract {
    ($harness:ty) => {
        $crate::contract_cases!(
            $harness,
            queues,
            [
                bodies_come_back_byte_for_byte,
                a_message_of_an_unknown_version_survives_a_round,
                a_delayed_message_is_not_seen_before_its_time,
                a_received_message_is_hidden_and_comes_back,
                a_deleted_message_does_not_come_back,
                a_stale_receipt_changes_nothing,
                a_deferred_message_comes_back_in_time,
                a_worn_message_goes_to_the_dead_letters,
                a_message_is_kept_for_its_retention,
                ten_messages_go_in_one_call,
                many_receivers_share_the_messages,
                an_unknown_queue_is_not_found,
                ensuring_a_queue_again_keeps_its_messages,
                a_removed_queue_is_unknown,
                a_wait_ends_when_a_message_comes,
                a_wait_ends_when_a_hidden_message_appears,
                a_wait_ends_in_time_without_a_message,
                a_send_without_an_answer_does_not_say_that_none_was_sent,
                depth_counts_the_messages,
                a_group_keeps_its_order,
                a_busy_group_blocks_and_others_do_not,
                a_deferred_message_blocks_its_group,
                the_same_again_within_five_minutes_is_swallowed,
                a_batch_is_deduplicated_message_by_message,
                a_fifo_message_ignores_its_delay,
                a_worn_message_frees_its_group,
            ]
        );
    };
}

/// How long a received message stays hidden in these queues.
const VISIBILITY: Duration = Duration::from_secs(30);
const MOMENT: Duration = Duration::from_millis(1_500);

fn name() -> QueueName {
    QueueName::new("contract")
}

fn dead() -> QueueName {
    QueueName::new("contract-dead")
}

fn spec(name: QueueName, kind: QueueKind) -> QueueSpec {
    QueueSpec {
        name,
        kind,
        visibility: VISIBILITY,
        retention: Duration::from_secs(86_400),
        dead_letters: None,
    }
}

/// Makes a queue of this kind whose messages become dead letters after `receives`.
async fn with_dead_letters(queues: &impl Queues, kind: QueueKind, receives: u32) {
    answered(queues.ensure(&spec(dead(), kind)).await);
    let dead_letters = Some((dead(), receives));
    answered(queues.ensure(&QueueSpec { dead_letters, ..spec(name(), kind) }).await);
}

/// Sends messages; the queue must accept all.
async fn send(queues: &impl Queues, messages: &[Outgoing]) {
    let answers = answered(queues.send(&name(), messages).await);
    assert_eq!(answers, vec![Ok(()); messages.len()]);
}

fn plain(bodies: &[&str]) -> Vec<Outgoing> {
    bodies.iter().map(|body| Outgoing::now((*body).to_owned())).collect()
}

fn in_group(group: &str, body: &str) -> Outgoing {
    let fifo = Fifo { group: group.into(), deduplication: body.into() };
    Outgoing { fifo: Some(fifo), ..Outgoing::now(body.to_owned()) }
}

/// Receives as a patient receiver: polls again where a poll may be falsely empty, until it has this
/// many different bodies or has polled often enough.
async fn receive<H: Harness<Port: Queues>>(
    harness: &H,
    queue: &QueueName,
    different: usize,
) -> Vec<Delivery> {
    let polls = if H::WEAK { 60 } else { different + 1 };
    let mut seen: BTreeMap<String, Delivery> = BTreeMap::new();
    let mut order = Vec::new();
    for _ in 0..polls {
        if seen.len() >= different {
            break;
        }
        let max = (different - seen.len()).min(MESSAGES_PER_CALL_MAX);
        for delivery in answered(harness.port().receive(queue, max, Duration::ZERO).await) {
            if seen.insert(delivery.body.clone(), delivery.clone()).is_none() {
                order.push(delivery.body);
            }
        }
    }
    // The latest delivery of each body: only its receipt is valid.
    order.iter().filter_map(|body| seen.remove(body)).collect()
}

/// Receives the only message.
async fn receive_one<H: Harness<Port: Queues>>(harness: &H) -> Delivery {
    receive(harness, &name(), 1).await.pop().expect("a message arrives")
}

/// Fails if a message can be received, unless doubles are allowed.
async fn is_empty<H: Harness<Port: Queues>>(harness: &H, when: &str) {
    let received = answered(harness.port().receive(&name(), 10, Duration::ZERO).await);
    assert!(H::WEAK || received.is_empty(), "{when}: {received:?}");
}

fn bodies(deliveries: &[Delivery]) -> Vec<&str> {
    deliveries.iter().map(|delivery| delivery.body.as_str()).collect()
}

fn sorted(deliveries: &[Delivery]) -> Vec<&str> {
    let mut bodies = bodies(deliveries);
    bodies.sort_unstable();
    bodies
}
