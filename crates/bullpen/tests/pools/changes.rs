//! A file that changes: a pool's targets, the settings of its machines, and whether the pool
//! exists.
//!
//! Not here: a file with errors (`broken`).

use bullpen_github::stand_in::protocol::Conclusion;

use crate::standby::{Standing, file, pool};
use crate::waiting::until;
use crate::world::World;

/// The service adds machines to the existing ones, and ends all when the target is zero.
#[tokio::test]
async fn a_schedule_goes_up_and_down_to_nothing() {
    let wants = |hot, stopped| file("", &[pool("ci", hot, stopped)]);
    let world = World::keeping(&wants(0, 1)).await;
    let _served = world.serve().await;
    let first = world.reaches("ci", 0, 1).await;
    world.configure(&wants(2, 2));
    let more = world.reaches("ci", 2, 2).await;
    assert!(more.stopped.is_superset(&first.stopped), "{first:?} {more:?}");
    world.configure(&wants(1, 0));
    let less = world.reaches("ci", 1, 0).await;
    assert!(less.hot.is_subset(&more.hot), "{more:?} {less:?}");
    world.configure(&wants(0, 0));
    world.reaches("ci", 0, 0).await;
    assert_eq!(world.quiet().await.len(), 0);
}

/// Another image: a small pool replaces all machines at once, except the machine in use.
#[tokio::test]
async fn another_image_replaces_all_that_are_not_in_use() {
    let of = |image: &str| file(&format!(", image: {image}"), &[pool("ci", 2, 1)]);
    let world = World::keeping(&of("ubuntu22-full-x64")).await;
    let _served = world.serve().await;
    world.reaches("ci", 2, 1).await;
    let (job, busy) = world.busy("ci", "go").await;
    let old = world.reaches("ci", 2, 1).await;
    world.configure(&of("ubuntu24-full-x64"));
    let new = until("new machines", async || {
        let new = world.standing("ci").await;
        assert!(new.in_use.contains(&busy), "{busy} is in use: {new:?}");
        is_replaced(&old, &new).then_some(new)
    })
    .await;
    ends_well(&world, job).await;
    assert_eq!(world.reaches("ci", 2, 1).await.ready(), new.ready());
    world.quiet().await;
}

/// Another version of a rolling pool: new machines come first, so that there are never fewer.
#[tokio::test]
async fn a_rollout_never_has_fewer_ready_and_never_ends_one_in_use() {
    let of = |version| {
        let rolls = pool("ci", 5, 0).version(version).with("rollout: rolling");
        file("", &[rolls])
    };
    let world = World::keeping(&of(1)).await;
    let _served = world.serve().await;
    world.reaches("ci", 5, 0).await;
    let (job, busy) = world.busy("ci", "go").await;
    let old = world.reaches("ci", 5, 0).await;
    world.configure(&of(2));
    let new = until("new machines", async || {
        let new = world.standing("ci").await;
        assert!(new.hot.len() >= 5, "a rollout has new ones first: {new:?}");
        assert!(new.in_use.contains(&busy), "{busy} is in use: {new:?}");
        is_replaced(&old, &new).then_some(new)
    })
    .await;
    ends_well(&world, job).await;
    assert_eq!(world.reaches("ci", 5, 0).await.ready(), new.ready());
    world.quiet().await;
}

/// Whether as many machines stand by as before, and all of them are new.
fn is_replaced(old: &Standing, new: &Standing) -> bool {
    (new.hot.len(), new.stopped.len()) == (old.hot.len(), old.stopped.len())
        && new.ready().is_disjoint(&old.ready())
}

async fn ends_well(world: &World, job: u64) {
    world.open("go");
    assert_eq!(world.over(job).await.conclusion, Some(Conclusion::Success));
    world.settled(job).await;
}

/// The service empties a pool that is removed from the file, except for the machine of a job, which
/// runs to its end; another pool stays as it was.
#[tokio::test]
async fn a_removed_pool_is_emptied_and_a_job_in_it_goes_on() {
    let stays = pool("stays", 1, 0);
    let world = World::keeping(&file("", &[pool("goes", 1, 1), stays])).await;
    let _served = world.serve().await;
    world.reaches("goes", 1, 1).await;
    let others = world.reaches("stays", 1, 0).await;
    let (job, busy) = world.busy("goes", "go").await;
    world.configure(&file("", &[stays]));
    let left = world.reaches("goes", 0, 0).await;
    assert_eq!(left.in_use.into_iter().collect::<Vec<_>>(), [busy]);
    ends_well(&world, job).await;
    assert_eq!(world.reaches("goes", 0, 0).await, Standing::default());
    assert_eq!(world.quiet().await, others.hot);
}
