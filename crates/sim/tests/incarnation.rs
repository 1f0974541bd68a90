//! A request that begins again after its release is another incarnation, with launches of its own.
//!
//! Not here: what else a request does (`requests`).

use std::time::Duration;

use bullpen_core::ids::TrustGroup;
use bullpen_core::ports::Ports;
use bullpen_engine::progress::unobserved;
use bullpen_engine::provision::Provisioned;
use bullpen_engine::release::request::release_request;
use bullpen_sim::calm_world;
use bullpen_sim::clock::on_virtual_time;
use bullpen_sim::life::provision_silently;

/// D27: after its release the same id begins a new incarnation, with other launch intents.
#[test]
pub(crate) fn d27_a_released_request_begins_a_new_incarnation() {
    on_virtual_time(async {
        let world = calm_world::new(11, 10).await;
        let request = calm_world::request("7.1.build", 1, world.outside.clock().true_now());
        let (_, stack) = world.process("p");
        let first = provision_silently(&stack, &request).await.expect("calm");
        let until = stack.now().after(Duration::from_secs(600));
        release_request(&stack, &request.id, until, &unobserved).await.expect("calm");
        // The returned machine is of another trust group, so the request launches its own.
        let mut next = request.clone();
        next.trust = TrustGroup::new("octo/other");
        next.deadline = stack.now().after(Duration::from_secs(600));
        let second = provision_silently(&stack, &next).await.expect("calm");
        let intent = |from: &Provisioned| from.runners[0].record.facts.intent.clone();
        assert_eq!(intent(&first).as_str(), "7.1.build.1.1");
        assert_eq!(intent(&second).as_str(), "7.1.build.2.1");
    });
}
