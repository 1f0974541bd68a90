//! What is found again: workers that died anywhere, webhooks that never came.
//!
//! Not here: faults of the wire, which seeds bring.

use std::time::Duration;

use bullpen_core::class::Usage;
use bullpen_core::job::ReportedStatus;
use bullpen_core::ports::Ports;
use bullpen_engine::jobs::{FindMemory, find};
use bullpen_sim::clock::on_virtual_time;
use bullpen_sim::stage;

use super::town::{Town, about, attend_once};

const LONG: Duration = Duration::from_secs(3600);

/// Dies at await number `fuse` of the assignment; returns whether it died.
fn one_life(reuse: bool, fuse: u64) -> bool {
    on_virtual_time(async {
        let mut town = Town::new(5).await;
        if reuse {
            town = town.reusing();
            stage::idle(&town.world, Usage::OnDemand, 1).await;
        }
        town.queue("7").await;
        let first =
            town.process("dies", Some(fuse), async |service| attend_once(service, "7").await).await;
        let done = async || town.is_settled("7").await;
        let served = town.live("next", LONG, |_| true, done).await;
        assert!(served, "reuse {reuse}, died at {fuse}: {:?}", town.row("7").await);
        assert_eq!(town.github.told(), [], "reuse {reuse}, died at {fuse}");
        assert!(town.is_over("7"));
        assert_eq!(town.launched(), 1, "reuse {reuse}, died at {fuse}");
        town.end().await;
        first.is_none()
    })
}

#[test]
fn an_assignment_of_a_new_machine_that_dies_at_any_await_is_carried_on() {
    // Far into the warm-up every await is another look at the same report.
    let mut fuse = 0;
    while one_life(false, fuse) {
        fuse += if fuse < 40 { 1 } else { 7 };
    }
    assert!(fuse > 30, "only {fuse} awaits: it did nothing");
}

#[test]
fn an_assignment_of_an_idle_machine_that_dies_at_any_await_is_carried_on() {
    let mut fuse = 0;
    while one_life(true, fuse) {
        fuse += 1;
    }
    assert!(fuse > 20, "only {fuse} awaits: it did nothing");
}

#[test]
fn a_job_whose_end_no_webhook_told_is_released_all_the_same() {
    on_virtual_time(async {
        let town = Town::new(5).await;
        town.queue("7").await;
        let deaf = |fact: &bullpen_core::job::JobFact| {
            !matches!(fact.said, ReportedStatus::Completed { .. })
        };
        let done = async || town.is_settled("7").await;
        assert!(town.live("serve", LONG, deaf, done).await, "{:?}", town.row("7").await);
        town.end().await;
    });
}

#[test]
fn a_service_that_hears_nothing_at_all_serves_and_releases() {
    on_virtual_time(async {
        let town = Town::new(5).await;
        let fact = town.submit("7", about("7"));
        let repository = [fact.about.repository];
        let found = town
            .process("find", None, async |service| {
                find(service, &repository, &mut FindMemory::default()).await.expect("calm")
            })
            .await
            .expect("it has no fuse");
        assert_eq!((found.unannounced, found.redelivered), (1, 0));
        let done = async || town.is_settled("7").await;
        assert!(town.live("serve", LONG, |_| false, done).await, "{:?}", town.row("7").await);
        assert_eq!(town.launched(), 1);
        town.end().await;
    });
}

#[test]
fn a_webhook_that_was_lost_is_sent_again_once() {
    on_virtual_time(async {
        let town = Town::new(5).await;
        let fact = town.submit("7", about("7"));
        town.github.lose(fact, town.world.outside.clock().true_now());
        let mut memory = FindMemory::default();
        for expected in [1, 0] {
            let found = town
                .process("find", None, async |service| {
                    find(service, &[], &mut memory).await.expect("calm")
                })
                .await
                .expect("it has no fuse");
            assert_eq!(found.redelivered, expected);
        }
        let done = async || town.is_over("7") && town.is_settled("7").await;
        assert!(town.live("serve", LONG, |_| true, done).await);
        town.end().await;
    });
}
