//! An operator's commands about standby pools, beside a service and without one.
//!
//! Not here: how pools are kept (`tests/pools`).

use std::fs;

use serde_json::{Value, json};

use crate::process::Ran;
use crate::stage::{HASTY, Stage};
use crate::waiting::until;

/// A pool that keeps one machine hot, one that keeps nothing, and one that is broken.
const POOLS: &str = "\
runners:
  small: {cpu: 2, ram: 4, family: c6i}
pools:
  ci:
    runner: small
    schedule: [{name: always, hot: 1, stopped: 0}]
  none:
    runner: small
    schedule: [{name: always, hot: 0, stopped: 0}]
  odd:
    runner: smal
    schedule: [{name: always, hot: 1, stopped: 0}]
";

async fn stage(text: &str) -> Stage {
    let hasty: Vec<(&str, &str)> = HASTY.iter().copied().chain([("converge", "2s")]).collect();
    let stage = Stage::with(&hasty).await;
    configure(&stage, text);
    stage
}

fn configure(stage: &Stage, text: &str) {
    fs::write(stage.path("runs-on.yml"), text).expect("it can be written");
}

/// What is said of one pool.
fn pool(told: &Value, name: &str) -> Value {
    let pools = told["pools"].as_array().expect("a list");
    pools.iter().find(|pool| pool["pool"] == name).cloned().unwrap_or(Value::Null)
}

#[track_caller]
fn says(ran: &Ran, words: &[&str]) {
    for words in words {
        assert!(ran.data.contains(words) || ran.talk.contains(words), "{words}: {ran:#?}");
    }
    assert!(ran.data.lines().all(|line| line.chars().count() <= 80), "{ran:#?}");
}

#[tokio::test]
async fn plans_change_nothing_and_say_by_their_exit_whether_there_is_anything_to_do() {
    let stage = stage(POOLS).await;
    stage.run("pools plan").await.exits(1);
    stage.run("refresh").await.exits(0);
    for _ in 0..2 {
        let planned = stage.run("pools plan ci --json").await;
        let told: Value = serde_json::from_str(&planned.exits(10).data).expect("JSON");
        let create =
            json!({"action": "create", "of": {"usage": "on-demand", "hot": 1, "stopped": 0}});
        assert_eq!(told[0]["actions"], json!([create]));
    }
    says(
        stage.run("pools plan").await.exits(10),
        &["launch 1 on-demand", "pool odd is left alone"],
    );
    says(stage.run("pools plan none").await.exits(0), &["none  nothing to do"]);
    says(stage.run("pools plan cj").await.exits(64), &["there is no pool \"cj\"", "ci, none, odd"]);
    assert_eq!(stage.status().await["instances"], json!([]));
    let shown = stage.run("pools").await;
    says(
        shown.exits(0),
        &["ci  kept\n  target    1 hot, 0 stopped (entry \"always\")\n", "odd  left-alone\n"],
    );
}

#[tokio::test]
async fn orders_hold_and_need_no_good_configuration() {
    let mut stage = stage(POOLS).await;
    stage.run("refresh").await.exits(0);
    says(stage.run("pools pause cii").await.exits(64), &["did you mean \"ci\"?"]);
    says(stage.run("pools pause ci").await.exits(0), &["pool ci is paused", "within 3.0 s"]);
    says(stage.run("pools plan ci").await.exits(0), &["paused by an operator"]);
    configure(&stage, "pools: 7");
    stage.run("pools").await.exits(64);
    says(stage.run("pools pause ci").await.exits(0), &["was already paused"]);
    stage.run("pools pause none").await.exits(64);
    stage.environment.remove("INPUT_CONFIG");
    let told = stage.run("pools --json").await.json();
    assert_eq!(told["configuration"], Value::Null);
    assert_eq!(pool(&told, "ci")["mode"], "paused");
    says(stage.run("pools plan").await.exits(64), &["nothing to plan by"]);
    says(stage.run("pools resume ci").await.exits(0), &["kept again"]);
    let told = stage.run("pools resume ci --json").await.json();
    assert_eq!((&told["already"], &told["order"]), (&json!(true), &Value::Null));
}

#[tokio::test]
async fn a_drained_pool_lets_its_job_finish() {
    let stage = stage(POOLS).await;
    let served = stage.serve().await;
    let has = async |kind: &str| {
        let told = stage.run("pools --json").await.json();
        pool(&told, "ci")["machines"][kind].as_u64().expect("a number")
    };
    until("hot machine", async || (has("hot").await == 1).then_some(())).await;
    stage.run("pools plan").await.exits(0);
    let job = stage.job("bullpen/pool=ci", &stage.gated("go"));
    stage.started(job).await;
    until("another in its place", async || (has("hot").await == 1).then_some(())).await;
    let told = stage.run("pools drain ci --json").await.json();
    assert_eq!((&told["in_use"], &told["already"]), (&json!(1), &json!(false)), "{told}");
    until("drained pool", async || (has("hot").await == 0).then_some(())).await;
    let told = stage.run("pools --json").await.json();
    let ci = pool(&told, "ci");
    assert_eq!((&ci["mode"], &ci["machines"]["detached"]), (&json!("draining"), &json!(1)), "{ci}");
    assert_eq!(ci["deeds"][0]["act"], "terminate", "{ci}");
    stage.open("go");
    stage.over(job).await;
    stage.settled(job).await;
    until("empty pool", async || (has("detached").await == 0).then_some(())).await;
    drop(served);
}
