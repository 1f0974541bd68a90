//! A keeper dies at every await it makes, one after the other, while it launches, stops and ends
//! machines: another goes on, nothing is left behind and nothing is launched twice.

use std::time::Duration;

use bullpen_core::limits::Limits;
use bullpen_sim::clock::on_virtual_time;
use bullpen_sim::life::make_queues;
use bullpen_sim::pool_world::PoolWorld;
use bullpen_sim::world::{CALM, World};

use super::{LONG, ci};

const FEW: &str = "{name: always, hot: 1, stopped: 1}";

/// What a keeper is at when it dies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum At {
    Filling,
    Replacing,
}

/// One keeper, dead at its await number `fuse`, and another; whether the first did die.
fn one_life(at: At, fuse: u64) -> Result<bool, String> {
    on_virtual_time(async {
        // Looks that find nothing new are all alike.
        let limits = Limits { converge: Duration::from_secs(120), ..Limits::DEFAULT };
        let world = World::new(7, limits, Vec::new(), CALM.clone());
        make_queues(&world).await;
        let yard = PoolWorld::in_world(world, &ci(FEW, "version: one", "")).await;
        let done = async || yard.ready("ci").await == (1, 1) && yard.has_converged().await;
        let mut launched = 2;
        if at == At::Replacing {
            yard.keep("before", LONG, done).await;
            yard.configure(&ci(FEW, "version: two", ""));
            launched = 4;
        }
        let keeper = yard.keeper("first");
        keeper.wire.die_after(fuse);
        let life = async {
            yard.until(LONG, done, yard.keeping(&keeper)).await;
            keeper.leases.give_up(&keeper.stack).await;
        };
        let died = tokio::select! {
            biased;
            () = keeper.wire.died() => true,
            () = Box::pin(life) => false,
        };
        if died && !yard.keep("second", LONG, done).await {
            return Err(format!("{:?}: {:?}", yard.checker.verdict(), yard.look().await));
        }
        if yard.launched() != launched {
            return Err(format!("{} machines were launched", yard.launched()));
        }
        yard.end().await.map(|()| died)
    })
}

fn dies_everywhere(at: At) -> u64 {
    let mut fuse = 0;
    loop {
        match one_life(at, fuse) {
            Ok(true) => fuse += 1,
            Ok(false) => return fuse,
            Err(wrong) => panic!("{at:?}, died at await {fuse}: {wrong}"),
        }
    }
}

#[test]
pub(crate) fn a_keeper_that_dies_at_any_await_of_filling_leaves_nothing() {
    let awaits = dies_everywhere(At::Filling);
    assert!(awaits > 50, "only {awaits} awaits: it did nothing");
}

#[test]
fn a_keeper_that_dies_at_any_await_of_replacing_leaves_nothing() {
    let awaits = dies_everywhere(At::Replacing);
    assert!(awaits > 50, "only {awaits} awaits: it did nothing");
}
