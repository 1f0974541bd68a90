//! Hot machines that grow old: the replacement comes first, and there is a hard end.

use std::cell::Cell;

use bullpen_core::ports::Ports;
use bullpen_core::time::Timestamp;
use bullpen_sim::clock::on_virtual_time;
use bullpen_sim::pool_world::PoolWorld;

use super::{MINUTE, end, fill};

/// Two hot machines that are due after ten minutes.
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

/// When the oldest machine there is was launched.
fn oldest(yard: &PoolWorld) -> Option<Timestamp> {
    yard.machines().iter().map(|machine| machine.launched_at).min()
}

#[test]
fn a_hot_machine_serves_until_its_replacement_is_ready() {
    on_virtual_time(async {
        let yard = PoolWorld::new(10, DUE).await;
        fill(&yard, 2, 0).await;
        let fewest = Cell::new(2);
        let watched = async || {
            fewest.set(fewest.get().min(yard.ready("ci").await.0));
            false
        };
        yard.keep("second", 60 * MINUTE, watched).await;
        assert_eq!(fewest.get(), 2);
        let launched = yard.launched();
        assert!((8..=14).contains(&launched), "two each eight to twelve minutes: {launched}");
        end(&yard).await;
    });
}

#[test]
fn a_hot_machine_that_cannot_be_replaced_ends_all_the_same() {
    on_virtual_time(async {
        let yard = PoolWorld::new(10, DUE).await;
        fill(&yard, 2, 0).await;
        yard.world.outside.fleet().limit_capacity(Some(0));
        let began = yard.world.outside.clock().true_now();
        let gone = async || yard.machines().is_empty();
        let first = async || yard.ready("ci").await.0 < 2;
        assert!(yard.keep("second", 20 * MINUTE, first).await);
        let stood = yard.world.outside.clock().true_now().since(began);
        assert!(stood > 11 * MINUTE, "kept past its time for want of another: {stood:?}");
        assert!(yard.keep("third", 10 * MINUTE, gone).await, "{:?}", oldest(&yard));
        let lived = yard.world.outside.clock().true_now().since(began);
        assert!(lived < 19 * MINUTE, "{lived:?}");
        end(&yard).await;
    });
}
