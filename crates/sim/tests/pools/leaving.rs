//! Pools that are removed, drained or paused, and come back.

use std::time::Duration;

use bullpen_core::ids::PoolName;
use bullpen_core::instance::State;
use bullpen_core::pool::OperatorOrder;
use bullpen_core::ports::{Ledger, Ports};
use bullpen_engine::pools::{self, Ordered};
use bullpen_sim::clock::on_virtual_time;
use bullpen_sim::pool_world::PoolWorld;

use super::{LONG, MINUTE, ci, end, fill, fill_as, two_and_one};

const NOTHING: &str = "runners: {large: {cpu: 2, ram: 4}}";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

async fn is_forgotten(yard: &PoolWorld) -> bool {
    let journal = yard.world.outside.ledger().document("pools", "ci").await.expect("calm");
    journal.is_none_or(|journal| journal.forget_at.is_some())
}

async fn order(yard: &PoolWorld, order: Option<OperatorOrder>) -> Ordered {
    let stack = yard.world.onlooker();
    pools::order(&stack, &PoolName::new("ci"), order).await.expect("it is calm outside")
}

#[test]
fn a_removed_pool_is_emptied_and_forgotten() {
    on_virtual_time(async {
        let yard = PoolWorld::new(10, &two_and_one()).await;
        fill(&yard, 2, 1).await;
        yard.configure(NOTHING);
        let gone = async || yard.machines().is_empty() && is_forgotten(&yard).await;
        assert!(yard.keep("second", LONG, gone).await, "{:?}", yard.look().await);
        assert_eq!(yard.launched(), 3);
        end(&yard).await;
    });
}

/// Its launches are new ones, although nobody remembers how many there were.
#[test]
fn a_pool_that_was_forgotten_comes_back() {
    on_virtual_time(async {
        let yard = PoolWorld::new(10, &two_and_one()).await;
        fill(&yard, 2, 1).await;
        yard.configure(NOTHING);
        let gone = async || yard.machines().is_empty() && is_forgotten(&yard).await;
        assert!(yard.keep("second", LONG, gone).await, "{:?}", yard.look().await);
        bullpen_sim::clock::pass(DAY + MINUTE).await;
        yard.configure(&two_and_one());
        fill_as(&yard, "third", 2, 1).await;
        assert_eq!(yard.launched(), 6);
        end(&yard).await;
    });
}

/// A machine that runs a job is its job's, whatever becomes of the pool.
#[test]
fn a_machine_in_use_outlives_its_pool() {
    on_virtual_time(async {
        for leaves in [None, Some(OperatorOrder::Drain)] {
            let yard = PoolWorld::new(10, &two_and_one()).await;
            fill(&yard, 2, 1).await;
            yard.queue("7", "pool=ci", 20 * MINUTE);
            let runs = async || {
                let records = yard.records("ci").await;
                records.iter().any(|record| matches!(record.state, State::Running { .. }))
            };
            assert!(yard.until(LONG, runs, yard.serving("one")).await);
            match leaves {
                None => yard.configure(NOTHING),
                some => assert_eq!(order(&yard, some).await, Ordered::Now),
            }
            let alone = async || yard.machines().len() == 1;
            assert!(yard.until(LONG, alone, yard.serving("two")).await, "{:?}", yard.machines());
            assert!(runs().await, "{leaves:?}");
            let over = async || yard.world.jobs.is_over(&"7".into());
            assert!(yard.until(2 * LONG, over, yard.serving("three")).await);
            let job = yard.job("7").await.expect("it has a row");
            assert_eq!(job.attempts, 0, "{job:?}");
            let empty = async || yard.machines().is_empty();
            assert!(yard.until(LONG, empty, yard.serving("four")).await);
            end(&yard).await;
        }
    });
}

#[test]
fn a_drained_pool_stays_empty_until_it_is_resumed() {
    on_virtual_time(async {
        let yard = PoolWorld::new(10, &two_and_one()).await;
        fill(&yard, 2, 1).await;
        assert_eq!(order(&yard, Some(OperatorOrder::Drain)).await, Ordered::Now);
        assert_eq!(order(&yard, Some(OperatorOrder::Drain)).await, Ordered::Already);
        let empty = async || yard.machines().is_empty();
        assert!(yard.keep("second", LONG, empty).await);
        yard.keep_for("third", 5 * MINUTE).await;
        assert_eq!(yard.launched(), 3);
        assert_eq!(order(&yard, None).await, Ordered::Now);
        fill_as(&yard, "fourth", 2, 1).await;
        end(&yard).await;
    });
}

#[test]
fn a_paused_pool_is_left_as_it_is() {
    on_virtual_time(async {
        let yard = PoolWorld::new(10, &two_and_one()).await;
        fill(&yard, 2, 1).await;
        assert_eq!(order(&yard, Some(OperatorOrder::Pause)).await, Ordered::Now);
        yard.configure(&ci("{name: always, hot: 1, stopped: 3}", "version: two", ""));
        let lost = yard.machines().swap_remove(0).id;
        yard.world.outside.fleet().lose(&lost);
        yard.keep_for("second", 5 * MINUTE).await;
        assert_eq!((yard.machines().len(), yard.launched()), (2, 3));
        assert_eq!(order(&yard, None).await, Ordered::Now);
        fill_as(&yard, "third", 1, 3).await;
        end(&yard).await;
    });
}
