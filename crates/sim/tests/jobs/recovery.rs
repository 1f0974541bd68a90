//! The service recovers: after a worker dies at any await, and from webhooks that never come.
//!
//! Not here: faults of the wire (`storm`, seeds).

use std::time::Duration;

use bullpen_core::class::Usage;
use bullpen_core::job::ReportedStatus;
use bullpen_core::job::search::WEBHOOKS_WITHIN;
use bullpen_core::ports::Ports;
use bullpen_engine::jobs::{FindMemory, find};
use bullpen_sim::calm_world;
use bullpen_sim::clock::{on_virtual_time, pass};

use super::service_world::{ServiceWorld, about, process_once};

const LONG: Duration = Duration::from_secs(3600);

/// A worker dies at await number `fuse` of the assignment; returns whether it died.
fn one_life(reuse: bool, fuse: u64) -> bool {
    on_virtual_time(async {
        let mut sim = ServiceWorld::new(5).await;
        if reuse {
            sim = sim.reusing();
            calm_world::add_idle(&sim.world, Usage::OnDemand, 1).await;
        }
        sim.queue("7").await;
        let first =
            sim.process("dies", Some(fuse), async |service| process_once(service, "7").await).await;
        let done = async || sim.is_settled("7").await;
        let served = sim.serve_until("next", LONG, |_| true, done).await;
        assert!(served, "reuse {reuse}, died at {fuse}: {:?}", sim.row("7").await);
        assert_eq!(sim.github.notices(), [], "reuse {reuse}, died at {fuse}");
        assert!(sim.is_over("7"));
        assert_eq!(sim.launched(), 1, "reuse {reuse}, died at {fuse}");
        sim.end().await;
        first.is_none()
    })
}

#[test]
fn an_assignment_of_a_new_machine_that_dies_at_any_await_is_resumed() {
    // Late in the warm-up every await is another look at the same report.
    let mut fuse = 0;
    while one_life(false, fuse) {
        fuse += if fuse < 40 { 1 } else { 7 };
    }
    assert!(fuse > 30, "only {fuse} awaits: the worker did nothing");
}

#[test]
fn an_assignment_of_an_idle_machine_that_dies_at_any_await_is_resumed() {
    let mut fuse = 0;
    while one_life(true, fuse) {
        fuse += 1;
    }
    assert!(fuse > 20, "only {fuse} awaits: the worker did nothing");
}

#[test]
fn a_job_whose_end_no_webhook_announced_is_released() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await;
        sim.queue("7").await;
        let takes = |fact: &bullpen_core::job::JobFact| {
            !matches!(fact.said, ReportedStatus::Completed { .. })
        };
        let done = async || sim.is_settled("7").await;
        assert!(sim.serve_until("serve", LONG, takes, done).await, "{:?}", sim.row("7").await);
        sim.end().await;
    });
}

#[test]
fn a_service_without_any_webhook_serves_and_releases() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await;
        let fact = sim.submit("7", about("7"));
        let repository = [fact.about.repository];
        pass(WEBHOOKS_WITHIN).await;
        let found = sim
            .process("find", None, async |service| {
                find(service, &repository, &mut FindMemory::default()).await
            })
            .await
            .expect("it has no fuse");
        assert_eq!((found.unannounced, found.redelivered), (1, 0));
        let done = async || sim.is_settled("7").await;
        assert!(sim.serve_until("serve", LONG, |_| false, done).await, "{:?}", sim.row("7").await);
        assert_eq!(sim.launched(), 1);
        sim.end().await;
    });
}

#[test]
fn a_webhook_that_was_lost_is_sent_again_once() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await;
        let fact = sim.submit("7", about("7"));
        sim.github.lose(fact, sim.world.outside.clock().true_now());
        let mut memory = FindMemory::default();
        for expected in [1, 0] {
            let found = sim
                .process("find", None, async |service| find(service, &[], &mut memory).await)
                .await
                .expect("it has no fuse");
            assert_eq!(found.redelivered, expected);
        }
        let done = async || sim.is_over("7") && sim.is_settled("7").await;
        assert!(sim.serve_until("serve", LONG, |_| true, done).await);
        sim.end().await;
    });
}
