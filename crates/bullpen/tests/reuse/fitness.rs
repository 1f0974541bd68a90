//! Machines that are not reused: worn out, outdated, or of a class that changed.
//!
//! Not here: trust groups (`trust`).

use std::collections::BTreeSet;

use serde_json::Value;

use crate::waiting::until;
use crate::world::World;

const TWO_VCPUS: &str = r#"{"large":{"cpu":2,"mmem":4096}}"#;
const FOUR_VCPUS: &str = r#"{"large":{"cpu":4,"mmem":4096}}"#;

async fn types(world: &World) -> Value {
    world.status().await["instances"].clone()
}

/// D46: a machine serves a limited number of owners.
#[tokio::test]
async fn the_third_use_is_a_new_machine() {
    let world = World::with(&[("uses-max", "2")]).await;
    let first = world.provision(1, "one").await;
    world.release("one").await;
    let second = world.provision(1, "two").await;
    assert_eq!((second.counts(), second.ids()), ((1, 0), first.ids()));
    let released = world.release("two").await;
    assert_eq!(released["ended"], Value::from(vec![first.id()]), "{released}");
    let third = world.provision(1, "three").await;
    assert_eq!(third.counts(), (0, 1));
    assert_ne!(third.ids(), first.ids());
}

/// D47: the settings of new machines have changed, so idle ones are not reused.
#[tokio::test]
async fn a_changed_script_leaves_old_machines_unused() {
    let world = World::new().await;
    let old = world.provision(2, "old").await;
    let held = world.provision(1, "held").await;
    world.release("old").await;
    let refresh = world.bullpen("refresh --pre-runner-script").argument("touch \"$HOME/warm\"");
    refresh.run().await.exits(0);
    let new = world.provision(2, "new").await;
    assert_eq!(new.counts(), (0, 2));
    assert!(new.ids().is_disjoint(&old.ids()));
    let released = world.release("held").await;
    assert_eq!(released["ended"], Value::from(vec![held.id()]), "it is not pooled either");
    world.release("new").await;
    let again = world.provision(2, "again").await;
    assert_eq!((again.counts(), again.ids()), ((2, 0), new.ids()));
}

/// D9: a machine keeps the size of its launch, even if its class has another size today.
#[tokio::test]
async fn a_class_that_grew_does_not_hand_out_its_smaller_machines() {
    let world = World::new().await;
    let refresh = |table: &str| world.bullpen("refresh --resource-class-config").argument(table);
    refresh(TWO_VCPUS).run().await.exits(0);
    let small = world.provision(1, "small").await;
    world.release("small").await;
    refresh(FOUR_VCPUS).run().await.exits(0);
    let large = world.provision(1, "large").await;
    assert_eq!(large.counts(), (0, 1), "{:?}", types(&world).await);
    assert_ne!(large.0["instances"][0]["type"], small.0["instances"][0]["type"]);
    world.release("large").await;
    let again = world.provision(1, "again").await;
    assert_eq!((again.counts(), again.ids()), ((1, 0), large.ids()));
}

/// D10: a removed class is drained, and its queue is removed with its last machine.
#[tokio::test]
async fn a_removed_class_is_drained_and_its_queue_removed() {
    let hasty = [
        ("idle-released", "4s"),
        ("not-claimable-before-deadline", "1s"),
        ("clock-skew", "1s"),
        ("reconcile-grace", "1s"),
    ];
    let world = World::with(&hasty).await;
    let both = r#"{"large":{"cpu":2,"mmem":4096},"small":{"cpu":2,"mmem":2048}}"#;
    let refresh =
        |table: &str| world.bullpen("refresh --json --resource-class-config").argument(table);
    refresh(both).run().await.exits(0);
    let line = "provision --count 1 --name one --resource-class small --json";
    world.bullpen(line).run().await.exits(0);
    world.release("one").await;
    let mut told = BTreeSet::new();
    until("end of the class's queue", async || {
        let refreshed = refresh(TWO_VCPUS).run().await.json();
        let steps = refreshed["steps"].as_array().expect("a list").iter();
        for step in steps.filter(|step| step["step"] == "queues") {
            let done = step["done"].as_array().expect("it did not fail").iter();
            told.extend(done.filter_map(Value::as_str).map(str::to_owned));
        }
        told.contains("removed the queue of class small").then_some(())
    })
    .await;
    assert_eq!(world.states().await.len(), 0, "{told:?}");
    assert!(told.iter().any(|line| line.starts_with("class small is drained")), "{told:?}");
    let gone = world.bullpen("provision --count 1 --name two --resource-class small").run().await;
    gone.exits(64).says("is not a known class");
    world.verify().await;
}
