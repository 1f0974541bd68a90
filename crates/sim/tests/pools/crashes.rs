//! A keeper dies at each of its awaits in turn, while it launches, stops and ends machines: another
//! keeper continues, no machine is left behind, and none is launched twice.
//!
//! Not here: the takeover of a lease in time (`keepers`).

use std::time::Duration;

use bullpen_core::limits::Limits;
use bullpen_sim::clock::on_virtual_time;
use bullpen_sim::life::make_queues;
use bullpen_sim::pool_world::PoolWorld;
use bullpen_sim::world::{CALM, World};

use super::{LONG, ci};

const FEW: &str = "{name: always, hot: 1, stopped: 1}";

/// The work during which the keeper dies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum DiesWhile {
    Filling,
    Replacing,
}

/// One keeper dies at await number `fuse`, and another continues; returns whether the first died.
fn one_life(work: DiesWhile, fuse: u64) -> Result<bool, String> {
    on_virtual_time(async {
        // Looks that find nothing new are all alike: a long interval saves most of them.
        let limits = Limits { converge: Duration::from_secs(120), ..Limits::DEFAULT };
        let world = World::new(7, limits, Vec::new(), CALM.clone());
        make_queues(&world).await;
        let sim = PoolWorld::in_world(world, &ci(FEW, "version: one", "")).await;
        let done = async || sim.ready("ci").await == (1, 1) && sim.has_converged().await;
        let mut launched = 2;
        if work == DiesWhile::Replacing {
            sim.keep("before", LONG, done).await;
            sim.configure(&ci(FEW, "version: two", ""));
            launched = 4;
        }
        let keeper = sim.keeper("first");
        keeper.wire.die_after(fuse);
        let life = async {
            sim.until(LONG, done, sim.keeping(&keeper)).await;
            keeper.leases.give_up(&keeper.stack).await;
        };
        let died = tokio::select! {
            biased;
            () = keeper.wire.died() => true,
            () = Box::pin(life) => false,
        };
        if died && !sim.keep("second", LONG, done).await {
            return Err(format!("{:?}: {:?}", sim.checker.verdict(), sim.look().await));
        }
        if sim.launched() != launched {
            return Err(format!("{} machines were launched", sim.launched()));
        }
        sim.end().await.map(|()| died)
    })
}

fn dies_everywhere(work: DiesWhile) -> u64 {
    let mut fuse = 0;
    loop {
        match one_life(work, fuse) {
            Ok(true) => fuse += 1,
            Ok(false) => return fuse,
            Err(wrong) => panic!("{work:?}, died at await {fuse}: {wrong}"),
        }
    }
}

#[test]
pub(crate) fn a_keeper_that_dies_at_any_await_of_filling_leaves_nothing() {
    let awaits = dies_everywhere(DiesWhile::Filling);
    assert!(awaits > 50, "only {awaits} awaits: the keeper did nothing");
}

#[test]
fn a_keeper_that_dies_at_any_await_of_replacing_leaves_nothing() {
    let awaits = dies_everywhere(DiesWhile::Replacing);
    assert!(awaits > 50, "only {awaits} awaits: the keeper did nothing");
}
