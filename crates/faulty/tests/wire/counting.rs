//! The proxy counts calls by caller, operation and fault, and its log gives the round trips.
//!
//! Not here: what each fault does (`faults`).

use std::time::Duration;

use crate::support::{Client, Target, call};
use bullpen_faulty::{Fault, Plan, Proxy, longest_chain};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

const PUT: &str = "DynamoDB_20120810.PutItem";
const GET: &str = "DynamoDB_20120810.GetItem";

async fn calm() -> (Target, Proxy) {
    let target = Target::start().await;
    let proxy = Proxy::start(target.address, Plan::calm()).await.expect("a proxy");
    (target, proxy)
}

#[tokio::test]
async fn calls_are_counted_by_caller_operation_and_fault() {
    let (_target, proxy) = calm().await;
    proxy.pass_next("PutItem");
    proxy.fail_next("PutItem", Fault::Throttled);
    proxy.fail_next("GetItem", Fault::SlowAnswer);
    let mut client = Client::connect(proxy.address()).await;
    for (operation, key) in [(PUT, "PLANE"), (PUT, "AGENT"), (PUT, "AGENT"), (GET, "AGENT")] {
        client.call(operation, key, b"{}").await.expect("an answer");
    }
    let counts = proxy.counts();
    let rows: Vec<(&str, &str, u64, u64)> = counts
        .each()
        .map(|(group, operation, tally)| (group, operation, tally.arrived, tally.forwarded))
        .collect();
    assert_eq!(
        rows,
        [("AGENT", "GetItem", 1, 1), ("AGENT", "PutItem", 2, 1), ("PLANE", "PutItem", 1, 1)]
    );
    assert_eq!(counts.operation("PutItem").arrived, 3);
    assert_eq!(counts.operation("PutItem").of(Fault::Throttled), 1);
    assert_eq!(counts.group("PLANE").of(Fault::Throttled), 0);
    assert_eq!(counts.group("AGENT").of(Fault::SlowAnswer), 1);
    let total = counts.total();
    assert_eq!((total.arrived, total.forwarded, total.unanswered), (4, 3, 0));
    assert_eq!(total.faults.values().sum::<u64>(), 2);
    assert_eq!(counts.unlogged(), 0);
    let forwarded: Vec<bool> = counts.log().iter().map(|call| call.forwarded).collect();
    assert_eq!(forwarded, [true, false, true, true]);
}

#[tokio::test]
async fn forms_are_counted_by_action_and_their_fields_are_kept() {
    let (_target, proxy) = calm().await;
    let mut client = Client::connect(proxy.address()).await;
    for number in 0..1_200 {
        let form = format!("Action=StopInstances&InstanceId.1=i-{number}%2B1");
        client.query("ec2", &form).await.expect("an answer");
    }
    client.query("ec2", "Action=StartInstances").await.expect("an answer");
    let counts = proxy.counts();
    assert_eq!(counts.operation("StopInstances").forwarded, 1_200);
    let forms = counts.forms("StopInstances");
    assert_eq!(forms.len(), 999, "the proxy keeps the last thousand forms of all operations");
    assert_eq!(forms[998]["InstanceId.1"], "i-1199+1");
    assert_eq!(counts.forms("StartInstances").len(), 1);
}

#[tokio::test]
async fn calls_one_after_the_other_are_a_chain_and_calls_at_once_are_not() {
    let (_target, proxy) = calm().await;
    let late = Duration::from_millis(500);
    proxy
        .set(Plan::calm().with_on(Fault::SlowAnswer, 1_000, &["GetItem"]).slow_between(late, late));
    let mut client = Client::connect(proxy.address()).await;
    for _ in 0..3 {
        client.call(PUT, "KEY", b"{}").await.expect("an answer");
    }
    assert_eq!(longest_chain(proxy.counts().log()), 3);
    let mut at_once = JoinSet::new();
    for _ in 0..4 {
        at_once.spawn(call_get(proxy.address()));
    }
    assert_eq!(at_once.join_all().await, [200; 4]);
    let counts = proxy.counts();
    assert_eq!(longest_chain(&counts.log()[3..]), 1);
    assert_eq!(longest_chain(counts.log()), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_of_many_callers_at_once_are_what_the_target_saw() {
    let (target, proxy) = calm().await;
    proxy.set(Plan::seeded(3).with(Fault::Throttled, 100).with(Fault::InternalError, 100));
    let mut callers = JoinSet::new();
    for caller in 0..32 {
        let mut client = Client::connect(proxy.address()).await;
        callers.spawn(async move {
            for _ in 0..20 {
                client.call(PUT, &format!("AGENT{caller}"), b"{}").await.expect("an answer");
            }
        });
    }
    callers.join_all().await;
    let total = proxy.counts().total();
    let refused = total.of(Fault::Throttled) + total.of(Fault::InternalError);
    assert_eq!((total.arrived, total.unanswered), (640, 0));
    assert_eq!(total.forwarded, 640 - refused);
    assert_eq!(target.seen().len() as u64, total.forwarded);
    // Each caller has a random stream of its own, so the faults do not depend on the interleaving.
    let second = Proxy::start(target.address, Plan::calm()).await.expect("a proxy");
    second.set(Plan::seeded(3).with(Fault::Throttled, 100).with(Fault::InternalError, 100));
    let mut client = Client::connect(second.address()).await;
    for caller in (0..32).rev() {
        for _ in 0..20 {
            client.call(PUT, &format!("AGENT{caller}"), b"{}").await.expect("an answer");
        }
    }
    assert_eq!(second.counts().total(), total);
}

async fn call_get(address: std::net::SocketAddr) -> u16 {
    call(address, GET, "{}").await.expect("an answer").status
}

#[tokio::test]
async fn a_caller_that_goes_away_ends_its_call() {
    let (target, proxy) = calm().await;
    let late = Duration::from_secs(10);
    proxy.set(Plan::calm().with(Fault::SlowAnswer, 1_000).slow_between(late, late));
    let mut client = Client::connect(proxy.address()).await;
    client.send(PUT, "KEY", b"{}").await.expect("sent");
    while target.seen().is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(proxy.counts().log()[0].end.is_none());
    drop(client);
    while proxy.counts().log()[0].end.is_none() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_call_to_a_missing_target_is_unanswered_and_meets_no_fault() {
    let (target, proxy) = calm().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    drop((listener, proxy, target));
    let proxy = Proxy::start(address, Plan::calm()).await.expect("a proxy");
    let answer = call(proxy.address(), PUT, "{}").await.expect("an answer");
    assert_eq!(answer.status, 502);
    let total = proxy.counts().total();
    assert_eq!((total.forwarded, total.unanswered, total.faults.len()), (1, 1, 0));
}

#[tokio::test]
async fn stopping_ends_connections_and_frees_the_port() {
    let (_target, proxy) = calm().await;
    let address = proxy.address();
    assert_eq!(proxy.url(), format!("http://{address}"));
    let mut client = Client::connect(address).await;
    client.call(PUT, "KEY", b"{}").await.expect("an answer");
    proxy.stop().await;
    client.call(PUT, "KEY", b"{}").await.expect_err("the connection is gone");
    TcpListener::bind(address).await.expect("the port is free");
}
