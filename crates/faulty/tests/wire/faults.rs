//! The effect of each fault on the caller and on the target.
//!
//! Not here: how the proxy counts calls (`counting`).

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use crate::support::{Client, Target, call};
use bullpen_faulty::{Fault, Plan, Proxy};
use serde_json::Value;

const PUT: &str = "DynamoDB_20120810.PutItem";
const SEND: &str = "AmazonSQS.SendMessage";
const TRANSACT: &str = "DynamoDB_20120810.TransactWriteItems";

async fn calm() -> (Target, Proxy) {
    let target = Target::start().await;
    let proxy = Proxy::start(target.address, Plan::calm()).await.expect("a proxy");
    (target, proxy)
}

#[tokio::test]
async fn without_faults_everything_passes_untouched_on_one_connection() {
    let (target, proxy) = calm().await;
    let mut client = Client::connect(proxy.address()).await;
    let large = vec![b'x'; 3 * 1024 * 1024];
    for body in [&b"{}"[..], &large, b""] {
        let answer = client.call(PUT, "KEY", body).await.expect("an answer");
        assert_eq!((answer.status, answer.body.as_slice()), (200, body));
        assert_eq!(answer.headers["x-target"], "yes");
    }
    let seen = target.seen();
    assert_eq!(seen.len(), 3);
    assert_eq!(seen[0].path, "/path?query=1");
    assert_eq!(seen[0].headers["host"], "signed.example");
    assert_eq!(seen[0].headers["x-amz-target"], PUT);
    assert!(seen[0].headers["authorization"].to_str().unwrap().contains("Credential=KEY/"));
    assert_eq!(seen[1].body, large);
}

#[tokio::test]
async fn refusals_have_the_services_own_shape_and_never_reach_the_target() {
    let (target, proxy) = calm().await;
    let cases = [
        (PUT, Fault::Throttled, 400, "com.amazon.coral.availability#ThrottlingException"),
        (
            PUT,
            Fault::ThroughputExceeded,
            400,
            "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException",
        ),
        (PUT, Fault::InternalError, 500, "com.amazonaws.dynamodb.v20120810#InternalServerError"),
        (PUT, Fault::Unavailable, 503, "com.amazon.coral.availability#ServiceUnavailable"),
        (
            PUT,
            Fault::Conflict,
            400,
            "com.amazonaws.dynamodb.v20120810#TransactionConflictException",
        ),
        (SEND, Fault::Throttled, 403, "com.amazonaws.sqs#RequestThrottled"),
        (SEND, Fault::ThroughputExceeded, 400, "com.amazon.coral.availability#ThrottlingException"),
        (SEND, Fault::InternalError, 500, "com.amazon.coral.service#InternalFailure"),
        (SEND, Fault::Unavailable, 503, "com.amazon.coral.availability#ServiceUnavailable"),
    ];
    // All on one connection: a refusal does not close it.
    let mut client = Client::connect(proxy.address()).await;
    for (operation, fault, status, kind) in cases {
        proxy.fail_next(operation.rsplit('.').next().unwrap(), fault);
        let answer = client.call(operation, "KEY", b"{}").await.expect("an answer");
        assert_eq!(answer.status, status, "{operation} {fault:?}");
        assert_eq!(answer.json()["__type"], kind);
        assert_eq!(answer.headers["content-type"], "application/x-amz-json-1.0");
        assert_eq!(answer.headers.contains_key("x-amzn-query-error"), operation == SEND);
    }
    assert_eq!(proxy.levers_left(), 0);
    assert!(target.seen().is_empty());
}

#[tokio::test]
async fn refusals_of_forms_are_in_xml_and_name_their_code() {
    let (target, proxy) = calm().await;
    let cases = [
        ("ec2", Fault::Throttled, 503, "<Response><Errors><Error><Code>RequestLimitExceeded<"),
        ("ec2", Fault::InternalError, 500, "<Response><Errors><Error><Code>InternalError<"),
        ("ec2", Fault::Unavailable, 503, "<Response><Errors><Error><Code>Unavailable<"),
        ("sts", Fault::Throttled, 400, "<Error><Type>Sender</Type><Code>Throttling<"),
    ];
    let mut client = Client::connect(proxy.address()).await;
    for (service, fault, status, begin) in cases {
        proxy.fail_next("StopInstances", fault);
        let form = "Action=StopInstances&InstanceId.1=i-1";
        let answer = client.query(service, form).await.expect("an answer");
        assert_eq!(answer.status, status, "{service} {fault:?}");
        assert!(String::from_utf8_lossy(&answer.body).contains(begin), "{service} {answer:?}");
        assert_eq!(answer.headers["content-type"], "text/xml;charset=UTF-8");
    }
    assert_eq!(proxy.levers_left(), 0);
    assert!(target.seen().is_empty());
}

