//! The cost of a warm request: messages read and calls made, as counts, never as durations.
//!
//! Not here: the cost of keeping pools (`tests/pools/calls.rs`).

#![expect(clippy::print_stdout, reason = "the counts are reported in docs/benchmarks.md")]

use std::time::Duration;

use bullpen_core::class::Usage;
use bullpen_core::ports::Ports;
use bullpen_engine::provision::worker::AcquiredBy;
use bullpen_sim::calm_world;
use bullpen_sim::clock::{on_virtual_time, pass};
use bullpen_sim::life::provision_silently;

/// Runs one request against idle machines of both usages; returns reused, created, messages read
/// and calls by port.
fn cost(count: u32, matching: u32, others: u32) -> (usize, usize, u64, Vec<(&'static str, u64)>) {
    on_virtual_time(async {
        let world = calm_world::new(7, matching + others + count).await;
        calm_world::add_idle(&world, Usage::Spot, others).await;
        calm_world::add_idle(&world, Usage::OnDemand, matching).await;
        let request = calm_world::request("run1.1.build", count, world.outside.clock().true_now());
        let (wire, stack) = world.process("provision");
        let provisioned = provision_silently(&stack, &request).await.expect("the world is calm");
        let reused =
            provisioned.runners.iter().filter(|held| held.how == AcquiredBy::Reused).count();
        let created = provisioned.runners.len() - reused;
        let calls = wire.calls().into_iter().collect();
        (reused, created, world.outside.queues().delivered(), calls)
    })
}

/// Checks the cost of a request of this size among this many matching and other idle machines.
fn costs(count: u32, matching: u32, others: u32) {
    let (reused, created, read, calls) = cost(count, matching, others);
    let all = matching + others;
    println!("{count} of {all}, {others} mismatching: {read} messages read, calls {calls:?}");
    let wanted = u64::from(count);
    assert_eq!((reused, created), (usize::try_from(count).expect("it is small"), 0));
    // At most one read of each mismatch, and one of each match.
    assert!(read <= u64::from(others) + wanted, "{read} messages were read");
    let of = |port| calls.iter().find(|(name, _)| *name == port).map_or(0, |(_, count)| *count);
    assert_eq!(of("fleet"), 0, "a warm request must not call the cloud");
    assert_eq!(of("forge"), 1, "one credential, and no other call to GitHub");
    // One write and one read of the request's entry, one write that marks all runners as running,
    // and at most one read of the directory; a claim is one write without a read before it.
    assert!(of("ledger") <= wanted + 4, "{calls:?}");
    // One call posts all assignments. One call reads all reports, whenever one has changed. Here
    // every agent writes at its own time, so at most two reads for each runner. A lone runner costs
    // a first look, two signals, two heartbeats, and one more heartbeat that may be due.
    assert!(of("mailbox") <= (2 * wanted + 20).max(wanted + 6), "{calls:?}");
}

#[test]
fn fifty_runners_from_a_thousand_idle_machines_of_which_half_mismatch() {
    costs(50, 500, 500);
}

#[test]
fn one_runner_and_ten_from_twenty_idle_machines_of_which_half_mismatch() {
    costs(1, 10, 10);
    costs(10, 10, 10);
}

#[test]
fn one_runner_and_ten_where_all_idle_machines_but_one_match() {
    costs(1, 19, 1);
    costs(10, 19, 1);
}

/// D4: a request that re-queues adverts it cannot use must not hide them from a request that can.
#[test]
fn a_mismatched_request_never_costs_a_simultaneous_matching_one_its_machines() {
    for apart in [0, 1, 20, 200, 500, 2_000] {
        let reused = on_virtual_time(async {
            let world = calm_world::new(apart, 30).await;
            calm_world::add_idle(&world, Usage::Spot, 10).await;
            let now = world.outside.clock().true_now();
            let mismatched = calm_world::request("run1.1.build", 4, now);
            let mut matching = calm_world::request("run2.1.build", 4, now);
            matching.usage = Usage::Spot;
            let (_, one) = world.process("provision run1");
            let (_, other) = world.process("provision run2");
            let (_, provisioned) = tokio::join!(provision_silently(&one, &mismatched), async {
                pass(Duration::from_millis(apart)).await;
                provision_silently(&other, &matching).await
            });
            let runners = provisioned.expect("the world is calm").runners;
            runners.iter().filter(|held| held.how == AcquiredBy::Reused).count()
        });
        assert_eq!(reused, 4, "{apart} ms apart");
    }
}
