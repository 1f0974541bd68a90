//! Code of strangers, and used machines: the tests make the stand-in's repositories public, and
//! queue a fork's jobs beside trusted ones.
//!
//! Not here: the same under faults (`bullpen-sim`), or stolen runners (`jobs`).

use std::collections::BTreeSet;

use bullpen_core::ids::InstanceId;
use bullpen_core::job::{JobStep, Origin, Visibility};
use bullpen_core::mailbox::Secret;
use bullpen_github::stand_in::Hook;
use bullpen_github::stand_in::protocol::{Conclusion, JobOrder};

use crate::world::{SECRET, World, order};

const REPOSITORY: &str = "acme/app";

/// Runs a job to its end; returns it and the last machine in its row.
async fn ran_on(world: &World, order: JobOrder) -> (u64, InstanceId) {
    let job = world.github.submit(order).id;
    assert_eq!(world.over(job).await.conclusion, Some(Conclusion::Success));
    world.settled(job).await;
    let row = world.row(job).await.expect("it has a row");
    let machine = row.steps.iter().rev().find_map(|step| match &step.step {
        JobStep::Assigned { instance, .. } => instance.clone(),
        _ => None,
    });
    (job, machine.expect("it had a machine"))
}

fn of_run(run: u64) -> JobOrder {
    JobOrder { run_id: Some(run), ..order(&format!("bullpen={run}/runner=small"), "true") }
}

fn of_fork(run: u64) -> JobOrder {
    let event = Some("pull_request".to_owned());
    JobOrder { fork: Some("mallory/app".to_owned()), event, ..of_run(run) }
}

fn ids(machines: &BTreeSet<String>) -> Vec<&str> {
    machines.iter().map(String::as_str).collect()
}

/// With webhooks about runs, and without: then the service asks GitHub.
#[tokio::test]
async fn a_fork_never_gets_a_used_machine_and_leaves_none() {
    for runs in [false, true] {
        let world = World::new().await;
        world.github.pull(|levers| levers.public_repositories = vec![REPOSITORY.to_owned()]);
        let served = world.serve().await;
        let (url, secret) = (served.webhook.clone(), Secret::new(SECRET));
        world.github.hook(Hook { url, secret, runs }).expect("it is on loopback");
        let (_, first) = ran_on(&world, of_run(9_001)).await;
        let (_, again) = ran_on(&world, of_run(9_002)).await;
        assert_eq!(first, again, "own code takes the machine that own code left");
        let (job, strangers) = ran_on(&world, of_fork(9_003)).await;
        assert_ne!(first, strangers);
        let known = world.row(job).await.expect("it has a row").known.about.provenance;
        assert_eq!(known.origin, Some(Origin::Fork));
        assert_eq!(known.visibility, Some(Visibility::Public));
        let told = world.run(&format!("explain {job}")).await;
        let why = "1 used before, and its code is not trusted";
        assert!(told.exits(0).data.contains(why), "{}", told.data);
        assert_eq!(ids(&world.quiet().await), [first.as_str()], "the stranger's has ended");
        let asked = world.github.answers();
        let asked = asked.keys().filter(|(call, _)| call == "GET actions/runs/{id}").count();
        assert_eq!(asked == 0, runs, "{:?}", world.github.answers());
    }
}

/// A label that a fork's job may have too: the worker passes over the used machine, and `explain`
/// says why.
#[tokio::test]
async fn in_a_public_repository_a_used_machine_needs_the_runs_id_in_the_label() {
    let world = World::new().await;
    world.github.pull(|levers| levers.public_repositories = vec![REPOSITORY.to_owned()]);
    let _served = world.serve().await;
    let (_, first) = ran_on(&world, of_run(9_001)).await;
    let (job, second) = ran_on(&world, order("bullpen/runner=small", "true")).await;
    assert_ne!(first, second);
    let told = world.run(&format!("explain {job}")).await;
    let why = "1 used before, and its labels do not name its run";
    assert!(told.exits(0).data.contains(why), "{}", told.data);
    world.quiet().await;
}
