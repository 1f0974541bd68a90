//! The proxy before real emulators: a write whose answer is lost has landed. The admin API of the
//! test EC2 changes its settings.
//!
//! ministack and moto are tools of the gate. An environment variable asks for DynamoDB Local.
//!
//! Not here: the emulators' other behaviour (the contract suites).

use std::net::SocketAddr;
use std::time::Duration;

use crate::support::Client;
use bullpen_faulty::ec2::{Delays, Options, Refusal, Rule};
use bullpen_faulty::{DynamoDbLocal, Ec2, Fault, Ministack, Plan, Proxy};
use serde_json::{Value, json};

const KEY: &str = "000000000001";

async fn ask(address: SocketAddr, operation: &str, body: Value) -> std::io::Result<Value> {
    let target = format!("DynamoDB_20120810.{operation}");
    let mut client = Client::connect(address).await;
    let answer = client.call(&target, KEY, body.to_string().as_bytes()).await?;
    let body = answer.json();
    assert_eq!(answer.status, 200, "{operation}: {body}");
    Ok(body)
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

/// The status and body of the test EC2's answer.
async fn ec2(address: SocketAddr, form: &str) -> std::io::Result<(u16, String)> {
    let answer = Client::connect(address).await.query("ec2", form).await?;
    Ok((answer.status, String::from_utf8_lossy(&answer.body).into_owned()))
}

/// The text in the first XML element of this name.
fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    rest.split_once('<').map(|(inside, _)| inside)
}

const RUN: &str = "Action=RunInstances&Version=2016-11-15&ImageId=ami-00000000000000864\
                   &InstanceType=m5.large&MinCount=1&MaxCount=1&ClientToken=one";

#[tokio::test]
async fn the_test_ec2_keeps_a_launch_whose_answer_is_lost() {
    let server = Ec2::start(&Options::default()).unwrap_or_else(|error| panic!("{error}"));
    let proxy = Proxy::start(server.address(), Plan::calm()).await.expect("a proxy");
    proxy.fail_next("RunInstances", Fault::AnswerLost);
    ec2(proxy.address(), RUN).await.expect_err("the answer is lost");
    let (status, body) = ec2(proxy.address(), RUN).await.expect("an answer");
    assert_eq!(status, 200, "{body}");
    let all = "Action=DescribeInstances&Version=2016-11-15";
    let (_, all) = ec2(proxy.address(), all).await.expect("an answer");
    assert_eq!(all.matches("<instanceId>").count(), 1, "{all}");
    assert_eq!(server.admin().calls()["RunInstances"], 2);
    assert_eq!(proxy.counts().forms("RunInstances")[1]["ClientToken"], "one");
    proxy.stop().await;
}

#[tokio::test]
async fn the_admin_api_changes_the_test_ec2() {
    let logs = std::env::temp_dir();
    let hook = ["sleep", "600"].map(Into::into).into();
    let options = Options { hook, logs: Some(logs.clone()), ..Options::default() };
    let server = Ec2::start(&options).unwrap_or_else(|error| panic!("{error}"));
    let (admin, address) = (server.admin(), server.address());
    let state = async || {
        let (_, body) =
            ec2(address, "Action=DescribeInstances&Version=2016-11-15").await.expect("an answer");
        element(&body, "name").map(str::to_owned)
    };
    let minute = Duration::from_secs(60);
    admin.set_delays(Delays { visible: minute, running: 2 * minute, ..Delays::default() });
    let (_, body) = ec2(address, RUN).await.expect("an answer");
    let id = element(&body, "instanceId").unwrap_or_else(|| panic!("{body}")).to_owned();
    assert_eq!(state().await, None, "the launch is not visible yet");
    admin.advance(minute);
    assert_eq!(state().await.as_deref(), Some("pending"));
    admin.advance(minute);
    assert_eq!(state().await.as_deref(), Some("running"));
    assert_eq!(admin.processes().keys().collect::<Vec<_>>(), [&id], "the hook runs");
    admin.interrupt(&id, minute);
    admin.set_delays(Delays::default());
    admin.advance(minute);
    assert_eq!(state().await.as_deref(), Some("terminated"));
    std::fs::remove_file(logs.join(format!("{id}.log"))).expect("the hook's output");

    let another = RUN.replace("=one", "=two");
    admin.set_quotas(Some(0), None);
    let (_, body) = ec2(address, &another).await.expect("an answer");
    assert_eq!(element(&body, "Code"), Some("VcpuLimitExceeded"));
    admin.set_quotas(None, None);
    admin.set_capacity(&[Rule { instance_type: "m5.*", ..Rule::of_all(0) }]);
    let (status, body) = ec2(address, &another).await.expect("an answer");
    assert_eq!((status, element(&body, "Code")), (500, Some("InsufficientInstanceCapacity")));
    admin.set_capacity(&[]);
    admin.refuse(Refusal::throttled("RunInstances"));
    assert_eq!(admin.refusals_left(), 1);
    let (status, body) = ec2(address, &another).await.expect("an answer");
    assert_eq!((status, element(&body, "Code")), (503, Some("RequestLimitExceeded")));
    admin.refuse(Refusal::carried_out("RunInstances"));
    assert_eq!(ec2(address, &another).await.expect("an answer").0, 500);
    admin.set_hook(&["true".as_ref()]);
    admin.reset();
    assert_eq!((admin.refusals_left(), admin.calls().len()), (0, 0));
    assert_eq!(state().await, None);
}

#[tokio::test]
#[should_panic(expected = "the clock is the real one")]
async fn an_impossible_request_to_the_admin_api_panics() {
    let options = Options { real_clock: true, ..Options::default() };
    let server = Ec2::start(&options).unwrap_or_else(|error| panic!("{error}"));
    server.admin().advance(Duration::from_secs(1));
}
