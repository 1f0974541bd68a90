//! The keeper converges pools to their schedules, under ceilings and shortages, in one environment.
//!
//! Not here: outdated machines (`replacing`), or faults (`rounds`, `troubles`).

use bullpen_core::class::Usage;
use bullpen_core::creation::{Ceiling, Scope};
use bullpen_core::ids::ClassName;
use bullpen_core::instance::State;
use bullpen_core::limits::Limits;
use bullpen_core::pool::Note;
use bullpen_core::ports::{Ledger, Ports};
use bullpen_core::rates::FleetCall;
use bullpen_sim::calm_world;
use bullpen_sim::clock::on_virtual_time;
use bullpen_sim::life::make_queues;
use bullpen_sim::pool_world::PoolWorld;
use bullpen_sim::world::{CALM, World};

use super::{LONG, MINUTE, ci, end, fill, fill_as, two_and_one};

#[test]
pub(crate) fn an_empty_pool_is_filled_to_its_schedule() {
    on_virtual_time(async {
        let sim = PoolWorld::new(10, &two_and_one()).await;
        fill(&sim, 2, 1).await;
        assert_eq!(sim.launched(), 3);
        end(&sim).await;
    });
}

#[test]
fn a_pool_follows_the_edges_of_its_schedule() {
    on_virtual_time(async {
        let entries = "{name: default, hot: 1, stopped: 0}, \
                       {name: rush, hot: 3, stopped: 2, match: {time: [\"00:10\", \"00:40\"]}}";
        let sim = PoolWorld::new(10, &ci(entries, "", "")).await;
        fill(&sim, 1, 0).await;
        let clock = sim.world.outside.clock();
        sim.keep_for("calm", (10 * MINUTE).saturating_sub(clock.elapsed())).await;
        assert_eq!(sim.ready("ci").await, (1, 0), "the schedule changed too early");
        fill_as(&sim, "up", 3, 2).await;
        assert!(clock.elapsed() < 16 * MINUTE, "{:?}", clock.elapsed());
        sim.keep_for("rush", (40 * MINUTE).saturating_sub(clock.elapsed())).await;
        assert_eq!(sim.ready("ci").await, (3, 2), "the schedule changed too early");
        fill_as(&sim, "down", 1, 0).await;
        assert!(clock.elapsed() < 43 * MINUTE, "{:?}", clock.elapsed());
        assert_eq!(sim.launched(), 5);
        end(&sim).await;
    });
}

/// The idle machines of a pool that another stack keeps are in the same ledger.
#[test]
fn a_pool_of_another_environment_is_not_touched() {
    on_virtual_time(async {
        let world = calm_world::new(7, 10).await;
        let others = calm_world::add_idle(&world, Usage::OnDemand, 2).await;
        let stage =
            "\n  stage: {runner: large, env: staging, schedule: [{name: a, hot: 0, stopped: 0}]}";
        let config = two_and_one().replace("pools:\n  ci:\n", &format!("pools:{stage}\n  ci:\n"));
        let sim = PoolWorld::in_world(world, &config).await;
        fill(&sim, 2, 1).await;
        for other in others {
            let record = sim.world.outside.ledger().read(&other.id).await.expect("calm");
            assert_eq!(record, Some(other));
        }
        assert_eq!(sim.launched(), 5);
        end(&sim).await;
    });
}

/// The ceiling of a pool counts the machines that jobs picked from it.
#[test]
fn a_pools_own_ceiling_counts_its_jobs_machines() {
    on_virtual_time(async {
        let config = ci("{name: always, hot: 2, stopped: 1}", "", ", max: 3");
        let sim = PoolWorld::new(10, &config).await;
        fill(&sim, 2, 1).await;
        sim.queue("7", "pool=ci", 10 * MINUTE);
        let noted = async || matches!(sim.notes("ci")[..], [Note::Ceiling { max: 3, used: 3, .. }]);
        assert!(sim.until(5 * MINUTE, noted, sim.serving("one")).await, "{:?}", sim.notes("ci"));
        assert_eq!((sim.ready("ci").await, sim.launched()), ((1, 1), 3));
        let full = async || sim.ready("ci").await == (2, 1) && sim.has_converged().await;
        assert!(sim.until(LONG, full, sim.serving("two")).await, "{:?}", sim.look().await);
        assert_eq!(sim.launched(), 4);
        end(&sim).await;
    });
}

