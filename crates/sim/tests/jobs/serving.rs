//! Jobs that are served: new machines, reused ones, stolen ones, and everyone in turn.
//!
//! Not here: jobs that are not.

use std::time::Duration;

use bullpen_core::class::Usage;
use bullpen_core::instance::State;
use bullpen_core::job::{End, How, Life, Said, Step};
use bullpen_core::ports::{Ledger, Ports};
use bullpen_sim::clock::on_virtual_time;
use bullpen_sim::stage;

use super::town::{Town, about_in};

const LONG: Duration = Duration::from_secs(30 * 60);

#[test]
fn a_job_gets_a_new_machine_which_ends_with_it() {
    on_virtual_time(async {
        let town = Town::new(5).await;
        town.queue("7").await;
        let done = async || town.is_over("7");
        assert!(town.live("serve", LONG, |_| true, done).await);
        let settled = async || town.row("7").await.is_over();
        assert!(town.live("settle", LONG, |_| true, settled).await);
        let row = town.row("7").await;
        assert!(matches!(&row.life, Life::Ended { end: End::Completed(_), .. }), "{row:?}");
        let steps: Vec<Step> = row.steps.iter().map(|step| step.step).collect();
        assert_eq!(steps, [Step::Begun, Step::Assigned { how: How::Created }]);
        assert_eq!(town.launched(), 1);
        town.end().await;
        let Life::Ended { debts, .. } = town.row("7").await.life else { panic!("it is over") };
        assert!(debts.release.is_some() || debts.is_settled());
    });
}

#[test]
fn a_class_that_is_reused_serves_the_next_job_with_the_same_machine() {
    on_virtual_time(async {
        let town = Town::new(5).await.reusing();
        stage::idle(&town.world, Usage::OnDemand, 1).await;
        for job in ["7", "8"] {
            town.queue(job).await;
            let done = async || {
                let row = town.row(job).await;
                matches!(row.life, Life::Ended { debts, .. } if debts.is_settled())
            };
            assert!(town.live(job, LONG, |_| true, done).await, "{:?}", town.row(job).await);
            let steps = town.row(job).await.steps;
            assert_eq!(steps[1].step, Step::Assigned { how: How::Reused }, "{job}");
        }
        assert_eq!(town.launched(), 1, "the one that was idle");
        town.end().await;
    });
}

#[test]
fn a_forks_code_ends_its_machine() {
    on_virtual_time(async {
        let town = Town::new(5).await.reusing();
        let idle = stage::idle(&town.world, Usage::OnDemand, 1).await;
        let fact = town.queue("7").await;
        town.github.from_fork(fact.about.run);
        let done = async || {
            let row = town.row("7").await;
            matches!(row.life, Life::Ended { debts, .. } if debts.is_settled())
        };
        assert!(town.live("serve", LONG, |_| true, done).await);
        let record = town.world.outside.ledger().read(&idle[0].id).await.expect("calm");
        let state = record.expect("it is recorded").state;
        assert!(matches!(state, State::Terminating { .. } | State::Terminated { .. }), "{state:?}");
        town.end().await;
    });
}

/// Two jobs of equal labels: the first runner that listens gets the first job, whoever it was for.
#[test]
fn a_stolen_job_and_its_thief_exchange_machines() {
    on_virtual_time(async {
        let town = Town::new(5).await;
        let label = "runs-on/runner=large";
        for job in ["7", "8"] {
            let fact = town.submit(job, about_in(job, "acme/app", label));
            town.say(&fact).await;
        }
        let both_run = async || {
            ["7", "8"].iter().all(|job| matches!(town.github.said(job), Some(Said::Started { .. })))
        };
        assert!(town.live("serve", LONG, |_| true, both_run).await);
        let agree = async || {
            let mut agree = true;
            for job in ["7", "8"] {
                let row = town.row(job).await;
                agree &= row.held().is_some() && row.taken_by_another().is_none();
            }
            agree
        };
        assert!(town.live("exchange", Duration::from_secs(50), |_| true, agree).await);
        let (one, other) = (town.row("7").await, town.row("8").await);
        let runner = |row: &bullpen_core::job::Job| row.held().map(|held| held.runner.clone());
        assert_ne!(runner(&one), runner(&other));
        let done = async || town.is_over("7") && town.is_over("8");
        assert!(town.live("finish", LONG, |_| true, done).await);
        assert_eq!(town.launched(), 2);
        town.end().await;
    });
}

/// A burst of forty does not hold up ten others, and everyone is served under the ceiling.
#[test]
fn fifty_jobs_of_two_repositories_are_served_in_turns() {
    on_virtual_time(async {
        let town = Town::new(8).await;
        let mut jobs = Vec::new();
        for number in 0..50 {
            let repository = if number < 40 { "acme/burst" } else { "acme/calm" };
            let job = format!("{}", 100 + number);
            let label = format!("runs-on={job}/runner=large");
            let fact = town.submit(&job, about_in(&job, repository, &label));
            town.say(&fact).await;
            jobs.push(job);
        }
        let done = async || jobs.iter().all(|job| town.is_over(job));
        assert!(town.live("serve", Duration::from_secs(3 * 3600), |_| true, done).await);
        assert!(town.github.told().is_empty(), "{:?}", town.github.told());
        let mut begun = Vec::new();
        for job in &jobs {
            let row = town.row(job).await;
            begun.push((row.steps.last().expect("it was assigned").at, row.repository().clone()));
        }
        begun.sort();
        let half = begun.iter().take(25).filter(|(_, of)| of.as_str() == "acme/calm").count();
        assert!(half >= 8, "of the first 25 only {half} were the quiet repository's");
        town.end().await;
    });
}
