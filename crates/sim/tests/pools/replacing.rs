//! The keeper replaces outdated machines: all at once, or a few at a time.
//!
//! Not here: hot machines that reach their lifetime (`lifetimes`).

use std::cell::Cell;
use std::collections::BTreeSet;

use bullpen_core::class::Usage;
use bullpen_core::ids::{InstanceId, SpecHash};
use bullpen_core::instance::State;
use bullpen_sim::calm_world::{self, IdleMachines};
use bullpen_sim::clock::on_virtual_time;
use bullpen_sim::pool_world::PoolWorld;

use super::{LONG, MINUTE, ci, end, fill};

const FOUR: &str = "{name: always, hot: 4, stopped: 4}";

async fn ids(sim: &PoolWorld) -> BTreeSet<InstanceId> {
    sim.records("ci").await.into_iter().map(|record| record.id).collect()
}

/// Replaces all eight machines; returns the fewest ready machines and the most machines seen at any
/// look.
async fn replace(rollout: &str, max: u32, change: impl Fn(&PoolWorld)) -> (usize, usize) {
    let extension = format!(", rollout: {rollout}, max: {max}");
    let sim = PoolWorld::new(20, &ci(FOUR, "version: one", &extension)).await;
    fill(&sim, 4, 4).await;
    let old = ids(&sim).await;
    change(&sim);
    if sim.has_converged().await {
        sim.configure(&ci(FOUR, "version: two", &extension));
    }
    let (fewest, most) = (Cell::new(8), Cell::new(8));
    let done = async || {
        let (hot, stopped) = sim.ready("ci").await;
        fewest.set(fewest.get().min(hot + stopped));
        let records = sim.records("ci").await.into_iter();
        let staying = records.filter(|it| !matches!(it.state, State::Terminating { .. }));
        most.set(most.get().max(staying.count()));
        ids(&sim).await.is_disjoint(&old) && sim.has_converged().await
    };
    assert!(
        sim.keep("second", 4 * LONG, done).await,
        "{:?} {:?}",
        sim.checker.verdict(),
        sim.ready("ci").await
    );
    assert_eq!((sim.ready("ci").await, sim.launched()), ((4, 4), 16));
    end(&sim).await;
    (fewest.get(), most.get())
}

#[test]
fn immediate_replaces_all_at_once() {
    let (fewest, _) = on_virtual_time(replace("immediate", 20, |_| {}));
    assert_eq!(fewest, 0);
}

/// The keeper launches a quarter of each tier in advance; ready machines never fall below the
/// target.
#[test]
fn rolling_replaces_a_few_at_a_time_and_misses_none() {
    let (fewest, most) = on_virtual_time(replace("rolling", 20, |_| {}));
    assert_eq!(fewest, 8);
    assert!(most <= 10, "{most}");
}

/// If the ceiling allows no machine in advance, at most a quarter of each tier is missing.
#[test]
fn rolling_under_a_full_ceiling_misses_a_quarter_at_most() {
    let (fewest, most) = on_virtual_time(replace("rolling", 8, |_| {}));
    assert!((6..8).contains(&fewest), "{fewest}");
    assert!(most <= 8, "{most}");
}

#[test]
fn a_new_image_replaces_all() {
    on_virtual_time(replace("rolling", 20, |sim| sim.build_from("ami-2")));
}

/// Spec hashes of two versions of Bullpen are not compared: they may differ for equal machines.
#[test]
pub(crate) fn a_machine_of_another_versions_hash_is_not_old() {
    on_virtual_time(async {
        let world = calm_world::new(7, 10).await;
        let older = IdleMachines {
            spec_hash: SpecHash::new("0:aa"),
            lasts: 60 * MINUTE,
            pooled: true,
            ..IdleMachines::plain("made before", Usage::OnDemand, 2)
        };
        calm_world::add_machines(&world, &older).await.expect("it is calm");
        let config = ci("{name: always, hot: 2, stopped: 0}", "", "");
        let sim =
            PoolWorld::in_world(world, &config.replace("ci:", &format!("{}:", calm_world::POOL)))
                .await;
        sim.keep_for("first", 10 * MINUTE).await;
        assert_eq!((sim.ready(calm_world::POOL).await, sim.launched()), ((2, 0), 2));
        end(&sim).await;
    });
}
