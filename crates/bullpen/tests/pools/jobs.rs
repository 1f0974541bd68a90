//! Jobs that name a pool: the machines that they get, and how the pool recovers.
//!
//! Not here: which machine of several (`bullpen_core::pool::pick`).

use bullpen_core::job::{Conclusion as Concluded, End};
use bullpen_github::stand_in::protocol::Conclusion;

use crate::standby::{file, pool};
use crate::world::World;

/// A hot machine is picked, and the pool is full again while the job still runs.
#[tokio::test]
async fn a_job_gets_a_hot_machine_and_the_pool_is_filled_up() {
    let world = World::keeping(&file("", &[pool("ci", 1, 0)])).await;
    let served = world.serve().await;
    let before = world.reaches("ci", 1, 0).await;
    let (job, machine) = world.busy("ci", "go").await;
    assert!(before.hot.contains(&machine), "{machine} is none of {before:?}");
    let filled = world.reaches("ci", 1, 0).await;
    assert_eq!(filled.in_use, before.hot);
    served.shows("bullpen_jobs_assigned_total{how=\"picked\"}", 1).await;
    world.open("go");
    assert_eq!(world.over(job).await.conclusion, Some(Conclusion::Success));
    assert_eq!(world.settled(job).await, End::Completed(Concluded::new("success")));
    let after = world.reaches("ci", 1, 0).await;
    assert_eq!((after.hot, after.in_use.len()), (filled.hot, 0), "the used one ended");
    world.quiet().await;
}

/// Where a ceiling keeps a pool from filling up, the next job starts a stopped machine, and the job
/// after that gets a new machine.
#[tokio::test]
async fn then_a_stopped_machine_is_started_and_then_one_is_launched() {
    let world = World::keeping(&file("", &[pool("ci", 1, 1).with("max: 2")])).await;
    let served = world.serve().await;
    let before = world.reaches("ci", 1, 1).await;
    let (first, hot) = world.busy("ci", "go").await;
    let (second, started) = world.busy("ci", "go").await;
    assert!(before.hot.contains(&hot) && before.stopped.contains(&started), "{before:?}");
    let third = world.job("bullpen/pool=ci", &world.gated("go"));
    world.started(third).await;
    assert_eq!(world.standing("ci").await.in_use, before.ready(), "it runs elsewhere");
    served.shows("bullpen_jobs_assigned_total{how=\"picked\"}", 2).await;
    served.shows("bullpen_jobs_assigned_total{how=\"created\"}", 1).await;
    for (job, overflows) in [(first, false), (second, false), (third, true)] {
        assert_eq!(world.row(job).await.expect("it has a row").overflowed, overflows);
    }
    world.open("go");
    for job in [first, second, third] {
        assert_eq!(world.over(job).await.conclusion, Some(Conclusion::Success));
        world.settled(job).await;
    }
    let after = world.reaches("ci", 1, 1).await;
    assert!(after.in_use.is_empty() && after.ready().is_disjoint(&before.ready()), "{after:?}");
    assert_eq!(world.quiet().await.len(), 2);
}
