//! Two processes keep pools: one holds the pool's lease, and the other takes it over.
//!
//! Not here: keepers that die at every await (`crashes`).

use std::time::Duration;

use bullpen_core::ids::LeaseName;
use bullpen_core::pool::journal::COLLECTION;
use bullpen_core::ports::{Ledger, Ports};
use bullpen_sim::clock::on_virtual_time;
use bullpen_sim::pool_world::PoolWorld;

use super::{LONG, MINUTE, end, two_and_one};

async fn holder(sim: &PoolWorld) -> String {
    let lease = sim.world.outside.ledger().lease(&LeaseName::new("pool/ci")).await.expect("calm");
    lease.map(|lease| lease.holder.to_string()).unwrap_or_default()
}

#[test]
pub(crate) fn one_of_two_keepers_keeps_a_pool() {
    on_virtual_time(async {
        let sim = PoolWorld::new(10, &two_and_one()).await;
        let (one, two) = (sim.keeper("one"), sim.keeper("two"));
        let both = async { tokio::join!(sim.keeping(&one), sim.keeping(&two)).0 };
        let full = async || sim.ready("ci").await == (2, 1) && sim.has_converged().await;
        assert!(sim.until(LONG, full, both).await, "{:?}", sim.checker.verdict());
        assert_eq!(sim.launched(), 3);
        let holder = holder(&sim).await;
        let idle = if holder == "one" { &two } else { &one };
        assert_eq!(idle.wire.writes().get("ledger"), None, "{holder} keeps the pool");
        assert_eq!(idle.wire.calls().get("fleet"), None, "{holder} keeps the pool");
    });
}

/// The second keeper sees the last renewal one look later, and the expiry one look after it.
#[test]
fn a_keeper_that_dies_is_followed_when_its_lease_expires() {
    on_virtual_time(async {
        let sim = PoolWorld::new(10, &two_and_one()).await;
        let (one, two) = (sim.keeper("one"), sim.keeper("two"));
        let ones = async || holder(&sim).await == "one";
        assert!(sim.until(LONG, ones, sim.keeping(&one)).await);
        let both = async { tokio::join!(sim.keeping(&one), sim.keeping(&two)).0 };
        sim.until(MINUTE + Duration::from_secs(10), async || false, both).await;
        assert_eq!(holder(&sim).await, "one");
        one.wire.kill();
        let (clock, limits) = (sim.world.outside.clock(), &sim.world.limits);
        let died = clock.elapsed();
        let both = async { tokio::join!(sim.keeping(&one), sim.keeping(&two)).0 };
        let twos = async || holder(&sim).await == "two";
        assert!(sim.until(LONG, twos, both).await);
        let took = clock.elapsed().saturating_sub(died);
        assert!(took + limits.pool_lease_renew >= limits.pool_lease, "{took:?}");
        // Two looks are at most one and a half intervals apart.
        assert!(took <= limits.pool_lease + 3 * limits.converge, "{took:?}");
        let full = async || sim.ready("ci").await == (2, 1) && sim.has_converged().await;
        assert!(sim.until(LONG, full, sim.keeping(&two)).await);
        two.leases.give_up(&two.stack).await;
        assert_eq!(sim.launched(), 3);
        end(&sim).await;
    });
}

/// A keeper that cannot read a pool's journal lets the lease go, and does not take it again: a newer
/// replica can keep the pool meanwhile.
#[test]
pub(crate) fn a_keeper_lets_go_of_a_pool_whose_journal_it_cannot_read() {
    on_virtual_time(async {
        let sim = PoolWorld::new(10, &two_and_one()).await;
        let one = sim.keeper("one");
        let ledger = sim.world.outside.ledger();
        let is_free = async || {
            let lease = ledger.lease(&LeaseName::new("pool/ci")).await.expect("calm");
            lease.is_some_and(|lease| lease.is_free())
        };
        let full = async || sim.ready("ci").await == (2, 1) && sim.has_converged().await;
        assert!(sim.until(LONG, full, sim.keeping(&one)).await);
        assert!(ledger.reword(COLLECTION, "ci", true), "the pool has a journal");
        let cycle = sim.world.limits.converge * 3 / 2 + Duration::from_secs(1);
        assert!(sim.until(cycle, &is_free, sim.keeping(&one)).await, "the lease is held");
        let written = one.wire.writes().get("leases").copied();
        sim.until(5 * MINUTE, async || false, sim.keeping(&one)).await;
        assert!(is_free().await, "the keeper took the lease again");
        assert_eq!(one.wire.writes().get("leases").copied(), written);
        assert!(ledger.reword(COLLECTION, "ci", false));
        let ones = async || holder(&sim).await == "one";
        assert!(sim.until(2 * cycle, ones, sim.keeping(&one)).await, "the pool is kept again");
        assert_eq!(sim.launched(), 3);
        end(&sim).await;
    });
}

#[test]
fn a_keeper_that_gives_up_its_lease_is_followed_at_the_next_look() {
    on_virtual_time(async {
        let sim = PoolWorld::new(10, &two_and_one()).await;
        let (one, two) = (sim.keeper("one"), sim.keeper("two"));
        let ones = async || holder(&sim).await == "one";
        assert!(sim.until(LONG, ones, sim.keeping(&one)).await);
        let both = async { tokio::join!(sim.keeping(&one), sim.keeping(&two)).0 };
        sim.until(MINUTE, async || false, both).await;
        one.leases.give_up(&one.stack).await;
        let clock = sim.world.outside.clock();
        let ended = clock.elapsed();
        let twos = async || holder(&sim).await == "two";
        assert!(sim.until(LONG, twos, sim.keeping(&two)).await);
        let took = clock.elapsed().saturating_sub(ended);
        assert!(took < Duration::from_secs(2), "{took:?}");
    });
}
