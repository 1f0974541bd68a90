//! Jobs that webhooks announce and the service serves.
//!
//! Not here: webhooks that do not come (`lost`), or processes that end (`drain`, `killed`).

use std::collections::BTreeSet;

use bullpen_core::job::{Conclusion as Concluded, End, Reason};
use bullpen_github::stand_in::protocol::Conclusion;

use crate::waiting::until;
use crate::world::{World, order};

/// A label that binds a job's runner to its run, so that GitHub gives the runner to no other job.
const OWN_RUN: &str = "bullpen=${{ github.run_id }}/runner=small";

/// Two bursts of six jobs that all run at once. Every job succeeds on a runner of its own. Returns the
/// machines that are idle after each burst.
async fn two_bursts(world: &World, label: &str) -> [BTreeSet<String>; 2] {
    let mut idle = Vec::new();
    for burst in ["one", "two"] {
        let script = world.gated(burst);
        let jobs: Vec<u64> = (0..6).map(|_| world.job(label, &script)).collect();
        for job in &jobs {
            world.started(*job).await;
        }
        world.open(burst);
        let mut runners = BTreeSet::new();
        for job in jobs {
            let over = world.over(job).await;
            assert_eq!(over.conclusion, Some(Conclusion::Success));
            assert!(runners.insert(over.runner), "a runner serves one job");
            assert_eq!(world.settled(job).await, End::Completed(Concluded::new("success")));
        }
        idle.push(world.quiet().await);
    }
    <[_; 2]>::try_from(idle).expect("two bursts")
}

/// Each job has its runner for itself: the second burst takes the machines of the first.
#[tokio::test]
async fn a_burst_runs_and_the_next_one_takes_its_machines() {
    let world = World::new().await;
    let _served = world.serve().await;
    let [first, second] = two_bursts(&world, OWN_RUN).await;
    assert_eq!((first.len(), &second), (6, &first), "no machine was launched twice");
}

/// With one label for all jobs GitHub gives runners to jobs that they were not made for. Every job runs
/// all the same and no machine is left behind; a machine ends if the service cannot tell which job it ran.
#[tokio::test]
async fn a_burst_of_one_label_runs_whichever_job_gets_which_runner() {
    let world = World::new().await;
    let _served = world.serve().await;
    two_bursts(&world, "bullpen/runner=small").await;
}

/// A class without reuse: one job, and the machine is gone.
#[tokio::test]
async fn without_reuse_a_machine_serves_one_job() {
    let world = World::new().await;
    let _served = world.serve().await;
    for _ in 0..2 {
        let job = world.job("bullpen/runner=once", "true");
        assert_eq!(world.over(job).await.conclusion, Some(Conclusion::Success));
        assert_eq!(world.settled(job).await, End::Completed(Concluded::new("success")));
        assert_eq!(world.quiet().await, BTreeSet::new());
    }
    assert_eq!(world.machines().len(), 2);
}

/// A pool with a target of zero passes its jobs on to a launch.
#[tokio::test]
async fn a_job_of_an_empty_pool_is_launched_for() {
    let world = World::new().await;
    let _served = world.serve().await;
    let job = world.job("bullpen/pool=builders", "true");
    assert_eq!(world.over(job).await.conclusion, Some(Conclusion::Success));
    world.settled(job).await;
    let row = world.row(job).await.expect("it has a row");
    assert!(row.overflowed, "{row:?}");
}

/// An unknown pool: the service tells the author at once, with what to do, and launches nothing.
#[tokio::test]
async fn an_unknown_pool_is_a_failure_that_its_author_sees() {
    let world = World::new().await;
    let _served = world.serve().await;
    let job = world.job("bullpen/pool=bilders", "true");
    let End::Failed(Reason::UnknownPool { pool, suggestions }) = world.settled(job).await else {
        panic!("{:?}", world.row(job).await);
    };
    assert_eq!((pool.as_str(), &*suggestions), ("bilders", &["builders".to_owned()][..]));
    let notices = world.github.notices();
    let [notice] = &notices[..] else { panic!("{notices:?}") };
    assert!(notice.is_check && notice.outcome == "failure", "{notice:?}");
    assert_eq!(notice.external_id, Some(job.to_string()));
    assert!(
        notice.text.contains("there is no pool `bilders`; did you mean builders?"),
        "{notice:?}"
    );
    assert_eq!(world.machines().len(), 0);
}

