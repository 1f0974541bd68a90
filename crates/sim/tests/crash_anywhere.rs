//! A process dies at each of its awaits in turn, and upkeep leaves nothing behind.
//!
//! Not here: other faults together with a crash (the seeds).

use bullpen_core::class::Usage;
use bullpen_core::instance::Owner;
use bullpen_core::ports::Ports;
use bullpen_engine::progress::unobserved;
use bullpen_engine::release::request::release_request;
use bullpen_sim::calm_world;
use bullpen_sim::checker::Checker;
use bullpen_sim::clock::on_virtual_time;
use bullpen_sim::life::provision_silently;
use std::time::Duration;

/// The process that dies.
#[derive(Clone, Copy, PartialEq)]
enum Dies {
    Provision,
    Release,
}

/// Provisions two runners, one reused and one created, and then releases them. One of the two
/// processes dies at its await number `fuse`; returns whether it died.
fn one_life(dies: Dies, fuse: u64, release_follows: bool) -> Result<bool, String> {
    on_virtual_time(async {
        let world = calm_world::new(1, 10).await;
        let checker = Checker::watch(&world, false);
        calm_world::add_idle(&world, Usage::OnDemand, 1).await;
        let now = world.outside.clock().true_now();
        let request = calm_world::request("run1.1.build", 2, now);
        let owner = Owner::Request(request.id.clone());
        checker.attempt_begins(owner.clone(), request.clone(), now);
        let own = |process| (dies == process).then_some(fuse);
        let provisioned = world
            .run("provision", own(Dies::Provision), async |stack| {
                provision_silently(stack, &request).await
            })
            .await;
        let mut has_died = provisioned.is_none();
        if dies == Dies::Release || release_follows {
            let until = world.outside.clock().true_now().after(Duration::from_secs(600));
            let released = world
                .run("release", own(Dies::Release), async |stack| {
                    release_request(stack, &request.id, until, &unobserved).await
                })
                .await;
            has_died |= released.is_none();
        }
        calm_world::end(&world, &checker).await?;
        Ok(has_died)
    })
}

fn dies_everywhere(dies: Dies, release_follows: bool) -> u64 {
    let mut fuse = 0;
    loop {
        match one_life(dies, fuse, release_follows) {
            Ok(true) => fuse += 1,
            Ok(false) => return fuse,
            Err(violation) => panic!("died at await {fuse}: {violation}"),
        }
    }
}

#[test]
fn a_provision_that_dies_at_any_await_leaves_nothing() {
    let awaits = dies_everywhere(Dies::Provision, false);
    assert!(awaits > 20, "only {awaits} awaits: the provision did nothing");
}

#[test]
fn a_provision_that_dies_at_any_await_and_is_released_leaves_nothing() {
    dies_everywhere(Dies::Provision, true);
}

#[test]
fn a_release_that_dies_at_any_await_leaves_nothing() {
    let awaits = dies_everywhere(Dies::Release, true);
    assert!(awaits > 10, "only {awaits} awaits: the release did nothing");
}
