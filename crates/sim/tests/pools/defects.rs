//! A defect of one pool: its cycles panic, and the process keeps the other pools.
//!
//! Not here: panics about rows or steps (`tests/jobs`).

use bullpen_core::ids::PoolName;
use bullpen_core::ports::Ports;
use bullpen_sim::clock::on_virtual_time;
use bullpen_sim::pool_world::PoolWorld;

use super::{LONG, end};

const TWO_POOLS: &str = "
runners:
  large: {cpu: 2, ram: 4}
pools:
  ci:
    runner: large
    schedule: [{name: always, hot: 1, stopped: 0}]
  odd:
    runner: large
    schedule: [{name: always, hot: 1, stopped: 0}]
x-bullpen:
  pools:
    ci: {hot-lifetime: 16h}
    odd: {hot-lifetime: 16h}
";

#[test]
pub(crate) fn a_pool_whose_cycles_panic_stops_no_other() {
    on_virtual_time(async {
        let sim = PoolWorld::new(10, TWO_POOLS).await;
        sim.world.outside.fleet().break_launches_of(Some(PoolName::new("odd")));
        let full = async || sim.ready("ci").await == (1, 0);
        assert!(sim.keep("first", LONG, full).await, "{:?}", sim.look().await);
        assert!(sim.world.onlooker().defects.counts().contains_key("pool"));
        assert_eq!(sim.ready("odd").await, (0, 0));
        // With the defect repaired the same pool goes on.
        sim.world.outside.fleet().break_launches_of(None);
        let full = async || sim.ready("odd").await == (1, 0);
        assert!(sim.keep("second", LONG, full).await, "{:?}", sim.look().await);
        end(&sim).await;
    });
}
