//! An operator removes, drains or pauses a pool, and brings it back.
//!
//! Not here: changes of the schedule (`converging`).

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

async fn is_forgotten(sim: &PoolWorld) -> bool {
    let journal = sim.world.outside.ledger().document("pools", "ci").await.expect("calm");
    journal.is_none_or(|journal| journal.forget_at.is_some())
}

async fn order(sim: &PoolWorld, order: Option<OperatorOrder>) -> Ordered {
    let stack = sim.world.onlooker();
    pools::order(&stack, &PoolName::new("ci"), order).await.expect("the onlooker has no faults")
}

#[test]
fn a_removed_pool_is_emptied_and_forgotten() {
    on_virtual_time(async {
        let sim = PoolWorld::new(10, &two_and_one()).await;
        fill(&sim, 2, 1).await;
        sim.configure(NOTHING);
        let gone = async || sim.machines().is_empty() && is_forgotten(&sim).await;
        assert!(sim.keep("second", LONG, gone).await, "{:?}", sim.look().await);
        assert_eq!(sim.launched(), 3);
        end(&sim).await;
    });
}

/// The pool's launches have new ids, although the journal that counted the old ones is gone.
#[test]
fn a_pool_that_was_forgotten_comes_back() {
    on_virtual_time(async {
        let sim = PoolWorld::new(10, &two_and_one()).await;
        fill(&sim, 2, 1).await;
        sim.configure(NOTHING);
        let gone = async || sim.machines().is_empty() && is_forgotten(&sim).await;
        assert!(sim.keep("second", LONG, gone).await, "{:?}", sim.look().await);
        bullpen_sim::clock::pass(DAY + MINUTE).await;
        sim.configure(&two_and_one());
        fill_as(&sim, "third", 2, 1).await;
        assert_eq!(sim.launched(), 6);
        end(&sim).await;
    });
}

/// A machine that runs a job stays with the job until it ends, although the pool is removed or
/// drained.
#[test]
fn a_machine_in_use_outlives_its_pool() {
    on_virtual_time(async {
        for ordered in [None, Some(OperatorOrder::Drain)] {
            let sim = PoolWorld::new(10, &two_and_one()).await;
            fill(&sim, 2, 1).await;
            sim.queue("7", "pool=ci", 20 * MINUTE);
            let runs = async || {
                let records = sim.records("ci").await;
                records.iter().any(|record| matches!(record.state, State::Running { .. }))
            };
            assert!(sim.until(LONG, runs, sim.serving("one")).await);
            match ordered {
                None => sim.configure(NOTHING),
                some => assert_eq!(order(&sim, some).await, Ordered::Now),
            }
            let alone = async || sim.machines().len() == 1;
            assert!(sim.until(LONG, alone, sim.serving("two")).await, "{:?}", sim.machines());
            assert!(runs().await, "{ordered:?}");
            let over = async || sim.world.jobs.is_over(&"7".into());
            assert!(sim.until(2 * LONG, over, sim.serving("three")).await);
            let job = sim.job("7").await.expect("it has a row");
            assert_eq!(job.attempts, 0, "{job:?}");
            let empty = async || sim.machines().is_empty();
            assert!(sim.until(LONG, empty, sim.serving("four")).await);
            end(&sim).await;
        }
    });
}

#[test]
fn a_drained_pool_stays_empty_until_it_is_resumed() {
    on_virtual_time(async {
        let sim = PoolWorld::new(10, &two_and_one()).await;
        fill(&sim, 2, 1).await;
        assert_eq!(order(&sim, Some(OperatorOrder::Drain)).await, Ordered::Now);
        assert_eq!(order(&sim, Some(OperatorOrder::Drain)).await, Ordered::Already);
        let empty = async || sim.machines().is_empty();
        assert!(sim.keep("second", LONG, empty).await);
        sim.keep_for("third", 5 * MINUTE).await;
        assert_eq!(sim.launched(), 3);
        assert_eq!(order(&sim, None).await, Ordered::Now);
        fill_as(&sim, "fourth", 2, 1).await;
        end(&sim).await;
    });
}

#[test]
fn a_paused_pool_is_left_as_it_is() {
    on_virtual_time(async {
        let sim = PoolWorld::new(10, &two_and_one()).await;
        fill(&sim, 2, 1).await;
        assert_eq!(order(&sim, Some(OperatorOrder::Pause)).await, Ordered::Now);
        sim.configure(&ci("{name: always, hot: 1, stopped: 3}", "version: two", ""));
        let lost = sim.machines().swap_remove(0).id;
        sim.world.outside.fleet().lose(&lost);
        sim.keep_for("second", 5 * MINUTE).await;
        assert_eq!((sim.machines().len(), sim.launched()), (2, 3));
        assert_eq!(order(&sim, None).await, Ordered::Now);
        fill_as(&sim, "third", 1, 3).await;
        end(&sim).await;
    });
}
