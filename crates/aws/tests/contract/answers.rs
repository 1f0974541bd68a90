//! Answers that no emulator gives: throttling, refusals, failures, contended writes, batches that
//! are answered in part. The test's HTTP client gives them in AWS's own form.
//!
//! Not here: errors that an operator must act on ([`crate::refusals`]).

use std::sync::Arc;
use std::time::Duration;

use bullpen_aws::{DynamoLedger, DynamoMailbox, SqsQueues};
use bullpen_core::creation::Intent;
use bullpen_core::ids::{Generation, InstanceId, LeaseName, MailboxKey, Revision};
use bullpen_core::instance::Owner;
use bullpen_core::lease::Lease;
use bullpen_core::mailbox::{AgentPhase, Assignment, Beat, Inbox, Order, ReportRead};
use bullpen_core::ports::{
    Clock, Fault, Ledger, Mailbox, Outgoing, QueueKind, QueueSpec, Queues, Reserved, Written,
};
use bullpen_sim::clock::ManualClock;

use crate::emulator::block_on;
use crate::{Wire, World};

async fn ledger() -> (DynamoLedger<ManualClock>, Wire, World) {
    let (world, wire) = (World::with_tables().await, Wire::default());
    let config = world.account.config(Some(wire.clone())).await;
    (DynamoLedger::new(&config, &world.stack, Arc::clone(&world.clock)), wire, world)
}

