//! A pool's machines fail to boot, and AWS or an outsider ends, starts or launches machines.
//!
//! An *outsider* is an operator or a program that calls the cloud directly.
//!
//! Not here: machines whose reports are forged (`hostile`).

use std::time::Duration;

use bullpen_core::class::Usage;
use bullpen_core::creation::LaunchRequest;
use bullpen_core::ids::{IntentId, PoolName, SpecHash};
use bullpen_core::instance::{EndReason, State, Tier};
use bullpen_core::ports::{Fleet, Ledger, MachineState, Ports};
use bullpen_core::request::TypePattern;
use bullpen_sim::clock::{on_virtual_time, pass};
use bullpen_sim::pool_world::PoolWorld;
use bullpen_sim::{calm_world, load};

use super::{LONG, MINUTE, ci, end, fill, fill_as, two_and_one};

/// Three machines that do not boot quarantine the pool. The keeper then tries one machine now and
/// then, and the first machine that boots ends the quarantine.
#[test]
pub(crate) fn machines_that_do_not_boot_are_quarantined_until_one_does() {
    on_virtual_time(async {
        let sim = PoolWorld::new(10, &two_and_one()).await;
        sim.world.change_climate(|climate| climate.temper.warm_up_fails = 1_000);
        let quarantined = async || sim.notes("ci").iter().any(|note| note.code() == "quarantined");
        assert!(sim.keep("first", LONG, quarantined).await, "{:?}", sim.look().await);
        assert!(sim.launched() <= 5, "the keeper replaced more than two before the third failed");
        sim.keep_for("second", 40 * MINUTE).await;
        let tried = sim.launched();
        assert!((6..=9).contains(&tried), "{tried}");
        assert_eq!(sim.ready("ci").await, (0, 0));
        sim.world.change_climate(|climate| climate.temper.warm_up_fails = 0);
        let full = async || sim.ready("ci").await == (2, 1) && sim.has_converged().await;
        assert!(sim.keep("third", 90 * MINUTE, full).await, "{:?}", sim.look().await);
        assert_eq!(sim.launched(), tried + 3, "the keeper launches one, and then the other two");
        end(&sim).await;
        let ended = sim.checker.ended();
        assert_eq!(ended.get(&EndReason::FailedWarmUp), u64::try_from(tried).ok().as_ref());
    });
}

#[test]
fn a_machine_that_an_outsider_ended_is_replaced() {
    on_virtual_time(async {
        let sim = PoolWorld::new(10, &two_and_one()).await;
        fill(&sim, 2, 1).await;
        for (tier, name) in [(Tier::Hot, "second"), (Tier::Stopped, "third")] {
            let lost = sim.idle("ci", tier).await.swap_remove(0).id;
            sim.world.outside.fleet().lose(&lost);
            fill_as(&sim, name, 2, 1).await;
            let record = sim.world.outside.ledger().read(&lost).await.expect("calm");
            assert!(record.is_some_and(|record| !matches!(record.state, State::Idle { .. })));
        }
        assert_eq!(sim.launched(), 5);
        end(&sim).await;
    });
}

#[test]
fn a_stopped_machine_that_an_outsider_started_is_stopped_again() {
    on_virtual_time(async {
        let sim = PoolWorld::new(10, &two_and_one()).await;
        fill(&sim, 2, 1).await;
        let fleet = sim.world.outside.fleet();
        let id = sim.idle("ci", Tier::Stopped).await.swap_remove(0).id;
        fleet.start(std::slice::from_ref(&id)).await.expect("calm");
        pass(MINUTE).await;
        let state = || fleet.snapshot().into_iter().find(|it| it.id == id).map(|it| it.state);
        assert_eq!(state(), Some(MachineState::Running));
        fill_as(&sim, "second", 2, 1).await;
        assert_eq!(state(), Some(MachineState::Stopped));
        assert_eq!(sim.idle("ci", Tier::Stopped).await.swap_remove(0).id, id);
        assert_eq!(sim.launched(), 3);
        end(&sim).await;
    });
}

