//! Answers that no emulator gives: throttling, refusals, failures, writes that meet, batches that are
//! answered in part. They are given at the wire, in AWS's own form.

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

use crate::emulator::real;
use crate::{Ground, Wire};

async fn ledger() -> (DynamoLedger<ManualClock>, Wire, Ground) {
    let (ground, wire) = (Ground::with_tables().await, Wire::default());
    let config = ground.account.config(Some(wire.clone())).await;
    (DynamoLedger::new(&config, &ground.stack, Arc::clone(&ground.clock)), wire, ground)
}

/// An error as DynamoDB and SQS give it.
fn error(code: &str) -> String {
    format!(r#"{{"__type":"com.amazonaws.any#{code}","message":"as AWS says it"}}"#)
}

fn lease() -> Lease {
    Lease::first(LeaseName::new("pool/linux"), "holder".into())
}

fn intent(ground: &Ground) -> Intent {
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
        deadline: ground.clock.now().after(Duration::from_secs(60)),
        revision: Revision(0),
    }
}

#[test]
fn a_throttled_write_did_not_land() {
    real(async {
        let (ledger, wire, _ground) = ledger().await;
        wire.answer_next(400, &error("ThrottlingException"));
        assert_eq!(ledger.write_lease(None, &lease()).await, Err(Fault::Throttled));
        assert_eq!(wire.calls(), 1, "the engine tries again, and nobody else");
        assert_eq!(ledger.lease(&lease().name).await, Ok(None));
    });
}

#[test]
fn a_write_that_the_service_failed_at_is_unknown() {
    real(async {
        let (ledger, wire, _ground) = ledger().await;
        for (status, said) in [(500, error("InternalServerError")), (503, "<html/>".to_owned())] {
            wire.answer_next(status, &said);
            assert_eq!(ledger.write_lease(None, &lease()).await, Ok(Written::Unknown), "{said}");
            wire.answer_next(status, &said);
            let read = ledger.lease(&lease().name).await;
            assert!(matches!(read, Err(Fault::Unavailable(_))), "{read:?}");
        }
        assert_eq!(wire.calls(), 4, "nothing was tried again");
    });
}

#[test]
fn a_refusal_says_what_to_do() {
    real(async {
        let (ledger, wire, _ground) = ledger().await;
        wire.answer_next(400, &error("AccessDeniedException"));
        let Err(Fault::Denied(said)) = ledger.write_lease(None, &lease()).await else {
            panic!("not denied")
        };
        assert_eq!(
            said,
            "AccessDeniedException: as AWS says it (the AWS policy of this role does not allow it)"
        );
    });
}

/// A transaction that was cancelled for these reasons.
fn cancelled(reasons: &[&str]) -> String {
    let reasons: Vec<_> = reasons.iter().map(|code| format!(r#"{{"Code":"{code}"}}"#)).collect();
    format!(
        r#"{{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
            "Message":"Transaction cancelled","CancellationReasons":[{}]}}"#,
        reasons.join(",")
    )
}

#[test]
fn transactions_that_meet_are_tried_again_and_not_for_ever() {
    real(async {
        let (ledger, wire, ground) = ledger().await;
        let mine = intent(&ground);
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
        assert_eq!(wire.calls(), 1, "throttling is not a meeting");
        assert_eq!(ledger.give_back(&seen).await, Ok(Written::Won(())));
    });
}

