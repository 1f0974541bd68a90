//! From whatever there is to what is promised: schedules, ceilings, shortages, environments.

use bullpen_core::class::Usage;
use bullpen_core::creation::{Ceiling, Scope};
use bullpen_core::ids::ClassName;
use bullpen_core::instance::State;
use bullpen_core::limits::Limits;
use bullpen_core::pool::Note;
use bullpen_core::ports::{Ledger, Ports};
use bullpen_core::rates::FleetCall;
use bullpen_sim::clock::on_virtual_time;
use bullpen_sim::life::make_queues;
use bullpen_sim::pool_world::PoolWorld;
use bullpen_sim::stage;
use bullpen_sim::world::{CALM, World};

use super::{LONG, MINUTE, ci, end, fill, fill_as, two_and_one};

#[test]
pub(crate) fn an_empty_pool_becomes_what_its_schedule_promises() {
    on_virtual_time(async {
        let yard = PoolWorld::new(10, &two_and_one()).await;
        fill(&yard, 2, 1).await;
        assert_eq!(yard.launched(), 3);
        end(&yard).await;
    });
}

#[test]
fn a_pool_follows_the_edges_of_its_schedule() {
    on_virtual_time(async {
        let entries = "{name: default, hot: 1, stopped: 0}, \
                       {name: rush, hot: 3, stopped: 2, match: {time: [\"00:10\", \"00:40\"]}}";
        let yard = PoolWorld::new(10, &ci(entries, "", "")).await;
        fill(&yard, 1, 0).await;
        let clock = yard.world.outside.clock();
        yard.keep_for("calm", (10 * MINUTE).saturating_sub(clock.elapsed())).await;
        assert_eq!(yard.ready("ci").await, (1, 0), "not before its time");
        fill_as(&yard, "up", 3, 2).await;
        assert!(clock.elapsed() < 16 * MINUTE, "{:?}", clock.elapsed());
        yard.keep_for("rush", (40 * MINUTE).saturating_sub(clock.elapsed())).await;
        assert_eq!(yard.ready("ci").await, (3, 2), "not before its time");
        fill_as(&yard, "down", 1, 0).await;
        assert!(clock.elapsed() < 43 * MINUTE, "{:?}", clock.elapsed());
        assert_eq!(yard.launched(), 5);
        end(&yard).await;
    });
}

/// The machines of a pool that another stack keeps stand idle in the same ledger.
#[test]
fn a_pool_of_another_environment_is_not_touched() {
    on_virtual_time(async {
        let world = stage::calm(7, 10).await;
        let others = stage::idle(&world, Usage::OnDemand, 2).await;
        let stage =
            "\n  stage: {runner: large, env: staging, schedule: [{name: a, hot: 0, stopped: 0}]}";
        let config = two_and_one().replace("pools:\n  ci:\n", &format!("pools:{stage}\n  ci:\n"));
        let yard = PoolWorld::in_world(world, &config).await;
        fill(&yard, 2, 1).await;
        for other in others {
            let record = yard.world.outside.ledger().read(&other.id).await.expect("calm");
            assert_eq!(record, Some(other));
        }
        assert_eq!(yard.launched(), 5);
        end(&yard).await;
    });
}

/// A job's machine is under the ceiling of the pool that it was picked from.
#[test]
fn a_pools_own_ceiling_counts_what_its_jobs_have() {
    on_virtual_time(async {
        let config = ci("{name: always, hot: 2, stopped: 1}", "", ", max: 3");
        let yard = PoolWorld::new(10, &config).await;
        fill(&yard, 2, 1).await;
        yard.queue("7", "pool=ci", 10 * MINUTE);
        let noted =
            async || matches!(yard.notes("ci")[..], [Note::Ceiling { max: 3, used: 3, .. }]);
        assert!(yard.until(5 * MINUTE, noted, yard.serving("one")).await, "{:?}", yard.notes("ci"));
        assert_eq!((yard.ready("ci").await, yard.launched()), ((1, 1), 3));
        let full = async || yard.ready("ci").await == (2, 1) && yard.has_converged().await;
        assert!(yard.until(LONG, full, yard.serving("two")).await, "{:?}", yard.look().await);
        assert_eq!(yard.launched(), 4);
        end(&yard).await;
    });
}

/// Two pools want more than their class, and then than their stack, may have. No launch in flight is
/// beyond it, which the checker sees; what there is room for is launched.
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
            let yard = PoolWorld::in_world(world, &config).await;
            let all = async || yard.machines().len() == 3 && yard.has_converged().await;
            assert!(yard.keep("one", LONG, all).await, "{:?}", yard.checker.verdict());
            let notes = [yard.notes("ci"), yard.notes("twin")].concat();
            assert!(matches!(notes[..], [Note::Ceiling { max: 3, .. }]), "{notes:?}");
            end(&yard).await;
        }
    });
}

#[test]
fn a_cloud_without_capacity_is_not_asked_again_at_once() {
    on_virtual_time(async {
        let yard = PoolWorld::new(10, &two_and_one()).await;
        let (fleet, memory) = (yard.world.outside.fleet(), yard.world.limits.shortage_memory);
        fleet.limit_capacity(Some(0));
        let launches = || {
            let calls = yard.checker.take_calls();
            calls.iter().filter(|(call, _)| *call == FleetCall::Launch).count()
        };
        let asked = async || yard.notes("ci").iter().any(|note| note.code() == "no-capacity");
        assert!(yard.keep("one", LONG, asked).await);
        assert_eq!(launches(), 1);
        yard.keep_for("one again", memory.saturating_sub(MINUTE)).await;
        assert_eq!(launches(), 0, "so soon");
        yard.keep_for("one at last", 2 * MINUTE).await;
        assert_eq!(launches(), 1, "once more");
        let (_, intents) = yard.world.outside.ledger().snapshot();
        let held: u32 = intents.iter().map(|intent| intent.outstanding).sum();
        assert_eq!(held, 0, "what did not come is kept from nobody");
        fleet.limit_capacity(None);
        fill_as(&yard, "two", 2, 1).await;
        assert_eq!(yard.launched(), 3);
        end(&yard).await;
    });
}

/// One that is picked up by nobody is told apart from one that was.
#[test]
fn what_became_of_each_machine_is_in_the_tags() {
    on_virtual_time(async {
        let yard = PoolWorld::new(10, &two_and_one()).await;
        fill(&yard, 2, 1).await;
        yard.keep_for("tags", MINUTE).await;
        for machine in yard.machines() {
            let record = yard.world.outside.ledger().read(&machine.id).await.expect("calm");
            let record = record.expect("it has one");
            assert!(matches!(record.state, State::Idle { .. }));
            let status = bullpen_core::instance::standby::standby_status(&record);
            assert_eq!(machine.tags.standby, status);
            assert!(!machine.tags.job_started);
        }
    });
}
