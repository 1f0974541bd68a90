//! What goes wrong with a pool's machines, and what others do to them.

use std::time::Duration;

use bullpen_core::class::Usage;
use bullpen_core::creation::LaunchRequest;
use bullpen_core::ids::{IntentId, PoolName, SpecHash};
use bullpen_core::instance::{EndReason, State, Tier};
use bullpen_core::ports::{Fleet, Ledger, MachineState, Ports};
use bullpen_core::request::TypePattern;
use bullpen_sim::clock::{on_virtual_time, pass};
use bullpen_sim::pool_world::PoolWorld;
use bullpen_sim::{load, stage};

use super::{LONG, MINUTE, ci, end, fill, fill_as, two_and_one};

/// Three that do not boot are enough; then one is tried now and then, and one that boots is enough.
#[test]
pub(crate) fn machines_that_do_not_boot_are_quarantined_until_one_does() {
    on_virtual_time(async {
        let yard = PoolWorld::new(10, &two_and_one()).await;
        yard.world.change_climate(|climate| climate.temper.warm_up_fails = 1_000);
        let quarantined = async || yard.notes("ci").iter().any(|note| note.code() == "quarantined");
        assert!(yard.keep("first", LONG, quarantined).await, "{:?}", yard.look().await);
        assert!(yard.launched() <= 5, "two were replaced before the third had failed");
        yard.keep_for("second", 40 * MINUTE).await;
        let tried = yard.launched();
        assert!((6..=9).contains(&tried), "{tried}");
        assert_eq!(yard.ready("ci").await, (0, 0));
        yard.world.change_climate(|climate| climate.temper.warm_up_fails = 0);
        let full = async || yard.ready("ci").await == (2, 1) && yard.has_converged().await;
        assert!(yard.keep("third", 90 * MINUTE, full).await, "{:?}", yard.look().await);
        assert_eq!(yard.launched(), tried + 3, "one alone, and then the others");
        end(&yard).await;
        let ended = yard.checker.ended();
        assert_eq!(ended.get(&EndReason::FailedWarmUp), u64::try_from(tried).ok().as_ref());
    });
}

#[test]
fn a_machine_that_somebody_ended_is_replaced() {
    on_virtual_time(async {
        let yard = PoolWorld::new(10, &two_and_one()).await;
        fill(&yard, 2, 1).await;
        for (tier, name) in [(Tier::Hot, "second"), (Tier::Stopped, "third")] {
            let lost = yard.idle("ci", tier).await.swap_remove(0).id;
            yard.world.outside.fleet().lose(&lost);
            fill_as(&yard, name, 2, 1).await;
            let record = yard.world.outside.ledger().read(&lost).await.expect("calm");
            assert!(record.is_some_and(|record| !matches!(record.state, State::Idle { .. })));
        }
        assert_eq!(yard.launched(), 5);
        end(&yard).await;
    });
}

#[test]
fn a_stopped_machine_that_somebody_started_is_stopped_again() {
    on_virtual_time(async {
        let yard = PoolWorld::new(10, &two_and_one()).await;
        fill(&yard, 2, 1).await;
        let fleet = yard.world.outside.fleet();
        let id = yard.idle("ci", Tier::Stopped).await.swap_remove(0).id;
        fleet.start(std::slice::from_ref(&id)).await.expect("calm");
        pass(MINUTE).await;
        let state = || fleet.snapshot().into_iter().find(|it| it.id == id).map(|it| it.state);
        assert_eq!(state(), Some(MachineState::Running));
        fill_as(&yard, "second", 2, 1).await;
        assert_eq!(state(), Some(MachineState::Stopped));
        assert_eq!(yard.idle("ci", Tier::Stopped).await.swap_remove(0).id, id);
        assert_eq!(yard.launched(), 3);
        end(&yard).await;
    });
}

/// It counts for nothing, it is given to nobody, and upkeep ends it.
#[test]
fn a_machine_that_somebody_launched_with_our_tag_is_no_supply() {
    on_virtual_time(async {
        let world = stage::calm(7, 10).await;
        let strange = LaunchRequest {
            intent: IntentId::new("somebody's"),
            class: load::classes().swap_remove(0),
            pool: Some(PoolName::new("ci")),
            usage: Usage::OnDemand,
            allowed_types: vec![TypePattern::new("*")],
            avoid: [].into(),
            spec_hash: SpecHash::new("1:aa"),
            count: 1,
        };
        let launched = world.outside.fleet().launch(&strange).await.expect("calm");
        let stranger = &launched.machines[0].id;
        let yard = PoolWorld::in_world(world, &two_and_one()).await;
        fill(&yard, 2, 1).await;
        assert_eq!(yard.launched(), 4);
        let gone = async || yard.machines().iter().all(|machine| machine.id != *stranger);
        assert!(yard.keep("second", 2 * LONG, gone).await, "{:?}", yard.machines());
        assert_eq!(yard.ready("ci").await, (2, 1));
        end(&yard).await;
    });
}

const SPOT: &str = ", spot: true";
const NOTICE: Duration = Duration::from_secs(120);

#[test]
fn a_hot_spot_machine_is_replaced_at_the_notice() {
    on_virtual_time(async {
        let yard = PoolWorld::new(10, &ci("{name: always, hot: 2, stopped: 1}", "", SPOT)).await;
        fill(&yard, 2, 1).await;
        let usages: Vec<_> = yard.machines().iter().map(|machine| machine.usage).collect();
        assert_eq!(usages.iter().filter(|usage| **usage == Usage::Spot).count(), 2);
        let taken = yard.idle("ci", Tier::Hot).await.swap_remove(0).id;
        let replaced = async || {
            let ends = yard.records("ci").await.into_iter().any(|record| {
                record.id == taken && matches!(record.state, State::Terminating { .. })
            });
            yard.launched() == 4 && (ends || yard.records("ci").await.len() == 3)
        };
        let keeper = yard.keeper("second");
        let within = NOTICE.saturating_sub(Duration::from_secs(30));
        let in_time = tokio::select! {
            biased;
            () = yard.world.outside.fleet().reclaim(&taken) => false,
            in_time = yard.until(within, replaced, yard.keeping(&keeper)) => in_time,
        };
        assert!(in_time, "{:?}", yard.look().await);
    });
}

/// Its job may be over in time, or may not: the pool ends nothing under it.
#[test]
fn a_spot_machine_is_not_replaced_under_its_job() {
    on_virtual_time(async {
        let yard = PoolWorld::new(10, &ci("{name: always, hot: 1, stopped: 0}", "", SPOT)).await;
        fill(&yard, 1, 0).await;
        let taken = yard.idle("ci", Tier::Hot).await.swap_remove(0).id;
        yard.queue("7", "pool=ci", 20 * MINUTE);
        let runs = async || {
            let record = yard.world.outside.ledger().read_now(&taken).expect("it has one");
            matches!(record.state, State::Running { .. })
        };
        let service = yard.serving("one");
        let life = async {
            assert!(yard.until(LONG, runs, service).await, "{:?}", yard.job("7").await);
            let service = yard.serving("two");
            let never = async || !runs().await;
            let ended = yard.until(NOTICE.saturating_sub(Duration::from_secs(5)), never, service);
            tokio::select! {
                biased;
                () = yard.world.outside.fleet().reclaim(&taken) => panic!("not so soon"),
                ended = ended => assert!(!ended, "{:?}", yard.checker.verdict()),
            }
        };
        life.await;
        assert!(runs().await);
        assert!(yard.checker.verdict().is_none());
    });
}
