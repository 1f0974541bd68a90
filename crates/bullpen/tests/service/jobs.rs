//! Jobs that webhooks announce and the service serves.
//!
//! Not here: webhooks that do not come (`lost`), or processes that end (`drain`, `killed`).

use std::collections::BTreeSet;

use bullpen_core::job::{Conclusion as Concluded, End, Reason};
use bullpen_github::stand_in::protocol::Conclusion;

use crate::stage::{Stage, order};
use crate::waiting::until;

/// A label that binds a job's runner to its run, so that GitHub gives the runner to no other job.
const OWN_RUN: &str = "bullpen=${{ github.run_id }}/runner=small";

/// Two bursts of six jobs that all run at once. Every job succeeds on a runner of its own. Returns the
/// machines that are idle after each burst.
async fn two_bursts(stage: &Stage, label: &str) -> [BTreeSet<String>; 2] {
    let mut idle = Vec::new();
    for burst in ["one", "two"] {
        let script = stage.gated(burst);
        let jobs: Vec<u64> = (0..6).map(|_| stage.job(label, &script)).collect();
        for job in &jobs {
            stage.started(*job).await;
        }
        stage.open(burst);
        let mut runners = BTreeSet::new();
        for job in jobs {
            let over = stage.over(job).await;
            assert_eq!(over.conclusion, Some(Conclusion::Success));
            assert!(runners.insert(over.runner), "a runner serves one job");
            assert_eq!(stage.settled(job).await, End::Completed(Concluded::new("success")));
        }
        idle.push(stage.quiet().await);
    }
    <[_; 2]>::try_from(idle).expect("two bursts")
}

/// Each job has its runner for itself: the second burst takes the machines of the first.
#[tokio::test]
async fn a_burst_runs_and_the_next_one_takes_its_machines() {
    let stage = Stage::new().await;
    let _served = stage.serve().await;
    let [first, second] = two_bursts(&stage, OWN_RUN).await;
    assert_eq!((first.len(), &second), (6, &first), "no machine was launched twice");
}

/// With one label for all jobs GitHub gives runners to jobs that they were not made for. Every job runs
/// all the same and no machine is left behind; a machine ends if the service cannot tell which job it ran.
#[tokio::test]
async fn a_burst_of_one_label_runs_whichever_job_gets_which_runner() {
    let stage = Stage::new().await;
    let _served = stage.serve().await;
    two_bursts(&stage, "bullpen/runner=small").await;
}

/// A class without reuse: one job, and the machine is gone.
#[tokio::test]
async fn without_reuse_a_machine_serves_one_job() {
    let stage = Stage::new().await;
    let _served = stage.serve().await;
    for _ in 0..2 {
        let job = stage.job("bullpen/runner=once", "true");
        assert_eq!(stage.over(job).await.conclusion, Some(Conclusion::Success));
        assert_eq!(stage.settled(job).await, End::Completed(Concluded::new("success")));
        assert_eq!(stage.quiet().await, BTreeSet::new());
    }
    assert_eq!(stage.machines().len(), 2);
}

/// A pool with a target of zero passes its jobs on to a launch.
#[tokio::test]
async fn a_job_of_an_empty_pool_is_launched_for() {
    let stage = Stage::new().await;
    let _served = stage.serve().await;
    let job = stage.job("bullpen/pool=builders", "true");
    assert_eq!(stage.over(job).await.conclusion, Some(Conclusion::Success));
    stage.settled(job).await;
    let row = stage.row(job).await.expect("it has a row");
    assert!(row.overflowed, "{row:?}");
}

/// An unknown pool: the service tells the author at once, with what to do, and launches nothing.
#[tokio::test]
async fn an_unknown_pool_is_a_failure_that_its_author_sees() {
    let stage = Stage::new().await;
    let _served = stage.serve().await;
    let job = stage.job("bullpen/pool=bilders", "true");
    let End::Failed(Reason::UnknownPool { pool, suggestions }) = stage.settled(job).await else {
        panic!("{:?}", stage.row(job).await);
    };
    assert_eq!((pool.as_str(), &*suggestions), ("bilders", &["builders".to_owned()][..]));
    let notices = stage.github.notices();
    let [notice] = &notices[..] else { panic!("{notices:?}") };
    assert!(notice.is_check && notice.outcome == "failure", "{notice:?}");
    assert_eq!(notice.external_id, Some(job.to_string()));
    assert!(
        notice.text.contains("there is no pool `bilders`; did you mean builders?"),
        "{notice:?}"
    );
    assert_eq!(stage.machines().len(), 0);
}