/// Three agents that are assigned together, and how many calls that took.
async fn three(wire: &Wire, ground: &Ground) -> (Vec<Result<Written<Inbox>, Fault>>, u32) {
    let config = ground.account.config(Some(wire.clone())).await;
    let mailbox = DynamoMailbox::new(&config, &ground.stack, Arc::clone(&ground.clock));
    let order = |key: &str| {
        let assignment = Assignment {
            generation: Generation(1),
            owner: Owner::Pool("linux".into()),
            runner: key.into(),
            label: "warm".to_owned(),
            credential: None,
            register_by: None,
            hard_cap: ground.clock.now(),
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
fn a_batch_that_does_not_go_together_goes_one_by_one() {
    real(async {
        for refused in [
            cancelled(&["None", "TransactionConflict", "None"]),
            cancelled(&["None", "ThrottlingError", "None"]),
            error("ThrottlingException"),
            error("ValidationException"),
        ] {
            let (ground, wire) = (Ground::with_tables().await, Wire::default());
            wire.answer_next(400, &refused);
            let (answers, calls) = three(&wire, &ground).await;
            assert!(answers.iter().all(|it| matches!(it, Ok(Written::Won(_)))), "{answers:?}");
            assert_eq!(calls, 4, "{refused}");
        }
    });
}

#[test]
fn a_batch_that_is_overtaken_twice_goes_one_by_one() {
    real(async {
        let (ground, wire) = (Ground::with_tables().await, Wire::default());
        wire.answer_next(400, &cancelled(&["None", "ConditionalCheckFailed", "None"]));
        wire.answer_next(400, &cancelled(&["ConditionalCheckFailed", "TransactionConflict"]));
        let (answers, calls) = three(&wire, &ground).await;
        assert!(matches!(answers[..], [Ok(Written::Lost), Ok(Written::Lost), Ok(Written::Won(_))]));
        assert_eq!(calls, 3);
    });
}

#[test]
fn a_batch_without_an_answer_is_unknown_and_a_denied_one_did_nothing() {
    real(async {
        let (ground, wire) = (Ground::with_tables().await, Wire::default());
        wire.answer_next(500, &error("InternalServerError"));
        assert_eq!(three(&wire, &ground).await, (vec![Ok(Written::Unknown); 3], 1));
        wire.answer_next(400, &error("AccessDeniedException"));
        let (answers, calls) = three(&wire, &ground).await;
        assert!(answers.iter().all(|it| matches!(it, Err(Fault::Denied(_)))), "{answers:?}");
        assert_eq!(calls, 1);
        wire.lose_next_answer();
        assert_eq!(three(&wire, &ground).await, (vec![Ok(Written::Unknown); 3], 1));
        assert_eq!(three(&wire, &ground).await, (vec![Ok(Written::Lost); 3], 1), "it had landed");
    });
}

#[test]
fn what_a_batch_leaves_out_is_asked_for_again() {
    real(async {
        let (ground, wire) = (Ground::with_tables().await, Wire::default());
        let config = ground.account.config(Some(wire.clone())).await;
        let mailbox = DynamoMailbox::new(&config, &ground.stack, Arc::clone(&ground.clock));
        let keys = ["k-1".into(), "k-2".into()];
        let at = ground.clock.now();
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
        assert_eq!(mailbox.reports(&keys).await, Err(Fault::Throttled), "nothing came at all");
    });
}

#[test]
fn nobody_answers_is_unavailable() {
    real(async {
        let (ledger, wire, _ground) = ledger().await;
        wire.lose_next_answer();
        let Err(Fault::Unavailable(said)) = ledger.read(&InstanceId::new("i-1")).await else {
            panic!("not unavailable")
        };
        assert!(said.contains("the test lost this answer") && said.contains("region"), "{said}");
    });
}

#[test]
fn a_queue_that_was_just_deleted_may_be_made_later() {
    real(async {
        let (ground, wire) = (Ground::without_tables().await, Wire::default());
        let config = ground.account.config(Some(wire.clone())).await;
        let queues = SqsQueues::new(&config, &ground.stack);
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
        // A whole batch that is refused was not sent; one without an answer may have been.
        let message = [Outgoing::now("one".to_owned())];
        wire.answer_next(400, &error("RequestThrottled"));
        assert_eq!(queues.send(&spec.name, &message).await, Err(Fault::Throttled));
        wire.answer_next(500, &error("InternalError"));
        let answers = queues.send(&spec.name, &message).await.unwrap();
        assert!(matches!(answers[..], [Err(Fault::Unavailable(_))]), "{answers:?}");
    });
}