#[tokio::test]
async fn a_cancelled_transaction_has_a_conflict_among_its_reasons() {
    let (target, proxy) = calm().await;
    proxy.fail_next("TransactWriteItems", Fault::Conflict);
    let body = r#"{"TransactItems":[{"Put":{}},{"Update":{}}]}"#;
    let answer = call(proxy.address(), TRANSACT, body).await.expect("an answer").json();
    let kind = "com.amazonaws.dynamodb.v20120810#TransactionCanceledException";
    assert_eq!(answer["__type"], kind);
    let reasons = answer["CancellationReasons"].as_array().expect("reasons");
    let mut codes: Vec<&str> = reasons.iter().filter_map(|it| it["Code"].as_str()).collect();
    codes.sort_unstable();
    assert_eq!(codes, ["None", "TransactionConflict"]);
    assert!(target.seen().is_empty());
}

#[tokio::test]
async fn a_reset_before_never_reaches_the_target() {
    let (target, proxy) = calm().await;
    proxy.fail_next("PutItem", Fault::ResetBefore);
    let error = call(proxy.address(), PUT, "{}").await.expect_err("no answer");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert!(target.seen().is_empty());
}

#[tokio::test]
async fn a_call_whose_answer_is_lost_has_landed() {
    let (target, proxy) = calm().await;
    proxy.fail_next("PutItem", Fault::AnswerLost);
    let error = call(proxy.address(), PUT, r#"{"n":1}"#).await.expect_err("no answer");
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    proxy.fail_next("PutItem", Fault::AnswerReset);
    let error = call(proxy.address(), PUT, r#"{"n":2}"#).await.expect_err("no answer");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let landed: Vec<Value> =
        target.seen().iter().map(|seen| serde_json::from_slice(&seen.body).unwrap()).collect();
    assert_eq!(landed, [serde_json::json!({"n": 1}), serde_json::json!({"n": 2})]);
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "a slow answer is slow in real time")]
async fn a_slow_answer_is_late_and_right() {
    let (target, proxy) = calm().await;
    let late = Duration::from_millis(120);
    proxy.set(Plan::calm().with(Fault::SlowAnswer, 1_000).slow_between(late, late));
    let begin = Instant::now();
    let answer = call(proxy.address(), PUT, "{}").await.expect("an answer");
    assert!(begin.elapsed() >= late);
    assert_eq!((answer.status, target.seen().len()), (200, 1));
}

#[tokio::test]
async fn one_seed_is_one_sequence_of_faults() {
    let plan = |seed| {
        let plan = Plan::seeded(seed).with(Fault::Throttled, 200).with(Fault::Unavailable, 200);
        plan.with_on(Fault::InternalError, 600, &["GetItem"])
    };
    let target = Target::start().await;
    let mut sequences = Vec::new();
    for seed in [1, 1, 2] {
        let proxy = Proxy::start(target.address, plan(seed)).await.expect("a proxy");
        let mut client = Client::connect(proxy.address()).await;
        let mut statuses = Vec::new();
        for _ in 0..100 {
            statuses.push(client.call(PUT, "KEY", b"{}").await.expect("an answer").status);
        }
        sequences.push(statuses);
        proxy.stop().await;
    }
    assert_eq!(sequences[0], sequences[1]);
    assert_ne!(sequences[0], sequences[2]);
    for status in [200, 400, 503] {
        assert!(sequences[0].contains(&status), "{status}");
    }
    assert!(!sequences[0].contains(&500), "the plan has 500 only for another operation");
}

#[tokio::test]
#[should_panic(expected = "no transaction conflicts with SendMessage")]
async fn a_fault_that_an_operation_cannot_meet_panics() {
    let (_target, proxy) = calm().await;
    proxy.fail_next("SendMessage", Fault::Conflict);
}
