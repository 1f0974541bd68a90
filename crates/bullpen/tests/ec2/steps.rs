//! The steps of a workflow: provision, release, refresh, destroy.
//! Not here: creating a stack (`stack`).

use std::collections::BTreeSet;

use futures_util::future::join_all;
use rustix::process::Signal;
use serde_json::Value;

use crate::cloud::CLOUD;
use crate::process::Ran;
use crate::waiting::until;
use crate::world::{HASTY, World};

/// One class of a sufficient size.
const CONFIG: &str = "runners:\n  small: {cpu: 2, ram: 4, family: c6i}\n";

/// The output of `provision --json`.
struct Provisioned(Value);

impl Provisioned {
    fn of(ran: &Ran) -> Self {
        Self(ran.json())
    }

    /// How many were reused, and how many created.
    fn counts(&self) -> (u64, u64) {
        let number = |key: &str| self.0[key].as_u64().expect("a number");
        (number("reused"), number("created"))
    }

    fn ids(&self) -> BTreeSet<String> {
        let instances = self.0["instances"].as_array().expect("a list").iter();
        instances.map(|one| one["id"].as_str().expect("an id").to_owned()).collect()
    }

    fn label(&self) -> &str {
        self.0["label"].as_str().expect("a label")
    }
}

impl World {
    async fn provision(&self, count: usize, name: &str) -> Provisioned {
        let line = format!("provision --resource-class small --count {count} --name {name} --json");
        let provisioned = Provisioned::of(&self.run(&line).await);
        assert_eq!(provisioned.ids().len(), count, "no machine twice: {}", provisioned.0);
        provisioned
    }

    async fn release(&self, name: &str) {
        let released = self.run(&format!("release --name {name} --json")).await.json();
        assert_eq!(released["waiting"], Value::Array(Vec::new()), "{released}");
    }
}

/// The first request launches; the second has the same machines; the third has them and two more.
/// Jobs run on them as another user.
#[tokio::test]
async fn three_are_created_then_reused_then_made_up_to_five() {
    let world = World::in_cloud(CONFIG, &[]).await;
    let first = world.provision(3, "one").await;
    assert_eq!(first.counts(), (0, 3));
    let note = world.path("who");
    let job = world.job(first.label(), &format!("id -un > {}", note.display()));
    world.over(job).await;
    assert_eq!(std::fs::read_to_string(note).expect("the job wrote it").trim(), "runner");
    world.release("one").await;
    let second = world.provision(3, "two").await;
    assert_eq!((second.counts(), second.ids()), ((3, 0), first.ids()));
    world.release("two").await;
    let third = world.provision(5, "three").await;
    assert_eq!(third.counts(), (3, 2));
    let on: BTreeSet<String> = CLOUD.machines_on().into_iter().collect();
    assert!(on.is_superset(&third.ids()), "{on:?}");
    world.run("ledger verify").await.exits(0);
    world.run("destroy --yes").await.exits(0);
    until("end of every machine", async || {
        let on = CLOUD.machines_on();
        third.ids().iter().all(|id| !on.contains(id)).then_some(())
    })
    .await;
}

/// Four requests of three at once, six idle machines: six are reused, six created, none is twice.
#[tokio::test]
async fn requests_at_once_share_what_is_idle() {
    let world = World::in_cloud(CONFIG, &[]).await;
    let warm = world.provision(6, "warm").await;
    world.release("warm").await;
    let names: Vec<String> = (0..4).map(|number| format!("crowd-{number}")).collect();
    let all = join_all(names.iter().map(|name| world.provision(3, name))).await;
    let counts = all.iter().map(Provisioned::counts);
    let counts = counts.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
    assert_eq!(counts, (6, 6));
    let ids: BTreeSet<String> = all.iter().flat_map(Provisioned::ids).collect();
    assert_eq!(ids.len(), 12, "nothing has two owners");
    assert!(ids.is_superset(&warm.ids()));
    world.run("ledger verify").await.exits(0);
}

/// The next provision resumes a provision that was killed during its launch, with exactly the
/// requested runners: the same client token returns the unrecorded machines, and EC2 launches none
/// twice.
#[tokio::test]
async fn a_killed_provision_is_resumed() {
    let world = World::in_cloud(CONFIG, HASTY).await;
    let line = "provision --resource-class small --count 3 --name one --json";
    let killed = world.bullpen(line);
    until("launch", async || killed.talk().contains("launching").then_some(())).await;
    killed.signal(Signal::KILL);
    killed.ends().await;
    let resumed = world.provision(3, "one").await;
    world.release("one").await;
    world.run("refresh").await.exits(0);
    let status = world.status().await;
    assert_eq!(status["instances"].as_array().map(Vec::len), Some(3), "{status}");
    assert_eq!(resumed.ids().len(), 3);
    world.run("ledger verify").await.exits(0);
}
