//! The service killed at random moments while its pools fill, roll and shrink.
//!
//! Not here: jobs meanwhile (`tests/service`), or several processes (`aws`).

use std::time::Duration;

use bullpen_sim::dice::Dice;

use crate::process::pass;
use crate::standby::{QUICK, file, pool};
use crate::world::{HASTY, World};

const KILLS: u32 = 10;
/// The longest that a process lives: a machine is hot after about a third of it.
const LIFE_MAX: Duration = Duration::from_millis(4_000);

/// Seeds that once failed are kept here.
const SEEDS: [u64; 1] = [2];

/// Short leases, so that the next process does not wait long for them.
const LEASES: [(&str, &str); 2] = [("pool-lease", "900ms"), ("pool-lease-renew", "300ms")];

/// After kills at any moment the next process reaches the targets, and no machine is left over.
#[tokio::test]
async fn ten_kills_leave_nothing_that_the_next_one_does_not_put_right() {
    for seed in SEEDS {
        let dice = Dice::new(seed, "pools killed");
        let limits: Vec<_> = HASTY.iter().chain(QUICK).chain(&LEASES).copied().collect();
        let world = World::configured(&file("", &[pool("ci", 2, 1)]), &limits).await;
        for _ in 0..KILLS {
            let served = world.serve().await;
            pass(dice.between(Duration::ZERO, LIFE_MAX)).await;
            served.kill().await;
            world.configure(&some(&dice));
        }
        world.configure(&file("", &[pool("ci", 2, 1).version(9), pool("rest", 0, 1)]));
        let _served = world.serve().await;
        world.reaches("ci", 2, 1).await;
        world.reaches("rest", 0, 1).await;
        world.reaches("more", 0, 0).await;
        assert_eq!(world.quiet().await.len(), 4, "seed {seed}");
        world.run("pools plan").await.exits(0);
    }
}

/// Some pools: larger or smaller, of another version, or absent.
fn some(dice: &Dice) -> String {
    let version = if dice.chance(500) { 1 } else { 2 };
    let mut pools = Vec::new();
    for name in ["ci", "more"] {
        let size = || if dice.chance(400) { 0 } else { 2 };
        let rollout = if dice.chance(500) { "rollout: rolling" } else { "rollout: immediate" };
        if dice.chance(800) {
            pools.push(pool(name, size(), size()).version(version).with(rollout));
        }
    }
    file("", &pools)
}