/// The planner does not count the machine, no job gets it, and upkeep ends it.
#[test]
fn a_machine_that_an_outsider_launched_with_our_tag_is_no_supply() {
    on_virtual_time(async {
        let world = calm_world::new(7, 10).await;
        let outsiders_launch = LaunchRequest {
            intent: IntentId::new("an-outsiders"),
            class: load::classes().swap_remove(0),
            pool: Some(PoolName::new("ci")),
            usage: Usage::OnDemand,
            allowed_types: vec![TypePattern::new("*")],
            avoid: [].into(),
            spec_hash: SpecHash::new("1:aa"),
            count: 1,
        };
        let launched = world.outside.fleet().launch(&outsiders_launch).await.expect("calm");
        let unknown = &launched.machines[0].id;
        let sim = PoolWorld::in_world(world, &two_and_one()).await;
        fill(&sim, 2, 1).await;
        assert_eq!(sim.launched(), 4);
        let gone = async || sim.machines().iter().all(|machine| machine.id != *unknown);
        assert!(sim.keep("second", 2 * LONG, gone).await, "{:?}", sim.machines());
        assert_eq!(sim.ready("ci").await, (2, 1));
        end(&sim).await;
    });
}

const SPOT: &str = ", spot: true";
const NOTICE: Duration = Duration::from_secs(120);

#[test]
fn a_hot_spot_machine_is_replaced_at_the_notice() {
    on_virtual_time(async {
        let sim = PoolWorld::new(10, &ci("{name: always, hot: 2, stopped: 1}", "", SPOT)).await;
        fill(&sim, 2, 1).await;
        let usages: Vec<_> = sim.machines().iter().map(|machine| machine.usage).collect();
        assert_eq!(usages.iter().filter(|usage| **usage == Usage::Spot).count(), 2);
        let taken = sim.idle("ci", Tier::Hot).await.swap_remove(0).id;
        let replaced = async || {
            let ends = sim.records("ci").await.into_iter().any(|record| {
                record.id == taken && matches!(record.state, State::Terminating { .. })
            });
            sim.launched() == 4 && (ends || sim.records("ci").await.len() == 3)
        };
        let keeper = sim.keeper("second");
        let within = NOTICE.saturating_sub(Duration::from_secs(30));
        let in_time = tokio::select! {
            biased;
            () = sim.world.outside.fleet().reclaim(&taken) => false,
            in_time = sim.until(within, replaced, sim.keeping(&keeper)) => in_time,
        };
        assert!(in_time, "{:?}", sim.look().await);
    });
}

/// The job may or may not finish before AWS takes the machine: the pool does not end it either way.
#[test]
fn a_spot_machine_is_not_replaced_under_its_job() {
    on_virtual_time(async {
        let sim = PoolWorld::new(10, &ci("{name: always, hot: 1, stopped: 0}", "", SPOT)).await;
        fill(&sim, 1, 0).await;
        let taken = sim.idle("ci", Tier::Hot).await.swap_remove(0).id;
        sim.queue("7", "pool=ci", 20 * MINUTE);
        let runs = async || {
            let record = sim.world.outside.ledger().read_now(&taken).expect("it has one");
            matches!(record.state, State::Running { .. })
        };
        let service = sim.serving("one");
        let life = async {
            assert!(sim.until(LONG, runs, service).await, "{:?}", sim.job("7").await);
            let service = sim.serving("two");
            let never = async || !runs().await;
            let ended = sim.until(NOTICE.saturating_sub(Duration::from_secs(5)), never, service);
            tokio::select! {
                biased;
                () = sim.world.outside.fleet().reclaim(&taken) => panic!("the notice was shorter"),
                ended = ended => assert!(!ended, "{:?}", sim.checker.verdict()),
            }
        };
        life.await;
        assert!(runs().await);
        assert!(sim.checker.verdict().is_none());
    });
}
