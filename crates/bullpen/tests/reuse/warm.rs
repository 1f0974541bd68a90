//! Reuse first: a request gets released machines again, and creates only the missing ones.
//!
//! Not here: machines that a request may not have (`trust`, `fitness`), or kills (`killed`).

use std::collections::BTreeSet;
use std::fs;

use bullpen_github::stand_in::protocol::Conclusion;
use serde_json::Value;

use crate::waiting::until;
use crate::world::World;

const KEYS: [&str; 8] =
    ["request", "label", "requested", "reused", "started", "created", "instances", "timings"];

/// D6: a released machine is claimable at once. D32: each request has a label of its own.
#[tokio::test]
async fn three_are_created_then_reused_then_made_up_to_five() {
    let world = World::new().await;
    let first = world.provision(3, "one").await;
    assert_eq!(first.counts(), (0, 3));
    let keys: BTreeSet<&str> =
        first.0.as_object().expect("an object").keys().map(String::as_str).collect();
    assert_eq!(keys, KEYS.into());
    assert!(first.label().starts_with("warm-local.1.one."), "{}", first.label());
    assert_eq!(world.online(first.label()).len(), 3);
    assert!(world.states().await.values().all(|state| state == "running"));
    let released = world.release("one").await;
    assert_eq!(released["returned"].as_array().map(Vec::len), Some(3), "{released}");
    assert_eq!(world.github.runners(), [], "no runner is registered while it is idle");

    let second = world.provision(3, "two").await;
    assert_eq!((second.counts(), second.ids()), ((3, 0), first.ids()));
    assert_eq!(world.online(first.label()).len(), 0);
    world.release("two").await;

    let third = world.provision(5, "three").await;
    assert_eq!(third.counts(), (3, 2));
    assert!(third.ids().is_superset(&first.ids()));
    let mut runners = BTreeSet::new();
    for job in 0..5 {
        runners.insert(world.runs_job(third.label(), &format!("echo {job}; sleep 0.2")).await);
    }
    assert!(runners.is_subset(&world.online(third.label())));
    world.verify().await;
}

#[tokio::test]
async fn the_step_that_asked_gets_the_values_as_outputs() {
    let world = World::new().await;
    let output = world.path("output");
    let provision = world.bullpen("provision --count 2 --request 7.1.build --json");
    let provision = provision.with("GITHUB_OUTPUT", output.to_str().expect("it is text"));
    let told = provision.run().await.json();
    let text = fs::read_to_string(&output).expect("it was written");
    let mut lines = text.lines();
    let mut pairs = Vec::new();
    while let Some((name, delimiter)) = lines.next().and_then(|line| line.split_once("<<")) {
        let value: Vec<&str> = lines.by_ref().take_while(|line| *line != delimiter).collect();
        pairs.push((name, value.join("\n")));
    }
    let last = |name: &str| {
        let found = pairs.iter().rev().find(|(known, _)| *known == name);
        found.unwrap_or_else(|| panic!("no {name} in {text}")).1.clone()
    };
    assert_eq!(
        (told["label"].as_str(), last("request").as_str()),
        (Some(&*last("label")), "7.1.build")
    );
    assert!(last("label").starts_with("warm-7.1.build."), "{text}");
    assert_eq!(
        (last("requested"), last("created"), last("reused")),
        ("2".into(), "2".into(), "0".into())
    );
    let ids: Value = serde_json::from_str(&last("instances")).expect("it is JSON");
    let told = told["instances"].as_array().expect("a list").iter().map(|one| one["id"].clone());
    assert_eq!(ids, Value::Array(told.collect()));
    let timings: Value = serde_json::from_str(&last("timings")).expect("it is JSON");
    assert!(timings["total_ms"].as_u64().is_some_and(|took| took > 0), "{timings}");
    let first: Vec<&str> = pairs.iter().take(2).map(|(name, _)| *name).collect();
    assert_eq!(first, ["request", "label"], "both are told before any machine is asked for");
}

/// D4: a request that reads the pool for one usage hides no machine from a request for the other.
#[tokio::test]
async fn a_request_for_spot_costs_an_on_demand_request_none_of_its_warm_machines() {
    let world = World::new().await;
    let warm = world.provision(6, "warm").await;
    world.release("warm").await;
    let mut spot = Vec::new();
    for number in 0..4 {
        let line = format!("provision --count 2 --usage-class spot --name spot{number} --json");
        spot.push(world.bullpen(&line).start());
    }
    let matching = world.provision(6, "matching").await;
    assert_eq!((matching.counts(), matching.ids()), ((6, 0), warm.ids()));
    for spot in spot {
        let spot = spot.ends().await.json();
        assert_eq!((spot["reused"].as_u64(), spot["created"].as_u64()), (Some(0), Some(2)));
        assert!(
            spot["instances"]
                .as_array()
                .is_some_and(|all| { all.iter().all(|one| one["usage"] == "spot") })
        );
    }
    world.verify().await;
}

/// D33: a job that runs when its request is released is never interrupted.
#[tokio::test]
async fn a_release_waits_for_the_job_that_runs() {
    let world = World::new().await;
    let one = world.provision(1, "one").await;
    let go = world.path("go");
    let script = format!("while [ ! -e {} ]; do sleep 0.05; done", go.display());
    let job = world.job(one.label(), &script);
    let view = || world.github.job(job).expect("it was queued");
    until("start of the job", async || (view().status == "in_progress").then_some(())).await;
    let mut release = world.bullpen("release --name one --json").start();
    release.tells("waiting for its job").await;
    assert_eq!(view().conclusion, None);
    assert!(!release.is_over());
    assert_eq!(world.states().await[&one.id()], "releasing");
    fs::write(&go, "").expect("it can be written");
    let released = release.ends().await.json();
    assert_eq!(released["returned"], Value::from(vec![one.id()]), "{released}");
    assert_eq!(view().conclusion, Some(Conclusion::Success));
    assert_eq!(world.provision(1, "two").await.counts(), (1, 0));
}
