//! The service: jobs that webhooks announce.
//!
//! Not here: standby pools (`pools`).

use bullpen_github::stand_in::protocol::Conclusion;

use crate::cloud::CLOUD;
use crate::waiting::until;
use crate::world::{HASTY, World};

/// A class with reuse, and a class without.
const CONFIG: &str = "\
runners:
  small: {cpu: 2, ram: 4, family: c6i}
  once: {cpu: 2, ram: 4, family: c6i}
x-bullpen:
  runners:
    small: {reuse: {max-uses: 1000}}
";

/// The service launches a machine for a job; the next job of its repository gets the same machine;
/// a job of a class without reuse has a machine of its own, which ends with it.
#[tokio::test]
async fn jobs_are_launched_for_and_machines_reused() {
    let world = World::in_cloud(CONFIG, &[]).await;
    let served = world.serve().await;
    for (label, times) in [("runs-on/runner=small", 2), ("runs-on/runner=once", 1)] {
        for _ in 0..times {
            let job = world.job(label, "true");
            assert_eq!(world.over(job).await.conclusion, Some(Conclusion::Success));
            world.ended(job).await;
        }
    }
    assert_eq!(world.quiet().await.len(), 1, "the reused machine");
    let metrics = served.ask("/metrics").await.body;
    assert!(metrics.contains("bullpen_jobs_assigned_total"), "{metrics}");
}

/// Twelve jobs at once, and a kill of their process: its successor brings every job to its end, and
/// nothing is left.
#[tokio::test]
async fn a_killed_service_loses_no_job() {
    let world = World::in_cloud(CONFIG, HASTY).await;
    let served = world.serve().await;
    let jobs: Vec<u64> = (0..12).map(|_| world.job("runs-on/runner=small", "true")).collect();
    until("first machine", async || (!CLOUD.machines_on().is_empty()).then_some(())).await;
    served.kill().await;
    let _served = world.serve().await;
    for job in jobs {
        assert_eq!(world.over(job).await.conclusion, Some(Conclusion::Success));
        world.ended(job).await;
    }
    world.quiet().await;
}
