//! Hot machines expire: the keeper replaces them in time, and ends them at a fixed limit.
//!
//! Not here: outdated machines (`replacing`).

use std::cell::Cell;

use bullpen_core::ports::Ports;
use bullpen_core::time::Timestamp;
use bullpen_sim::clock::on_virtual_time;
use bullpen_sim::pool_world::PoolWorld;

use super::{MINUTE, end, fill};

/// Two hot machines with a lifetime of ten minutes.
const DUE: &str = "
runners:
  large: {cpu: 2, ram: 4}
pools:
  ci:
    runner: large
    schedule: [{name: always, hot: 2, stopped: 0}]
x-bullpen:
  pools:
    ci: {hot-lifetime: 10m}
";

/// The launch time of the oldest machine.
fn oldest(sim: &PoolWorld) -> Option<Timestamp> {
    sim.machines().iter().map(|machine| machine.launched_at).min()
}

#[test]
fn a_hot_machine_serves_until_its_replacement_is_ready() {
    on_virtual_time(async {
        let sim = PoolWorld::new(10, DUE).await;
        fill(&sim, 2, 0).await;
        let fewest = Cell::new(2);
        let watched = async || {
            fewest.set(fewest.get().min(sim.ready("ci").await.0));
            false
        };
        sim.keep("second", 60 * MINUTE, watched).await;
        assert_eq!(fewest.get(), 2);
        let launched = sim.launched();
        assert!((8..=14).contains(&launched), "two every eight to twelve minutes: {launched}");
        end(&sim).await;
    });
}

#[test]
fn a_hot_machine_that_cannot_be_replaced_ends_all_the_same() {
    on_virtual_time(async {
        let sim = PoolWorld::new(10, DUE).await;
        fill(&sim, 2, 0).await;
        sim.world.outside.fleet().limit_capacity(Some(0));
        let began = sim.world.outside.clock().true_now();
        let gone = async || sim.machines().is_empty();
        let first = async || sim.ready("ci").await.0 < 2;
        assert!(sim.keep("second", 20 * MINUTE, first).await);
        let stood = sim.world.outside.clock().true_now().since(began);
        assert!(stood > 11 * MINUTE, "the keeper ended it without a replacement: {stood:?}");
        assert!(sim.keep("third", 10 * MINUTE, gone).await, "{:?}", oldest(&sim));
        let lived = sim.world.outside.clock().true_now().since(began);
        assert!(lived < 19 * MINUTE, "{lived:?}");
        end(&sim).await;
    });
}
