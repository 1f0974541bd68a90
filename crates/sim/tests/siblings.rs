//! The machines of one request are independent: a fault at one costs that one, never the others.
//!
//! Not here: what a request does without any fault (`requests`).

use std::sync::Arc;
use std::time::Duration;

use bullpen_core::class::Usage;
use bullpen_core::instance::{Owner, State};
use bullpen_core::ports::{Fault, Ledger, Ports};
use bullpen_core::request::Request;
use bullpen_engine::progress::unobserved;
use bullpen_engine::provision::ProvisionError;
use bullpen_engine::release::request::release_request;
use bullpen_sim::calm_world;
use bullpen_sim::checker::Checker;
use bullpen_sim::clock::on_virtual_time;
use bullpen_sim::life::provision_silently;
use bullpen_sim::wire::{Planned, Trouble, Wire};
use bullpen_sim::world::World;

const MACHINES: u32 = 3;

/// A world with idle machines, and a request for all of them.
async fn wanted() -> (Arc<World>, Checker, Request) {
    let world = calm_world::new(11, 10).await;
    let checker = Checker::watch(&world, false);
    let now = world.outside.clock().true_now();
    calm_world::add_idle(&world, Usage::OnDemand, MACHINES).await;
    let request = calm_world::request("7.1.build", MACHINES, now);
    checker.attempt_begins(Owner::Request(request.id.clone()), request.clone(), now);
    (world, checker, request)
}

/// This call of the process to this port is refused with an answer that no retry helps.
fn refuse(wire: &Wire, port: &str, call: u64) {
    let trouble = Trouble::Refuse(Fault::Unclassified("a defect".to_owned()));
    wire.plan(Planned { port: port.to_owned(), call, trouble });
}

/// Whichever call of a request's claim workers fails, only the runner of that worker is launched anew.
#[test]
fn one_workers_fault_costs_its_own_runner() {
    for port in ["ledger", "queue"] {
        for call in 1..=12 {
            on_virtual_time(async {
                let (world, checker, request) = wanted().await;
                let (wire, stack) = world.process("p");
                refuse(&wire, port, call);
                let provisioned = provision_silently(&stack, &request).await;
                let closed = matches!(provisioned, Err(ProvisionError::Closed(_)));
                assert!(!closed, "{port} call {call}: {provisioned:?}");
                let (_, stack) = world.process("release");
                let until = stack.now().after(Duration::from_secs(600));
                release_request(&stack, &request.id, until, &unobserved).await.expect("calm");
                calm_world::end(&world, &checker).await.expect("the world must become quiet");
            });
        }
    }
}

/// A release whose write for one machine fails makes the other machines idle all the same.
#[test]
fn one_machines_fault_leaves_the_others_released() {
    let mut failed_at_one = 0;
    for call in 1..=20 {
        on_virtual_time(async {
            let (world, checker, request) = wanted().await;
            let (_, begun) = world.process("p");
            provision_silently(&begun, &request).await.expect("calm");
            let (wire, releasing) = world.process("release");
            refuse(&wire, "ledger", call);
            let until = releasing.now().after(Duration::from_secs(60));
            let released = release_request(&releasing, &request.id, until, &unobserved).await;
            let records = world.outside.ledger().live(None).await.expect("calm").items;
            let of = |wanted: fn(&State) -> bool| {
                records.iter().filter(|record| wanted(&record.state)).count()
            };
            let running = of(|state| matches!(state, State::Running { .. }));
            let idle = of(|state| matches!(state, State::Idle { .. }));
            let (_, stack) = world.process("second release");
            // One machine that still runs for the request is the one whose write failed.
            if released.is_err() && running == 1 {
                failed_at_one += 1;
                assert_eq!(idle, 2, "call {call}");
            }
            let until = stack.now().after(Duration::from_secs(600));
            release_request(&stack, &request.id, until, &unobserved).await.expect("calm");
            calm_world::end(&world, &checker).await.expect("the world must become quiet");
        });
    }
    assert_eq!(failed_at_one, MACHINES, "one call for each machine withdraws it");
}