/// Two pools together want more machines than the ceiling of their stack, or of their class,
/// allows. The keeper launches up to the ceiling; the checker sees that no launch in flight exceeds
/// it.
#[test]
pub(crate) fn shared_ceilings_hold_while_launches_are_in_flight() {
    on_virtual_time(async {
        for scope in [Scope::Stack, Scope::Class(ClassName::new("large"))] {
            let ceilings = vec![Ceiling { scope, max: 3 }];
            let world = World::new(7, Limits::DEFAULT, ceilings, CALM.clone());
            make_queues(&world).await;
            let twin = "\n  twin: {runner: large, schedule: [{name: a, hot: 2, stopped: 0}]}";
            let config = ci("{name: a, hot: 1, stopped: 1}", "", "");
            let config = config.replace("pools:\n  ci:\n", &format!("pools:{twin}\n  ci:\n"));
            let sim = PoolWorld::in_world(world, &config).await;
            let all = async || sim.machines().len() == 3 && sim.has_converged().await;
            assert!(sim.keep("one", LONG, all).await, "{:?}", sim.checker.verdict());
            let notes = [sim.notes("ci"), sim.notes("twin")].concat();
            assert!(matches!(notes[..], [Note::Ceiling { max: 3, .. }]), "{notes:?}");
            end(&sim).await;
        }
    });
}

#[test]
fn a_cloud_without_capacity_is_not_asked_again_at_once() {
    on_virtual_time(async {
        let sim = PoolWorld::new(10, &two_and_one()).await;
        let (fleet, memory) = (sim.world.outside.fleet(), sim.world.limits.shortage_memory);
        fleet.limit_capacity(Some(0));
        let launches = || {
            let calls = sim.checker.take_calls();
            calls.iter().filter(|(call, _)| *call == FleetCall::Launch).count()
        };
        let refused = async || sim.notes("ci").iter().any(|note| note.code() == "no-capacity");
        assert!(sim.keep("one", LONG, refused).await);
        assert_eq!(launches(), 1);
        sim.keep_for("one again", memory.saturating_sub(MINUTE)).await;
        assert_eq!(launches(), 0, "the keeper tried again too early");
        sim.keep_for("one at last", 2 * MINUTE).await;
        assert_eq!(launches(), 1, "the keeper tries again once");
        let (_, intents) = sim.world.outside.ledger().snapshot();
        let held: u32 = intents.iter().map(|intent| intent.outstanding).sum();
        assert_eq!(held, 0, "a refused launch keeps its reservation");
        fleet.limit_capacity(None);
        fill_as(&sim, "two", 2, 1).await;
        assert_eq!(sim.launched(), 3);
        end(&sim).await;
    });
}

/// The tags distinguish a machine that no job picked from a machine that a job picked.
#[test]
fn the_tags_of_each_machine_say_whether_a_job_picked_it() {
    on_virtual_time(async {
        let sim = PoolWorld::new(10, &two_and_one()).await;
        fill(&sim, 2, 1).await;
        sim.keep_for("tags", MINUTE).await;
        for machine in sim.machines() {
            let record = sim.world.outside.ledger().read(&machine.id).await.expect("calm");
            let record = record.expect("it has one");
            assert!(matches!(record.state, State::Idle { .. }));
            let status = bullpen_core::instance::standby::standby_status(&record);
            assert_eq!(machine.tags.standby, status);
            assert!(!machine.tags.job_started);
        }
    });
}
