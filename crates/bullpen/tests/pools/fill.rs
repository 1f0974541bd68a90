//! A pool from empty to its target.
//!
//! Not here: how it leaves its target again (`jobs`, `changes`, `back`).

use crate::standby::{file, pool};
use crate::world::World;

/// The service launches as many as the target says; another plan finds nothing to do.
#[tokio::test]
async fn from_empty_to_the_target_and_nothing_after_that() {
    let both = |other| file("", &[pool("ci", 2, 1), pool("other", other, 0)]);
    let world = World::keeping(&both(0)).await;
    let served = world.serve_with("--roles webhook,pools").await;
    let reached = world.reaches("ci", 2, 1).await;
    served.shows("bullpen_pool_instances{pool=\"ci\",state=\"ready\"}", 3).await;
    served.shows("bullpen_pool_desired{pool=\"ci\",kind=\"stopped\"}", 1).await;
    let done = served.metrics("bullpen_pool_actions_total{pool=\"ci\"").await;
    let created = done.iter().filter(|line| line.contains("create")).collect::<Vec<_>>();
    assert_eq!(created, [",action=\"create\",reason=\"missing\"} 3"]);
    world.run("pools plan").await.exits(0);
    // Another pool grows: the cycle that saw that has planned all pools.
    world.configure(&both(1));
    world.reaches("other", 1, 0).await;
    assert_eq!(world.standing("ci").await, reached);
    assert_eq!(served.metrics("bullpen_pool_actions_total{pool=\"ci\"").await, done);
    assert_eq!(world.quiet().await.len(), 4);
}
