//! Machines that the cloud denies to end: the process asks again at a growing pace.
//!
//! Not here: the other machines of the call (`pain52`).

use std::time::Duration;

use bullpen_core::class::Usage;
use bullpen_core::creation::LaunchRequest;
use bullpen_core::ids::{IntentId, SpecHash};
use bullpen_core::ports::{Fleet, MachineState, Ports};
use bullpen_core::rates::FleetCall;
use bullpen_core::request::TypePattern;
use bullpen_engine::jobs::{Duties, run};
use bullpen_sim::calm_world;
use bullpen_sim::clock::{on_virtual_time, pass};
use bullpen_sim::life::desired;
use bullpen_sim::load;
use bullpen_sim::model::fleet::Oddity;

use super::service_world::ServiceWorld;

const MINUTE: Duration = Duration::from_secs(60);

/// One machine has a record whose time passes after ten minutes, one has none.
#[test]
pub(crate) fn a_machine_that_may_not_be_ended_is_asked_for_at_a_growing_pace() {
    on_virtual_time(async {
        let world = calm_world::new(7, 10).await;
        let recorded = calm_world::add_idle(&world, Usage::OnDemand, 1).await.swap_remove(0).id;
        let launch = LaunchRequest {
            intent: IntentId::new("an-outsiders"),
            class: load::classes().swap_remove(0),
            pool: None,
            usage: Usage::OnDemand,
            allowed_types: vec![TypePattern::new("*")],
            avoid: [].into(),
            spec_hash: SpecHash::new("1:aa"),
            count: 1,
        };
        let launched = world.outside.fleet().launch(&launch).await.expect("calm");
        let orphan = launched.machines[0].id.clone();
        let sim = ServiceWorld::in_world(world).await;
        let fleet = sim.world.outside.fleet();
        for id in [&recorded, &orphan] {
            fleet.make_odd(id, Oddity::Denied, true);
        }
        let duties = Duties { jobs: false, upkeep: true, pools: false, repositories: Vec::new() };
        let (before, after) = sim
            .process("one", None, async |service| {
                let asked = || fleet.asked(FleetCall::Terminate).len();
                let measured = async {
                    pass(15 * MINUTE).await;
                    let before = asked();
                    pass(60 * MINUTE).await;
                    let after = asked();
                    for id in [&recorded, &orphan] {
                        fleet.make_odd(id, Oddity::Denied, false);
                    }
                    pass(12 * MINUTE).await;
                    (before, after - before)
                };
                tokio::select! {
                    biased;
                    measured = Box::pin(measured) => measured,
                    () = Box::pin(run(service, &duties, desired, std::future::pending())) => {
                        panic!("nothing ends the process")
                    }
                }
            })
            .await
            .expect("it lives");
        assert!(before > 2, "it asks: {before}");
        assert!((8..=20).contains(&after), "for each about every ten minutes: {after}");
        let alive =
            fleet.snapshot().into_iter().filter(|it| it.state != MachineState::Gone).count();
        assert_eq!(alive, 0, "once the cloud allows it they end");
    });
}
