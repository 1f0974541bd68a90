//! Facts in every order, twice, and with one of them lost.
//!
//! Not here: merging alone (`core::job::fact`).

use bullpen_core::ids::RunnerName;
use bullpen_core::job::{Conclusion, End, JobFact, JobState, ReportedStatus};
use bullpen_core::ports::{Ledger, Ports};
use bullpen_core::time::Timestamp;
use bullpen_engine::jobs::{Ingested, ingest, launch_worker, sweep};
use bullpen_sim::clock::on_virtual_time;
use std::time::Duration;

use super::town::{SimService, Town, about};

fn facts(now: Timestamp) -> [JobFact; 3] {
    let runner = Some(RunnerName::new("somebody-elses"));
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

/// Every order of these numbers, each different one once.
fn orders(mut left: Vec<usize>) -> Vec<Vec<usize>> {
    left.sort_unstable();
    let mut found = Vec::new();
    let mut firsts = left.clone();
    firsts.dedup();
    for first in firsts {
        let mut rest = left.clone();
        rest.remove(rest.iter().position(|each| *each == first).expect("it is one of them"));
        let tails = if rest.is_empty() { vec![Vec::new()] } else { orders(rest) };
        found.extend(tails.into_iter().map(|tail| [vec![first], tail].concat()));
    }
    found
}

/// Ingests facts in this order, with a worker and a sweep at the end, and returns the row's end.
async fn told(order: &[usize]) -> (Town, JobState) {
    let town = Town::new(5).await;
    let all = facts(town.world.outside.clock().true_now());
    for &number in order {
        town.say(&all[number]).await;
    }
    town.process("worker", None, async |service| {
        launch_worker(service, Duration::ZERO).await.expect("calm");
        sweep(service).await.expect("calm");
    })
    .await;
    let life = town.row("7").await.state;
    (town, life)
}

#[test]
fn a_job_that_is_over_gets_no_runner_in_any_order_of_facts() {
    let all = orders(vec![0, 0, 1, 1, 2, 2]);
    assert_eq!(all.len(), 90);
    for order in all {
        on_virtual_time(async {
            let (town, life) = told(&order).await;
            let JobState::Ended { end: End::Completed(how), debts, .. } = life else {
                panic!("{order:?}: {life:?}");
            };
            assert_eq!((how.as_str(), debts.is_settled()), ("success", true), "{order:?}");
            assert_eq!(town.launched(), 0, "{order:?}");
        });
    }
}

#[test]
fn one_lost_fact_costs_no_runner_too_many() {
    for lost in 0..3 {
        let left: Vec<usize> =
            [0, 0, 1, 1, 2, 2].into_iter().filter(|each| *each != lost).collect();
        for order in orders(left) {
            on_virtual_time(async {
                let (town, life) = told(&order).await;
                match life {
                    JobState::Ended { end: End::Completed(_), .. } => {
                        assert_ne!(lost, 2, "{order:?}");
                    }
                    // It runs, and how it ends was not said yet.
                    JobState::Elsewhere => assert_eq!(lost, 2, "{order:?}"),
                    other => panic!("{order:?}: {other:?}"),
                }
                assert_eq!(town.launched(), 0, "{order:?}");
            });
        }
    }
}

#[test]
fn a_job_that_is_announced_often_gets_one_runner() {
    on_virtual_time(async {
        let town = Town::new(5).await;
        let fact = town.queue("7").await;
        for again in 0..5 {
            let ingested = town
                .process("again", None, async |service| ingest(service, &fact).await.expect("calm"))
                .await;
            assert_eq!(ingested, Some(Ingested::Known), "{again}");
        }
        let done = async || town.is_settled("7").await;
        assert!(town.live("serve", Duration::from_secs(600), |_| true, done).await);
        assert_eq!(town.launched(), 1);
        town.end().await;
    });
}

#[test]
fn jobs_of_others_leave_nothing_behind() {
    on_virtual_time(async {
        let town = Town::new(5).await;
        let mut fact = facts(town.world.outside.clock().true_now())[0].clone();
        // A job that asks for a group of runners has no labels at all.
        for labels in [vec!["ubuntu-latest".to_owned()], Vec::new()] {
            fact.about.labels = labels;
            let webhook = async |service: &SimService<'_>| ingest(service, &fact).await;
            let ingested = town.process("webhook", None, webhook).await;
            assert_eq!(ingested, Some(Ok(Ingested::NotOurs)));
            let row = town.world.outside.ledger().row(&fact.job).await.expect("calm");
            assert_eq!(row, None);
        }
    });
}

#[test]
fn last_words_without_labels_that_come_first_are_kept() {
    on_virtual_time(async {
        let town = Town::new(5).await;
        let [queued, _, mut completed] = facts(town.world.outside.clock().true_now());
        completed.about.labels.clear();
        town.say(&completed).await;
        town.say(&queued).await;
        assert!(town.row("7").await.is_over());
    });
}
