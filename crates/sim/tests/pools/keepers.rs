//! Two processes that keep pools: one lease, and who has it after the other.

use std::time::Duration;

use bullpen_core::ids::LeaseName;
use bullpen_core::ports::{Ledger, Ports};
use bullpen_sim::clock::on_virtual_time;
use bullpen_sim::pool_world::PoolWorld;

use super::{LONG, MINUTE, end, two_and_one};

async fn holder(yard: &PoolWorld) -> String {
    let lease = yard.world.outside.ledger().lease(&LeaseName::new("pool/ci")).await.expect("calm");
    lease.map(|lease| lease.holder.to_string()).unwrap_or_default()
}

#[test]
pub(crate) fn one_of_two_keepers_keeps_a_pool() {
    on_virtual_time(async {
        let yard = PoolWorld::new(10, &two_and_one()).await;
        let (one, two) = (yard.keeper("one"), yard.keeper("two"));
        let both = async { tokio::join!(yard.keeping(&one), yard.keeping(&two)).0 };
        let full = async || yard.ready("ci").await == (2, 1) && yard.has_converged().await;
        assert!(yard.until(LONG, full, both).await, "{:?}", yard.checker.verdict());
        assert_eq!(yard.launched(), 3);
        let holder = holder(&yard).await;
        let idle = if holder == "one" { &two } else { &one };
        assert_eq!(idle.wire.writes().get("ledger"), None, "{holder} keeps it");
        assert_eq!(idle.wire.calls().get("fleet"), None, "{holder} keeps it");
    });
}

/// The other sees the lease last renewed one look after that, and over one look after its time.
#[test]
fn a_keeper_that_dies_is_followed_when_its_lease_is_over() {
    on_virtual_time(async {
        let yard = PoolWorld::new(10, &two_and_one()).await;
        let (one, two) = (yard.keeper("one"), yard.keeper("two"));
        let ones = async || holder(&yard).await == "one";
        assert!(yard.until(LONG, ones, yard.keeping(&one)).await);
        let both = async { tokio::join!(yard.keeping(&one), yard.keeping(&two)).0 };
        yard.until(MINUTE + Duration::from_secs(10), async || false, both).await;
        assert_eq!(holder(&yard).await, "one");
        one.wire.kill();
        let (clock, limits) = (yard.world.outside.clock(), &yard.world.limits);
        let died = clock.elapsed();
        let both = async { tokio::join!(yard.keeping(&one), yard.keeping(&two)).0 };
        let twos = async || holder(&yard).await == "two";
        assert!(yard.until(LONG, twos, both).await);
        let took = clock.elapsed().saturating_sub(died);
        assert!(took + limits.pool_lease_renew >= limits.pool_lease, "{took:?}");
        // Looks are up to three halves of their interval apart.
        assert!(took <= limits.pool_lease + 3 * limits.converge, "{took:?}");
        let full = async || yard.ready("ci").await == (2, 1) && yard.has_converged().await;
        assert!(yard.until(LONG, full, yard.keeping(&two)).await);
        two.leases.give_up(&two.stack).await;
        assert_eq!(yard.launched(), 3);
        end(&yard).await;
    });
}

#[test]
fn a_keeper_that_ends_well_is_followed_at_the_next_look() {
    on_virtual_time(async {
        let yard = PoolWorld::new(10, &two_and_one()).await;
        let (one, two) = (yard.keeper("one"), yard.keeper("two"));
        let ones = async || holder(&yard).await == "one";
        assert!(yard.until(LONG, ones, yard.keeping(&one)).await);
        let both = async { tokio::join!(yard.keeping(&one), yard.keeping(&two)).0 };
        yard.until(MINUTE, async || false, both).await;
        one.leases.give_up(&one.stack).await;
        let clock = yard.world.outside.clock();
        let ended = clock.elapsed();
        let twos = async || holder(&yard).await == "two";
        assert!(yard.until(LONG, twos, yard.keeping(&two)).await);
        let took = clock.elapsed().saturating_sub(ended);
        assert!(took < Duration::from_secs(2), "{took:?}");
    });
}
