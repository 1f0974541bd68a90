//! The number of calls that keeping pools costs.
//!
//! Not here: the CPU time it costs (`core`'s benches).

use bullpen_core::class::Usage;
use bullpen_core::ports::Ports;
use bullpen_core::rates::{FleetCall, Rates};
use bullpen_sim::calm_world;
use bullpen_sim::clock::on_virtual_time;
use bullpen_sim::pool_world::PoolWorld;

use super::{LONG, MINUTE, ci, fill, two_and_one};

/// The number of machines in each call of this kind.
fn sizes(calls: &[(FleetCall, u32)], kind: FleetCall) -> Vec<u32> {
    calls.iter().filter(|(call, _)| *call == kind).map(|(_, machines)| *machines).collect()
}

#[test]
pub(crate) fn a_pool_that_has_converged_costs_no_write_but_its_lease() {
    on_virtual_time(async {
        let sim = PoolWorld::new(10, &two_and_one()).await;
        fill(&sim, 2, 1).await;
        // The keeper still writes tags, and the last action in the journal.
        sim.keep_for("second", 2 * MINUTE).await;
        let keeper = sim.keeper("third");
        sim.checker.take_calls();
        sim.until(LONG, async || false, sim.keeping(&keeper)).await;
        let (writes, calls) = (keeper.wire.writes(), keeper.wire.calls());
        assert_eq!(writes.get("ledger"), None, "{writes:?}");
        assert_eq!(calls.get("queues"), None, "{calls:?}");
        let renewed = writes.get("leases").copied().unwrap_or_default();
        assert!((40..=46).contains(&renewed), "taken once, and renewed every 20 s: {renewed}");
        let fleet_calls = sim.checker.take_calls();
        let changing = fleet_calls.iter().find(|(call, _)| *call != FleetCall::Describe);
        assert_eq!(changing, None);
        let looks = calls.get("fleet").copied().unwrap_or_default();
        assert!((20..=60).contains(&looks), "one listing for each look: {looks}");
    });
}

#[test]
fn a_hundred_and_twenty_machines_are_three_calls_of_each_kind() {
    on_virtual_time(async {
        let world = calm_world::new(7, 300).await;
        world.outside.fleet().set_rates(Rates::unlimited());
        // All are warm at the same look, so that one plan stops all.
        world.change_climate(|climate| {
            climate.temper.warm_up_max = std::time::Duration::ZERO;
            climate.delays.boot_max = std::time::Duration::ZERO;
        });
        let sim =
            PoolWorld::in_world(world, &ci("{name: always, hot: 0, stopped: 120}", "", "")).await;
        fill(&sim, 0, 120).await;
        let calls = sim.checker.take_calls();
        assert_eq!(sizes(&calls, FleetCall::Launch), [120], "one launch call");
        assert_eq!(sizes(&calls, FleetCall::Stop), [50, 50, 20]);
        let tagged = sizes(&calls, FleetCall::Tag);
        assert!(tagged.chunks(3).all(|status| status == [50, 50, 20]), "{tagged:?}");
        sim.configure(&ci("{name: always, hot: 0, stopped: 0}", "", ""));
        let empty = async || sim.machines().is_empty();
        assert!(sim.keep("second", LONG, empty).await);
        let calls = sim.checker.take_calls();
        assert_eq!(sizes(&calls, FleetCall::Terminate), [50, 50, 20]);
    });
}

/// Hot and stopped machines of one usage share a launch call; two pools never share one.
#[test]
fn a_launch_is_one_call_for_each_pool_and_usage() {
    on_virtual_time(async {
        for (spot, launches) in [("", vec![1, 5]), (", spot: true", vec![1, 2, 3])] {
            let twin = "\n  twin: {runner: large, schedule: [{name: a, hot: 1, stopped: 0}]}";
            let config = ci("{name: always, hot: 2, stopped: 3}", "", spot);
            let config = config.replace("pools:\n  ci:\n", &format!("pools:{twin}\n  ci:\n"));
            let sim = PoolWorld::new(10, &config).await;
            fill(&sim, 2, 3).await;
            let mut sizes = sizes(&sim.checker.take_calls(), FleetCall::Launch);
            sizes.sort_unstable();
            assert_eq!(sizes, launches);
            let paid = |usage| sim.machines().iter().filter(|it| it.usage == usage).count();
            assert_eq!(paid(Usage::Spot), if spot.is_empty() { 0 } else { 2 });
        }
    });
}
