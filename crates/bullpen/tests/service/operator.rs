//! An operator's commands about standby pools, beside a service and without one.
//! Not here: how the service keeps pools (`tests/pools`).

use serde_json::{Value, json};

use crate::process::Ran;
use crate::waiting::until;
use crate::world::{HASTY, World};

/// A pool with one hot machine, a pool with a target of zero, and a broken pool.
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

async fn world() -> World {
    let hasty: Vec<(&str, &str)> = HASTY.iter().copied().chain([("converge", "2s")]).collect();
    World::configured(POOLS, &hasty).await
}

/// The output about one pool.
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
    let world = world().await;
    world.run("pools plan").await.exits(1);
    world.run("refresh").await.exits(0);
    for _ in 0..2 {
        let planned = world.run("pools plan ci --json").await;
        let told: Value = serde_json::from_str(&planned.exits(10).data).expect("JSON");
        let create =
            json!({"action": "create", "of": {"usage": "on-demand", "hot": 1, "stopped": 0}});
        assert_eq!(told[0]["actions"], json!([create]));
    }
    says(
        world.run("pools plan").await.exits(10),
        &["launch 1 on-demand", "pool odd is left alone"],
    );
    says(world.run("pools plan none").await.exits(0), &["none  nothing to do"]);
    says(world.run("pools plan cj").await.exits(64), &["there is no pool \"cj\"", "ci, none, odd"]);
    assert_eq!(world.status().await["instances"], json!([]));
    let shown = world.run("pools").await;
    says(
        shown.exits(0),
        &["ci  kept\n  target    1 hot, 0 stopped (entry \"always\")\n", "odd  left-alone\n"],
    );
}

#[tokio::test]
async fn orders_hold_and_need_no_good_configuration() {
    let mut world = world().await;
    world.run("refresh").await.exits(0);
    says(world.run("pools pause cii").await.exits(64), &["did you mean \"ci\"?"]);
    says(world.run("pools pause ci").await.exits(0), &["pool ci is paused", "within 3.0 s"]);
    says(world.run("pools plan ci").await.exits(0), &["paused by an operator"]);
    world.configure("pools: 7");
    world.run("pools").await.exits(64);
    says(world.run("pools pause ci").await.exits(0), &["was already paused"]);
    world.run("pools pause none").await.exits(64);
    world.environment.remove("INPUT_CONFIG");
    let told = world.run("pools --json").await.json();
    assert_eq!(told["configuration"], Value::Null);
    assert_eq!(pool(&told, "ci")["mode"], "paused");
    says(world.run("pools plan").await.exits(64), &["nothing to plan by"]);
    says(world.run("pools resume ci").await.exits(0), &["kept again"]);
    let told = world.run("pools resume ci --json").await.json();
    assert_eq!((&told["already"], &told["order"]), (&json!(true), &Value::Null));
}

#[tokio::test]
async fn the_organisations_own_configuration_is_asked_for() {
    let mut world = world().await;
    world.run("refresh").await.exits(0);
    world.environment.remove("INPUT_CONFIG");
    world.environment.insert("GITHUB_REPOSITORY".to_owned(), "acme".to_owned());
    let (repository, path) = ("acme/.github-private", ".github/runs-on.yml");
    assert_eq!(world.run("pools --json").await.json()["pools"], json!([]), "there is none");
    world.github.put_file(repository, path, POOLS);
    let told = world.run("pools --json").await.json();
    assert_eq!(told["configuration"], format!("{repository}/{path}"));
    assert_eq!(pool(&told, "ci")["target"], json!({"entry": "always", "hot": 1, "stopped": 0}));
    world.github.put_file(repository, path, "pools: 7");
    says(world.run("pools").await.exits(64), &["acme/.github-private/.github/runs-on.yml:1:"]);
}

#[tokio::test]
async fn a_drained_pool_lets_its_job_finish() {
    let world = world().await;
    let served = world.serve().await;
    let has = async |kind: &str| {
        let told = world.run("pools --json").await.json();
        pool(&told, "ci")["machines"][kind].as_u64().expect("a number")
    };
    until("hot machine", async || (has("hot").await == 1).then_some(())).await;
    world.run("pools plan").await.exits(0);
    let job = world.job("bullpen/pool=ci", &world.gated("go"));
    world.started(job).await;
    until("another in its place", async || (has("hot").await == 1).then_some(())).await;
    let told = world.run("pools drain ci --json").await.json();
    assert_eq!((&told["in_use"], &told["already"]), (&json!(1), &json!(false)), "{told}");
    // The journal records an action after it was taken.
    let ci = until("drained pool", async || {
        let ci = pool(&world.run("pools --json").await.json(), "ci");
        (ci["machines"]["hot"] == 0 && ci["deeds"][0]["act"] == "terminate").then_some(ci)
    })
    .await;
    assert_eq!((&ci["mode"], &ci["machines"]["detached"]), (&json!("draining"), &json!(1)), "{ci}");
    world.open("go");
    world.over(job).await;
    world.settled(job).await;
    until("empty pool", async || (has("detached").await == 0).then_some(())).await;
    drop(served);
}

/// Facts that only GitHub knows: the App's permissions, and the newest runner.
#[tokio::test]
async fn doctor_asks_github_what_the_app_may_do_and_how_old_the_runner_is() {
    let world = world().await;
    world.run("refresh").await.exits(0);
    let told = world.run("doctor --json").await.json();
    let check = |name: &str| {
        let checks = told["checks"].as_array().expect("a list");
        checks.iter().find(|check| check["check"] == name).cloned().unwrap_or(Value::Null)
    };
    assert_eq!(check("App permissions")["verdict"], "ok", "{told}");
    let age = check("runner age")["what"].to_string();
    assert!(age.contains("GitHub offers 2.999.0"), "{age}");
    world.run("refresh --actions-runner-version 2.325.0").await.exits(0);
    let told = world.run("doctor").await.exits(0).data.clone();
    let line = told.lines().find(|line| line.contains("runner age")).expect("a line");
    assert!(
        line.starts_with("warning") && line.contains("2.325.0; GitHub offers 2.999.0"),
        "{line}"
    );
}