/// Jobs for other systems leave no row.
#[tokio::test]
async fn a_job_of_others_is_none_of_ours() {
    let stage = Stage::new().await;
    let _served = stage.serve().await;
    let theirs = stage.job("ubuntu-latest", "true");
    let elsewhere = stage.job("bullpen/runner=small/env=staging", "true");
    let ours = stage.job("bullpen/runner=small", "true");
    stage.over(ours).await;
    for job in [theirs, elsewhere] {
        assert_eq!(stage.row(job).await, None);
        assert_eq!(stage.github.job(job).expect("it was queued").status, "queued");
    }
    assert_eq!(stage.github.webhook_answers()[..2], [204, 204]);
}

/// Cancelled while it runs, and while it waits for a machine that does not exist.
#[tokio::test]
async fn a_cancelled_job_gives_its_machine_back() {
    let stage = Stage::new().await;
    let _served = stage.serve().await;
    let runs = stage.job("bullpen/runner=small", &stage.gated("never"));
    stage.started(runs).await;
    assert!(stage.github.cancel(runs));
    assert_eq!(stage.over(runs).await.conclusion, Some(Conclusion::Cancelled));
    assert_eq!(stage.settled(runs).await, End::Cancelled);
    stage.quiet().await;
    // No machine has so many processors, and no fewer.
    let waits = stage.job("bullpen/cpu=60/family=c6i", "true");
    until("row", async || stage.row(waits).await.filter(|row| row.attempts > 0)).await;
    assert!(stage.github.cancel(waits));
    assert_eq!(stage.settled(waits).await, End::Cancelled);
    stage.quiet().await;
}

/// GitHub gives a runner to the first matching job. The job that the runner was made for gets
/// another, and both rows name the machines that ran them.
#[tokio::test]
async fn a_stolen_runner_costs_no_job() {
    // The service asks GitHub only once for jobs that no webhook announced.
    let stage = Stage::with(&[("find", "10m")]).await;
    let _served = stage.serve().await;
    stage.has_asked().await;
    stage.github.pull(|levers| levers.webhooks.lose = 1);
    let thief = stage.job("bullpen/runner=small", "true");
    let robbed = stage.job("bullpen/runner=small", "true");
    let runner = stage.over(thief).await.runner.expect("it had one");
    assert_eq!(runner, format!("bullpen-{robbed}-0"));
    let own = stage.over(robbed).await.runner.expect("it had one");
    assert_ne!(own, runner);
    for job in [thief, robbed] {
        assert_eq!(stage.settled(job).await, End::Completed(Concluded::new("success")));
    }
    stage.quiet().await;
}

/// Every webhook twice, and the last first: one run, one machine.
#[tokio::test]
async fn doubled_and_reversed_webhooks_change_nothing() {
    let stage = Stage::new().await;
    let _served = stage.serve().await;
    stage.github.pull(|levers| {
        levers.webhooks.double = true;
        levers.webhooks.newest_first = true;
    });
    let ran = stage.path("ran");
    let jobs: Vec<u64> = (0..4)
        .map(|number| {
            let label = format!("bullpen/runner=small/tag={number}");
            stage.github.submit(order(&label, &format!("echo x >> {}", ran.display()))).id
        })
        .collect();
    for job in jobs {
        assert_eq!(stage.over(job).await.conclusion, Some(Conclusion::Success));
        assert_eq!(stage.settled(job).await, End::Completed(Concluded::new("success")));
    }
    assert_eq!(std::fs::read_to_string(ran).expect("they ran").lines().count(), 4);
    stage.quiet().await;
}
