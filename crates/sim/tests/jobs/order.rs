//! Facts about a job arrive in every order, twice, and with one of them lost.
//!
//! Not here: merging alone (`core::job::fact`).

use bullpen_core::ids::RunnerName;
use bullpen_core::job::{Conclusion, End, JobFact, JobState, ReportedStatus};
use bullpen_core::ports::{Ledger, Ports};
use bullpen_core::time::Timestamp;
use bullpen_engine::jobs::{Ingested, ingest, launch_worker, sweep};
use bullpen_sim::clock::on_virtual_time;
use std::time::Duration;

use super::service_world::{ServiceWorld, SimService, about};

fn facts(now: Timestamp) -> [JobFact; 3] {
    let runner = Some(RunnerName::new("not-ours"));
    let fact = |said| JobFact { job: "7".into(), about: about("7"), said };
    [
        fact(ReportedStatus::Queued { at: Some(now) }),
        fact(ReportedStatus::Started { runner: runner.clone(), at: Some(now) }),
        fact(ReportedStatus::Completed {
            conclusion: Conclusion::new("success"),
            runner,
            at: Some(now),
        }),
    ]
}

/// All distinct orders of these numbers.
fn orders(mut left: Vec<usize>) -> Vec<Vec<usize>> {
    left.sort_unstable();
    let mut found = Vec::new();
    let mut firsts = left.clone();
    firsts.dedup();
    for first in firsts {
        let mut rest = left.clone();
        rest.remove(rest.iter().position(|each| *each == first).expect("`rest` contains it"));
        let tails = if rest.is_empty() { vec![Vec::new()] } else { orders(rest) };
        found.extend(tails.into_iter().map(|tail| [vec![first], tail].concat()));
    }
    found
}

/// Ingests facts in this order, then runs a worker and a sweep; returns the row's state.
async fn ingested(order: &[usize]) -> (ServiceWorld, JobState) {
    let sim = ServiceWorld::new(5).await;
    let all = facts(sim.world.outside.clock().true_now());
    for &number in order {
        sim.deliver(&all[number]).await;
    }
    sim.process("worker", None, async |service| {
        launch_worker(service, Duration::ZERO).await.expect("calm");
        sweep(service).await.expect("calm");
    })
    .await;
    let state = sim.row("7").await.state;
    (sim, state)
}

#[test]
fn a_job_that_is_over_gets_no_runner_in_any_order_of_facts() {
    let all = orders(vec![0, 0, 1, 1, 2, 2]);
    assert_eq!(all.len(), 90);
    for order in all {
        on_virtual_time(async {
            let (sim, state) = ingested(&order).await;
            let JobState::Ended { end: End::Completed(how), debts, .. } = state else {
                panic!("{order:?}: {state:?}");
            };
            assert_eq!((how.as_str(), debts.is_settled()), ("success", true), "{order:?}");
            assert_eq!(sim.launched(), 0, "{order:?}");
        });
    }
}

#[test]
fn one_lost_fact_launches_no_needless_machine() {
    for lost in 0..3 {
        let left: Vec<usize> =
            [0, 0, 1, 1, 2, 2].into_iter().filter(|each| *each != lost).collect();
        for order in orders(left) {
            on_virtual_time(async {
                let (sim, state) = ingested(&order).await;
                match state {
                    JobState::Ended { end: End::Completed(_), .. } => {
                        assert_ne!(lost, 2, "{order:?}");
                    }
                    // GitHub has not reported its end yet.
                    JobState::Elsewhere => assert_eq!(lost, 2, "{order:?}"),
                    other => panic!("{order:?}: {other:?}"),
                }
                assert_eq!(sim.launched(), 0, "{order:?}");
            });
        }
    }
}

#[test]
fn a_job_that_is_announced_often_gets_one_runner() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await;
        let fact = sim.queue("7").await;
        for again in 0..5 {
            let ingested = sim
                .process("again", None, async |service| ingest(service, &fact).await.expect("calm"))
                .await;
            assert_eq!(ingested, Some(Ingested::Known), "{again}");
        }
        let done = async || sim.is_settled("7").await;
        assert!(sim.serve_until("serve", Duration::from_secs(600), |_| true, done).await);
        assert_eq!(sim.launched(), 1);
        sim.end().await;
    });
}

#[test]
fn jobs_for_other_runners_leave_no_row() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await;
        let mut fact = facts(sim.world.outside.clock().true_now())[0].clone();
        // A job that asks for a group of runners has no labels at all.
        for labels in [vec!["ubuntu-latest".to_owned()], Vec::new()] {
            fact.about.labels = labels;
            let webhook = async |service: &SimService<'_>| ingest(service, &fact).await;
            let ingested = sim.process("webhook", None, webhook).await;
            assert_eq!(ingested, Some(Ok(Ingested::NotOurs)));
            let row = sim.world.outside.ledger().row(&fact.job).await.expect("calm");
            assert_eq!(row, None);
        }
    });
}

#[test]
fn a_completed_fact_without_labels_that_comes_first_is_kept() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await;
        let [queued, _, mut completed] = facts(sim.world.outside.clock().true_now());
        completed.about.labels.clear();
        sim.deliver(&completed).await;
        sim.deliver(&queued).await;
        assert!(sim.row("7").await.is_over());
    });
}
