//! Pools with DynamoDB and SQS on an emulator: one walk through a pool's life, and two processes of
//! which the first dies.
//!
//! Not here: machines in EC2.

use bullpen_github::stand_in::protocol::Conclusion;

use crate::standby::{QUICK, file, pool};
use crate::waiting::until;
use crate::world::World;

/// From empty to the target; a job; a schedule; a version; and the pool is removed.
#[tokio::test]
async fn a_pool_lives_on_aws_as_it_does_on_files() {
    let wants = |hot, stopped, version| file("", &[pool("ci", hot, stopped).version(version)]);
    let world = World::on_aws(&wants(1, 1, 1), QUICK).await;
    let served = world.serve().await;
    let first = world.reaches("ci", 1, 1).await;
    world.run("pools plan").await.exits(0);
    let (job, picked) = world.busy("ci", "go").await;
    assert!(first.hot.contains(&picked), "{picked} is none of {first:?}");
    world.reaches("ci", 1, 1).await;
    served.shows("bullpen_jobs_assigned_total{how=\"picked\"}", 1).await;
    world.configure(&wants(2, 1, 1));
    let more = world.reaches("ci", 2, 1).await;
    world.configure(&wants(2, 1, 2));
    let new = until("new machines", async || {
        let new = world.reaches("ci", 2, 1).await;
        new.ready().is_disjoint(&more.ready()).then_some(new)
    });
    assert!(new.await.in_use.contains(&picked), "{picked} is in use");
    world.configure(&file("", &[]));
    let left = world.reaches("ci", 0, 0).await;
    assert!(left.in_use.contains(&picked), "{picked} is in use: {left:?}");
    world.open("go");
    assert_eq!(world.over(job).await.conclusion, Some(Conclusion::Success));
    world.ended(job).await;
    assert_eq!(world.quiet().await.len(), 0);
}

/// The remaining process keeps the pools of the process that died.
#[tokio::test]
async fn another_process_takes_the_pools_over() {
    let wants = |hot| file("", &[pool("one", hot, 0), pool("two", 0, hot)]);
    let leases = [("pool-lease", "3s"), ("pool-lease-renew", "1s")];
    let limits: Vec<_> = QUICK.iter().copied().chain(leases).collect();
    let world = World::on_aws(&wants(1), &limits).await;
    let first = world.serve().await;
    let _second = world.serve().await;
    let before = world.reaches("one", 1, 0).await;
    world.reaches("two", 0, 1).await;
    first.kill().await;
    world.configure(&wants(2));
    let after = world.reaches("one", 2, 0).await;
    assert!(after.hot.is_superset(&before.hot), "{before:?} {after:?}");
    world.reaches("two", 0, 2).await;
    assert_eq!(world.quiet().await.len(), 4);
}