/// An error as DynamoDB and SQS give it.
fn error(code: &str) -> String {
    format!(r#"{{"__type":"com.amazonaws.any#{code}","message":"as AWS says it"}}"#)
}

fn lease() -> Lease {
    Lease::first(LeaseName::new("pool/linux"), "holder".into())
}

fn intent(world: &World) -> Intent {
    Intent {
        id: "n-1".into(),
        owner: Owner::Pool("linux".into()),
        trust: None,
        class: "large".into(),
        pool: None,
        usage: bullpen_core::class::Usage::Spot,
        spec_hash: "1:abc".into(),
        count: 1,
        avoid: std::collections::BTreeSet::new(),
        outstanding: 1,
        deadline: world.clock.now().after(Duration::from_secs(60)),
        revision: Revision(0),
    }
}

#[test]
fn a_throttled_write_did_not_land() {
    block_on(async {
        let (ledger, wire, _ground) = ledger().await;
        wire.answer_next(400, &error("ThrottlingException"));
        assert_eq!(ledger.write_lease(None, &lease()).await, Err(Fault::Throttled));
        assert_eq!(wire.calls(), 1, "neither adapter nor SDK retries");
        assert_eq!(ledger.lease(&lease().name).await, Ok(None));
    });
}

#[test]
fn a_write_that_aws_failed_at_is_unknown() {
    block_on(async {
        let (ledger, wire, _ground) = ledger().await;
        for (status, text) in [(500, error("InternalServerError")), (503, "<html/>".to_owned())] {
            wire.answer_next(status, &text);
            assert_eq!(ledger.write_lease(None, &lease()).await, Ok(Written::Unknown), "{text}");
            wire.answer_next(status, &text);
            let read = ledger.lease(&lease().name).await;
            assert!(matches!(read, Err(Fault::Unavailable(_))), "{read:?}");
        }
        assert_eq!(wire.calls(), 4, "neither adapter nor SDK retries");
    });
}

#[test]
fn a_refusal_says_what_to_do() {
    block_on(async {
        let (ledger, wire, _ground) = ledger().await;
        wire.answer_next(400, &error("AccessDeniedException"));
        let Err(Fault::Denied(text)) = ledger.write_lease(None, &lease()).await else {
            panic!("not denied")
        };
        assert_eq!(
            text,
            "AccessDeniedException: as AWS says it (the AWS policy of this role does not allow it)"
        );
    });
}

/// DynamoDB's answer to a transaction that it cancelled for these reasons.
fn cancelled(reasons: &[&str]) -> String {
    let reasons: Vec<_> = reasons.iter().map(|code| format!(r#"{{"Code":"{code}"}}"#)).collect();
    format!(
        r#"{{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
            "Message":"Transaction cancelled","CancellationReasons":[{}]}}"#,
        reasons.join(",")
    )
}

#[test]
fn contended_transactions_are_retried_up_to_a_limit() {
    block_on(async {
        let (ledger, wire, world) = ledger().await;
        let mine = intent(&world);
        wire.answer_next(400, &cancelled(&["None", "TransactionConflict", "None"]));
        assert_eq!(ledger.reserve(&mine, &[]).await, Ok(Written::Won(Reserved::Granted)));
        assert_eq!(wire.calls(), 2);
        let seen = ledger.intent(&mine.id).await.unwrap().unwrap();
        for _ in 0..8 {
            wire.answer_next(400, &cancelled(&["TransactionConflict", "None", "None"]));
        }
        wire.calls();
        assert_eq!(ledger.give_back(&seen).await, Err(Fault::Throttled));
        assert_eq!(wire.calls(), 8);
        wire.answer_next(400, &cancelled(&["None", "ThrottlingError", "None"]));
        assert_eq!(ledger.give_back(&seen).await, Err(Fault::Throttled));
        assert_eq!(wire.calls(), 1, "throttling is not retried");
        assert_eq!(ledger.give_back(&seen).await, Ok(Written::Won(())));
    });
}

/// Assigns three agents in one batch; returns the answers and the number of calls.
async fn three(wire: &Wire, world: &World) -> (Vec<Result<Written<Inbox>, Fault>>, u32) {
    let config = world.account.config(Some(wire.clone())).await;
    let mailbox = DynamoMailbox::new(&config, &world.stack, Arc::clone(&world.clock));
    let order = |key: &str| {
        let assignment = Assignment {
            generation: Generation(1),
            owner: Owner::Pool("linux".into()),
            runner: key.into(),
            label: "warm".to_owned(),
            credential: None,
            register_by: None,
            hard_cap: world.clock.now(),
            issued_at: None,
            own_run: None,
            group: None,
            ephemeral: false,
        };
        (MailboxKey::new(key), Order::Assigned(assignment))
    };
    let answers = mailbox.post_all(&["k-1", "k-2", "k-3"].map(order)).await;
    (answers, wire.calls())
}

#[test]
fn a_batch_that_fails_as_a_whole_is_sent_one_by_one() {
    block_on(async {
        for refused in [
            cancelled(&["None", "TransactionConflict", "None"]),
            cancelled(&["None", "ThrottlingError", "None"]),
            error("ThrottlingException"),
            error("ValidationException"),
        ] {
            let (world, wire) = (World::with_tables().await, Wire::default());
            wire.answer_next(400, &refused);
            let (answers, calls) = three(&wire, &world).await;
            assert!(answers.iter().all(|it| matches!(it, Ok(Written::Won(_)))), "{answers:?}");
            assert_eq!(calls, 4, "{refused}");
        }
    });
}

#[test]
fn a_batch_that_is_overtaken_twice_is_sent_one_by_one() {
    block_on(async {
        let (world, wire) = (World::with_tables().await, Wire::default());
        wire.answer_next(400, &cancelled(&["None", "ConditionalCheckFailed", "None"]));
        wire.answer_next(400, &cancelled(&["ConditionalCheckFailed", "TransactionConflict"]));
        let (answers, calls) = three(&wire, &world).await;
        assert!(matches!(answers[..], [Ok(Written::Lost), Ok(Written::Lost), Ok(Written::Won(_))]));
        assert_eq!(calls, 3);
    });
}

#[test]
fn a_batch_without_an_answer_is_unknown_and_a_denied_one_did_nothing() {
    block_on(async {
        let (world, wire) = (World::with_tables().await, Wire::default());
        wire.answer_next(500, &error("InternalServerError"));
        assert_eq!(three(&wire, &world).await, (vec![Ok(Written::Unknown); 3], 1));
        wire.answer_next(400, &error("AccessDeniedException"));
        let (answers, calls) = three(&wire, &world).await;
        assert!(answers.iter().all(|it| matches!(it, Err(Fault::Denied(_)))), "{answers:?}");
        assert_eq!(calls, 1);
        wire.lose_next_answer();
        assert_eq!(three(&wire, &world).await, (vec![Ok(Written::Unknown); 3], 1));
        assert_eq!(
            three(&wire, &world).await,
            (vec![Ok(Written::Lost); 3], 1),
            "the first batch had landed"
        );
    });
}

#[test]
fn unprocessed_keys_are_requested_again() {
    block_on(async {
        let (world, wire) = (World::with_tables().await, Wire::default());
        let config = world.account.config(Some(wire.clone())).await;
        let mailbox = DynamoMailbox::new(&config, &world.stack, Arc::clone(&world.clock));
        let keys = ["k-1".into(), "k-2".into()];
        let at = world.clock.now();
        for key in &keys {
            let beat = Beat { seq: 1, at, phase: AgentPhase::Waiting, boot: "b".to_owned() };
            mailbox.beat(key, &beat).await.unwrap();
        }
        wire.calls();
        let left_out = |names: &[&str]| {
            let keys: Vec<_> =
                names.iter().map(|name| format!(r#"{{"pk":{{"S":"out#{name}"}}}}"#)).collect();
            let keys = keys.join(",");
            format!(
                r#"{{"Responses":{{}},"UnprocessedKeys":{{"contract-mailbox":{{"Keys":[{keys}]}}}}}}"#
            )
        };
        wire.answer_next(200, &left_out(&["k-2"]));
        let reports = mailbox.reports(&keys).await.unwrap();
        let reports: Vec<_> = reports.into_iter().map(ReportRead::report).collect();
        assert_eq!(reports.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true]);
        assert_eq!(wire.calls(), 2);
        wire.answer_next(200, &left_out(&["k-1", "k-2"]));
        assert_eq!(mailbox.reports(&keys).await, Err(Fault::Throttled), "the answer has no item");
    });
}

#[test]
fn a_lost_answer_to_a_read_is_unavailable() {
    block_on(async {
        let (ledger, wire, _ground) = ledger().await;
        wire.lose_next_answer();
        let Err(Fault::Unavailable(text)) = ledger.read(&InstanceId::new("i-1")).await else {
            panic!("not unavailable")
        };
        assert!(text.contains("the test lost this answer") && text.contains("region"), "{text}");
    });
}

#[test]
fn a_queue_that_was_just_deleted_can_be_created_later() {
    block_on(async {
        let (world, wire) = (World::without_tables().await, Wire::default());
        let config = world.account.config(Some(wire.clone())).await;
        let queues = SqsQueues::new(&config, &world.stack);
        let spec = QueueSpec {
            name: "contract-large".into(),
            kind: QueueKind::Standard,
            visibility: Duration::from_secs(30),
            retention: Duration::from_secs(3_600),
            dead_letters: None,
        };
        wire.answer_next(400, &error("QueueDeletedRecently"));
        let fault = queues.ensure(&spec).await.unwrap_err();
        assert!(fault.is_transient(), "{fault}");
        queues.ensure(&spec).await.unwrap();
        // SQS sent nothing of a refused batch; it may have sent a batch without an answer.
        let message = [Outgoing::now("one".to_owned())];
        wire.answer_next(400, &error("RequestThrottled"));
        assert_eq!(queues.send(&spec.name, &message).await, Err(Fault::Throttled));
        wire.answer_next(500, &error("InternalError"));
        let answers = queues.send(&spec.name, &message).await.unwrap();
        assert!(matches!(answers[..], [Err(Fault::Unavailable(_))]), "{answers:?}");
    });
}
