//! The pool's queue is a hint and the ledger the truth; a run owns what its requests own.
//!
//! Not here: many requests at once (`many_requests`).

use std::fs;

use bullpen_github::stand_in::protocol::{Conclusion, JobOrder};
use rusqlite::Connection;
use serde_json::Value;

use crate::waiting::until;
use crate::world::World;

/// D1, D3, D7, D8, D11, D12, D15: messages that are lost, garbled, doubled, of another class,
/// expired or of an old generation cost time and no machine.
#[tokio::test]
async fn every_idle_machine_is_found_in_spite_of_damaged_messages() {
    let world = World::new().await;
    let warm = world.provision(3, "warm").await;
    world.release("warm").await;
    let columns = "queue, body, fifo_group, blocked, visible_at, expires_at, receives, in_flight";
    let copy = |body: &str| {
        let copied = columns.replace("body", body);
        format!("INSERT INTO messages ({columns}) SELECT {copied} FROM messages LIMIT 1")
    };
    let damages = [
        "DELETE FROM messages".to_owned(),
        "UPDATE messages SET body = 'nonsense'".to_owned(),
        copy("body"),
        copy("json_set(body, '$.resourceClass', 'xlarge')"),
        copy("json_set(body, '$.generation', 1)"),
        "UPDATE messages SET body = json_set(body, '$.generation', 1)".to_owned(),
        "UPDATE messages SET body = json_set(body, '$.threshold', '2000-01-01T00:00:00Z')"
            .to_owned(),
    ];
    for (number, damage) in damages.iter().enumerate() {
        let db = Connection::open(world.state().join("ledger.db")).expect("it is there");
        let rows = db.execute(damage, []).expect("it is a database of ours");
        assert!(rows > 0, "{damage} did nothing");
        let name = format!("after{number}");
        let all = world.provision(3, &name).await;
        assert_eq!((all.counts(), all.ids()), ((3, 0), warm.ids()), "{damage}");
        world.release(&name).await;
    }
    world.verify().await;
}

/// D31, D32: two requests of one run have machines of their own; a released request can be made
/// again.
#[tokio::test]
async fn a_release_takes_its_own_requests_machines_and_no_others() {
    let world = World::new().await;
    let (one, two) = (world.provision(1, "one").await, world.provision(1, "two").await);
    assert_ne!((one.label(), one.ids()), (two.label(), two.ids()));
    world.release("one").await;
    let states = world.states().await;
    assert_eq!((states[&one.id()].as_str(), states[&two.id()].as_str()), ("idle", "running"));
    world.runs_job(two.label(), "true").await;
    let again = world.provision(1, "one").await;
    assert_eq!((again.counts(), again.ids()), ((1, 0), one.ids()));
    assert_ne!(again.label(), one.label(), "a label dies with its incarnation");
    world.runs_job(again.label(), "true").await;
    let all = world.bullpen("release --json").run().await.json();
    assert_eq!(all["returned"].as_array().map(Vec::len), Some(2), "{all}");
    let twice = world.bullpen("release --json").run().await.json();
    assert_eq!(twice["returned"], Value::Array(Vec::new()), "{twice}");
}

/// D28: a run that ended without a release is released by the next refresh.
#[tokio::test]
async fn what_a_run_that_is_over_still_holds_is_released_by_refresh() {
    let world = World::new().await;
    let provision = world.bullpen("provision --count 2 --request 77.1.build --json").run().await;
    let label = provision.json()["label"].as_str().expect("a label").to_owned();
    let order = JobOrder {
        repository: String::from("acme/app"),
        labels: vec![label],
        run_id: Some(77),
        ..JobOrder::default()
    };
    let job = world.github.submit(order).id;
    world.github.over(job).await;
    let idle = world.settles().await;
    assert_eq!(idle.len(), 2);
    world.reuses(&idle).await;
}

/// D35: a job that takes longer than its request's limit may finish.
#[tokio::test]
async fn a_job_extends_the_time_of_its_machine() {
    let world = World::with(&[("max-runtime-workflow", "2s"), ("clock-skew", "1s")]).await;
    let one = world.provision(1, "one").await;
    let go = world.path("go");
    let script = format!("while [ ! -e {} ]; do sleep 0.05; done", go.display());
    let job = world.job(one.label(), &script);
    let deadline = async || world.status().await["instances"][0]["deadline"].clone();
    let before = deadline().await;
    until("extension", async || {
        world.refresh().await;
        (deadline().await != before).then_some(())
    })
    .await;
    assert_eq!(world.states().await[&one.id()], "running");
    fs::write(&go, "").expect("it can be written");
    let over = world.github.over(job).await;
    assert_eq!(over.conclusion, Some(Conclusion::Success));
    assert_eq!(world.settles().await, one.ids());
}
