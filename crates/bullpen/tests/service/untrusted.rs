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

use crate::stage::{SECRET, Stage, order};

const REPOSITORY: &str = "acme/app";

/// Runs a job to its end; returns it and the last machine in its row.
async fn ran_on(stage: &Stage, order: JobOrder) -> (u64, InstanceId) {
    let job = stage.github.submit(order).id;
    assert_eq!(stage.over(job).await.conclusion, Some(Conclusion::Success));
    stage.settled(job).await;
    let row = stage.row(job).await.expect("it has a row");
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
        let stage = Stage::new().await;
        stage.github.pull(|levers| levers.public_repositories = vec![REPOSITORY.to_owned()]);
        let served = stage.serve().await;
        let (url, secret) = (served.webhook.clone(), Secret::new(SECRET));
        stage.github.hook(Hook { url, secret, runs }).expect("it is on loopback");
        let (_, first) = ran_on(&stage, of_run(9_001)).await;
        let (_, again) = ran_on(&stage, of_run(9_002)).await;
        assert_eq!(first, again, "own code takes the machine that own code left");
        let (job, strangers) = ran_on(&stage, of_fork(9_003)).await;
        assert_ne!(first, strangers);
        let known = stage.row(job).await.expect("it has a row").known.about.provenance;
        assert_eq!(known.origin, Some(Origin::Fork));
        assert_eq!(known.visibility, Some(Visibility::Public));
        let told = stage.run(&format!("explain {job}")).await;
        let why = "1 used before, and its code is not trusted";
        assert!(told.exits(0).data.contains(why), "{}", told.data);
        assert_eq!(ids(&stage.quiet().await), [first.as_str()], "the stranger's has ended");
        let asked = stage.github.answers();
        let asked = asked.keys().filter(|(call, _)| call == "GET actions/runs/{id}").count();
        assert_eq!(asked == 0, runs, "{:?}", stage.github.answers());
    }
}

/// A label that a fork's job may have too: the worker passes over the used machine, and `explain`
/// says why.
#[tokio::test]
async fn in_a_public_repository_a_used_machine_needs_the_runs_id_in_the_label() {
    let stage = Stage::new().await;
    stage.github.pull(|levers| levers.public_repositories = vec![REPOSITORY.to_owned()]);
    let _served = stage.serve().await;
    let (_, first) = ran_on(&stage, of_run(9_001)).await;
    let (job, second) = ran_on(&stage, order("bullpen/runner=small", "true")).await;
    assert_ne!(first, second);
    let told = stage.run(&format!("explain {job}")).await;
    let why = "1 used before, and its labels do not name its run";
    assert!(told.exits(0).data.contains(why), "{}", told.data);
    stage.quiet().await;
}
