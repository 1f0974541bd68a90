//! What keeping pools costs: calls, counted.
//!
//! Not here: what it costs in time of a processor (`core`'s benches).

use bullpen_core::class::Usage;
use bullpen_core::ports::Ports;
use bullpen_core::rates::{FleetCall, Rates};
use bullpen_sim::clock::on_virtual_time;
use bullpen_sim::pool_world::PoolWorld;
use bullpen_sim::stage;

use super::{LONG, MINUTE, ci, fill, two_and_one};

/// How many machines each call of this kind was about.
fn sizes(calls: &[(FleetCall, u32)], kind: FleetCall) -> Vec<u32> {
    calls.iter().filter(|(call, _)| *call == kind).map(|(_, machines)| *machines).collect()
}

#[test]
pub(crate) fn a_pool_that_has_converged_costs_no_write_but_its_lease() {
    on_virtual_time(async {
        let yard = PoolWorld::new(10, &two_and_one()).await;
        fill(&yard, 2, 1).await;
        // Tags, and the last deed in the journal.
        yard.keep_for("second", 2 * MINUTE).await;
        let keeper = yard.keeper("third");
        yard.checker.take_calls();
        yard.until(LONG, async || false, yard.keeping(&keeper)).await;
        let (writes, calls) = (keeper.wire.writes(), keeper.wire.calls());
        assert_eq!(writes.get("ledger"), None, "{writes:?}");
        assert_eq!(calls.get("queues"), None, "{calls:?}");
        let renewed = writes.get("leases").copied().unwrap_or_default();
        assert!((40..=46).contains(&renewed), "each 20 s for 15 min, and once taken: {renewed}");
        let asked = yard.checker.take_calls();
        let written = asked.iter().find(|(call, _)| *call != FleetCall::Describe);
        assert_eq!(written, None);
        let looks = calls.get("fleet").copied().unwrap_or_default();
        assert!((20..=60).contains(&looks), "one list a look: {looks}");
    });
}

#[test]
fn a_hundred_and_twenty_machines_are_three_calls_of_each_kind() {
    on_virtual_time(async {
        let world = stage::calm(7, 300).await;
        world.outside.fleet().set_rates(Rates::unlimited());
        // All warm at the same look, so that all are stopped by one plan.
        world.change_climate(|climate| {
            climate.temper.warm_up_max = std::time::Duration::ZERO;
            climate.delays.boot_max = std::time::Duration::ZERO;
        });
        let yard =
            PoolWorld::in_world(world, &ci("{name: always, hot: 0, stopped: 120}", "", "")).await;
        fill(&yard, 0, 120).await;
        let calls = yard.checker.take_calls();
        assert_eq!(sizes(&calls, FleetCall::Launch), [120], "one launch");
        assert_eq!(sizes(&calls, FleetCall::Stop), [50, 50, 20]);
        let tagged = sizes(&calls, FleetCall::Tag);
        assert!(tagged.chunks(3).all(|status| status == [50, 50, 20]), "{tagged:?}");
        yard.configure(&ci("{name: always, hot: 0, stopped: 0}", "", ""));
        let empty = async || yard.machines().is_empty();
        assert!(yard.keep("second", LONG, empty).await);
        let calls = yard.checker.take_calls();
        assert_eq!(sizes(&calls, FleetCall::Terminate), [50, 50, 20]);
    });
}

/// One call for what is paid for alike, however it will stand by; one each for two pools.
#[test]
fn a_launch_is_one_call_for_each_pool_and_usage() {
    on_virtual_time(async {
        for (spot, launches) in [("", vec![1, 5]), (", spot: true", vec![1, 2, 3])] {
            let twin = "\n  twin: {runner: large, schedule: [{name: a, hot: 1, stopped: 0}]}";
            let config = ci("{name: always, hot: 2, stopped: 3}", "", spot);
            let config = config.replace("pools:\n  ci:\n", &format!("pools:{twin}\n  ci:\n"));
            let yard = PoolWorld::new(10, &config).await;
            fill(&yard, 2, 3).await;
            let mut sizes = sizes(&yard.checker.take_calls(), FleetCall::Launch);
            sizes.sort_unstable();
            assert_eq!(sizes, launches);
            let paid = |usage| yard.machines().iter().filter(|it| it.usage == usage).count();
            assert_eq!(paid(Usage::Spot), if spot.is_empty() { 0 } else { 2 });
        }
    });
}