/// Jobs for other systems leave no row.
#[tokio::test]
async fn a_job_of_others_is_none_of_ours() {
    let world = World::new().await;
    let _served = world.serve().await;
    let theirs = world.job("ubuntu-latest", "true");
    let elsewhere = world.job("bullpen/runner=small/env=staging", "true");
    let ours = world.job("bullpen/runner=small", "true");
    world.over(ours).await;
    for job in [theirs, elsewhere] {
        assert_eq!(world.row(job).await, None);
        assert_eq!(world.github.job(job).expect("it was queued").status, "queued");
    }
    assert_eq!(world.github.webhook_answers()[..2], [204, 204]);
}

/// Cancelled while it runs, and while it waits for a machine that does not exist.
#[tokio::test]
async fn a_cancelled_job_gives_its_machine_back() {
    let world = World::new().await;
    let _served = world.serve().await;
    let runs = world.job("bullpen/runner=small", &world.gated("never"));
    world.started(runs).await;
    assert!(world.github.cancel(runs));
    assert_eq!(world.over(runs).await.conclusion, Some(Conclusion::Cancelled));
    assert_eq!(world.settled(runs).await, End::Cancelled);
    world.quiet().await;
    // No machine has so many processors, and no fewer.
    let waits = world.job("bullpen/cpu=60/family=c6i", "true");
    until("row", async || world.row(waits).await.filter(|row| row.attempts > 0)).await;
    assert!(world.github.cancel(waits));
    assert_eq!(world.settled(waits).await, End::Cancelled);
    world.quiet().await;
}

/// GitHub gives a runner to the first matching job. The job that the runner was made for gets
/// another, and both rows name the machines that ran them.
#[tokio::test]
async fn a_stolen_runner_costs_no_job() {
    // The service asks GitHub only once for jobs that no webhook announced.
    let world = World::with(&[("find", "10m")]).await;
    let _served = world.serve().await;
    world.has_asked().await;
    world.github.pull(|levers| levers.webhooks.lose = 1);
    let thief = world.job("bullpen/runner=small", "true");
    let robbed = world.job("bullpen/runner=small", "true");
    let runner = world.over(thief).await.runner.expect("it had one");
    assert_eq!(runner, format!("bullpen-{robbed}-0"));
    let own = world.over(robbed).await.runner.expect("it had one");
    assert_ne!(own, runner);
    for job in [thief, robbed] {
        assert_eq!(world.settled(job).await, End::Completed(Concluded::new("success")));
    }
    world.quiet().await;
}

/// Every webhook twice, and the last first: one run, one machine.
#[tokio::test]
async fn doubled_and_reversed_webhooks_change_nothing() {
    let world = World::new().await;
    let _served = world.serve().await;
    world.github.pull(|levers| {
        levers.webhooks.double = true;
        levers.webhooks.newest_first = true;
    });
    let ran = world.path("ran");
    let jobs: Vec<u64> = (0..4)
        .map(|number| {
            let label = format!("bullpen/runner=small/tag={number}");
            world.github.submit(order(&label, &format!("echo x >> {}", ran.display()))).id
        })
        .collect();
    for job in jobs {
        assert_eq!(world.over(job).await.conclusion, Some(Conclusion::Success));
        assert_eq!(world.settled(job).await, End::Completed(Concluded::new("success")));
    }
    assert_eq!(std::fs::read_to_string(ran).expect("they ran").lines().count(), 4);
    world.quiet().await;
}

/// `bullpen jobs` shows what runs and what waits for a machine, and nothing that is over.
#[tokio::test]
async fn jobs_are_listed_until_they_are_over() {
    let world = World::new().await;
    let _served = world.serve().await;
    let script = world.gated("all");
    let jobs: Vec<u64> = (0..10).map(|_| world.job(OWN_RUN, &script)).collect();
    let listed = until("every job in the list", async || {
        let told = world.run("jobs --json").await.json();
        (told["jobs"].as_array().map(Vec::len) == Some(jobs.len())).then_some(told)
    })
    .await;
    let told = &listed["jobs"][0];
    assert_eq!(told["lane"], "class/small", "{told}");
    assert_eq!(told["explanation"]["repository"], "acme/app");
    assert_eq!(listed["more"], 0);
    let one = world.run("jobs --limit 1").await;
    one.exits(0);
    assert!(one.talk.contains("9 more are not shown"), "{one:?}");
    assert_eq!(one.data.lines().count(), 2, "a heading and a job: {one:?}");
    let none = |line: &'static str| {
        let world = &world;
        async move { world.run(line).await.json()["jobs"].clone() }
    };
    assert_eq!(none("jobs --of acme/other --json").await, serde_json::json!([]));
    assert_eq!(none("jobs --pool ci --json").await, serde_json::json!([]));
    world.open("all");
    for job in jobs {
        world.settled(job).await;
    }
    until("an empty list", async || {
        (none("jobs --json").await == serde_json::json!([])).then_some(())
    })
    .await;
}
