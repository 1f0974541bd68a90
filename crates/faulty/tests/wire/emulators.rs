//! The proxy before real emulators: a write whose answer is lost is there all the same.
//!
//! ministack is a tool of the gate. DynamoDB Local is asked for by a variable.
//!
//! Not here: what else emulators do right or wrong (the contract suites).

use std::net::SocketAddr;

use crate::support::Client;
use bullpen_faulty::{DynamoDbLocal, Fault, Ministack, Plan, Proxy};
use serde_json::{Value, json};

const KEY: &str = "000000000001";

async fn ask(address: SocketAddr, operation: &str, body: Value) -> std::io::Result<Value> {
    let target = format!("DynamoDB_20120810.{operation}");
    let mut client = Client::connect(address).await;
    let answer = client.call(&target, KEY, body.to_string().as_bytes()).await?;
    let said = answer.json();
    assert_eq!(answer.status, 200, "{operation}: {said}");
    Ok(said)
}

async fn a_write_whose_answer_is_lost_has_landed(emulator: SocketAddr) {
    let proxy = Proxy::start(emulator, Plan::calm()).await.expect("a proxy");
    let address = proxy.address();
    let table = json!({
        "TableName": "state",
        "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
        "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
        "BillingMode": "PAY_PER_REQUEST",
    });
    ask(address, "CreateTable", table).await.expect("a table");
    let item = json!({"pk": {"S": "one"}, "owner": {"S": "me"}});
    proxy.fail_next("PutItem", Fault::AnswerLost);
    let put = json!({"TableName": "state", "Item": item});
    ask(address, "PutItem", put).await.expect_err("the answer is lost");
    let get = json!({"TableName": "state", "Key": {"pk": {"S": "one"}}, "ConsistentRead": true});
    let got = ask(address, "GetItem", get).await.expect("an answer");
    assert_eq!(got["Item"], item);
    assert_eq!(proxy.counts().group(KEY).of(Fault::AnswerLost), 1);
    assert_eq!(proxy.counts().total().unanswered, 0);
    proxy.stop().await;
}

#[tokio::test]
async fn ministack_keeps_a_write_whose_answer_is_lost() {
    let ministack = Ministack::start().unwrap_or_else(|error| panic!("{error}"));
    a_write_whose_answer_is_lost_has_landed(ministack.address()).await;
}

#[tokio::test]
async fn dynamodb_local_keeps_a_write_whose_answer_is_lost() {
    let wanted = DynamoDbLocal::start_if_wanted().unwrap_or_else(|error| panic!("{error}"));
    let Some(local) = wanted else { return };
    a_write_whose_answer_is_lost_has_landed(local.address()).await;
}
