//! Jobs that are not served: their authors are told why, in time, and nothing is left behind.
//!
//! Not here: jobs that are.

use std::time::Duration;

use bullpen_core::class::Usage;
use bullpen_core::config::extension::OnUnfulfillable;
use bullpen_core::job::{End, JobState, Reason, ReportedStatus, Setback};
use bullpen_core::ports::{Ledger, Ports};
use bullpen_core::time::Timestamp;
use bullpen_sim::clock::{on_virtual_time, pass};
use bullpen_sim::stage;

use super::town::{Town, about_in, attend_once};

const LONG: Duration = Duration::from_secs(2 * 3600);

fn is_told(town: &Town, job: &str) -> bool {
    town.github.told().iter().any(|notice| notice.job.as_str() == job)
}

#[test]
fn an_unknown_pool_is_told_at_once_and_launches_nothing() {
    for (on_unfulfillable, cancelled) in
        [(OnUnfulfillable::Annotate, 0), (OnUnfulfillable::Cancel, 1)]
    {
        on_virtual_time(async {
            let mut town = Town::new(5).await;
            town.config.on_unfulfillable = on_unfulfillable;
            let fact = town.submit("7", about_in("7", "acme/app", "runs-on=7/pool=none"));
            town.say(&fact).await;
            let done = async || town.is_settled("7").await;
            assert!(town.live("serve", Duration::from_secs(30), |_| true, done).await);
            let told = town.github.told();
            assert!(matches!(told[0].reason, Reason::UnknownPool { .. }), "{told:?}");
            assert_eq!(town.github.cancelled().len(), cancelled);
            assert_eq!(town.launched(), 0);
        });
    }
}

/// The run is cancelled when its other jobs are over, not before.
#[test]
fn a_run_is_cancelled_after_its_other_jobs() {
    on_virtual_time(async {
        let mut town = Town::new(5).await;
        town.config.on_unfulfillable = OnUnfulfillable::Cancel;
        let run = |job: &str, label: &str| {
            let mut about = about_in(job, "acme/app", label);
            about.run = "1.1".into();
            about
        };
        for (job, label) in [("7", "runs-on=7/pool=none"), ("8", "runs-on=8/runner=large")] {
            let fact = town.submit(job, run(job, label));
            town.say(&fact).await;
        }
        let done = async || is_told(&town, "7");
        assert!(town.live("tell", LONG, |_| true, done).await);
        assert_eq!(town.github.cancelled(), []);
        let done = async || !town.github.cancelled().is_empty();
        assert!(town.live("cancel", LONG, |_| true, done).await);
        assert!(town.is_over("8"), "it was let run");
        town.end().await;
    });
}

#[test]
fn without_capacity_the_author_is_told_before_the_deadline() {
    on_virtual_time(async {
        let town = Town::new(5).await;
        town.world.outside.fleet().limit_capacity(Some(0));
        town.queue("7").await;
        let began = town.world.outside.clock().elapsed();
        let done = async || is_told(&town, "7");
        assert!(town.live("serve", LONG, |_| true, done).await, "{:?}", town.row("7").await);
        let took = town.world.outside.clock().elapsed().saturating_sub(began);
        assert!(took < town.world.limits.job_deadline, "{took:?}");
        let told = town.github.told();
        let Reason::OutOfAttempts { attempts: 5, .. } = told[0].reason else { panic!("{told:?}") };
        assert_eq!(town.row("7").await.setbacks.len(), 5);
        town.end().await;
    });
}

/// A ceiling is waited for, and costs no attempt.
#[test]
fn under_a_ceiling_a_job_waits_until_there_is_room() {
    on_virtual_time(async {
        let town = Town::new(1).await;
        stage::idle(&town.world, Usage::OnDemand, 1).await;
        // Not to be reused: it keeps the ceiling full until its idle time is over.
        town.queue("7").await;
        let done = async || is_told(&town, "7") || town.is_over("7");
        assert!(town.live("serve", LONG, |_| true, done).await);
        assert!(town.is_over("7"), "the idle one ends, and then there is room");
        let row = town.row("7").await;
        assert!(row.setbacks.iter().any(|at| at.setback == Setback::Ceiling), "{row:?}");
        assert_eq!(row.attempts, 0, "{row:?}");
        let settled = async || town.is_settled("7").await;
        assert!(town.live("settle", LONG, |_| true, settled).await);
        town.end().await;
    });
}

#[test]
fn an_outage_of_github_costs_no_machine_and_no_attempt() {
    on_virtual_time(async {
        let town = Town::new(5).await.reusing();
        let idle = stage::idle(&town.world, Usage::OnDemand, 1).await;
        let fact = town.submit("7", super::town::about("7"));
        town.world.outside.forge().set_outage(true);
        town.github.set_outage(true);
        town.say(&fact).await;
        let never = async || false;
        assert!(!town.live("outage", Duration::from_secs(240), |_| true, never).await);
        let row = town.row("7").await;
        assert_eq!(row.attempts, 0, "{row:?}");
        assert!(!row.is_over(), "{row:?}");
        let record = town.world.outside.ledger().read(&idle[0].id).await.expect("calm");
        assert_eq!(record.as_ref(), Some(&idle[0]), "it was not touched");
        town.world.outside.forge().set_outage(false);
        town.github.set_outage(false);
        let done = async || town.is_over("7") && town.is_settled("7").await;
        assert!(town.live("after", Duration::from_secs(300), |_| true, done).await);
        assert_eq!(town.launched(), 1, "the idle one served it");
        town.end().await;
    });
}

/// Cancelled at every quarter of a second of its assignment: nothing is left, and nobody listens.
#[test]
fn a_job_that_is_cancelled_while_it_is_assigned_leaves_nothing() {
    for reuse in [false, true] {
        for quarters in (0..40).chain([60, 90, 130, 180, 240]) {
            on_virtual_time(async {
                let mut town = Town::new(5).await;
                if reuse {
                    town = town.reusing();
                    stage::idle(&town.world, Usage::OnDemand, 1).await;
                }
                // It is never given to anybody, so that it can be cancelled at any moment.
                let fact = town.submit("7", super::town::about("7"));
                town.world.outside.forge().cancel(&fact.about.labels.join(","));
                town.say(&fact).await;
                let after = Duration::from_millis(250 * quarters);
                let never = async || false;
                assert!(!town.live("assign", after, |_| true, never).await);
                let now: Timestamp = town.world.outside.clock().true_now();
                let fact = town.github.cancel_queued("7", now);
                town.say(&fact).await;
                let done = async || town.is_settled("7").await;
                assert!(town.live("end", LONG, |_| true, done).await, "{after:?}");
                let row = town.row("7").await;
                assert!(
                    matches!(row.state, JobState::Ended { end: End::Cancelled, .. }),
                    "{row:?}"
                );
                assert_eq!(town.github.told(), [], "{after:?}");
                town.end().await;
            });
        }
    }
}

#[test]
fn a_job_that_github_forgot_is_given_up_and_one_that_ran_is_over() {
    on_virtual_time(async {
        let town = Town::new(5).await;
        town.world.outside.fleet().limit_capacity(Some(0));
        let fact = town.queue("7").await;
        town.github.forget("7");
        let mut started = fact.clone();
        started.job = "8".into();
        started.said = ReportedStatus::Started { runner: None, at: None };
        town.say(&started).await;
        pass(Duration::from_secs(61 * 60)).await;
        let over = async || town.row("7").await.is_over() && town.row("8").await.is_over();
        assert!(town.live("serve", LONG, |_| true, over).await);
        let JobState::Ended { end: End::Failed(reason), .. } = town.row("7").await.state else {
            panic!("{:?}", town.row("7").await);
        };
        assert_eq!(reason, Reason::Vanished);
    });
}

/// What a process that dies in the middle of the end leaves is worked off by the next.
#[test]
fn an_end_that_dies_at_any_await_is_told_and_cancelled_once() {
    let mut fuse = 0;
    loop {
        let died = on_virtual_time(async {
            let mut town = Town::new(5).await;
            town.config.on_unfulfillable = OnUnfulfillable::Cancel;
            let fact = town.submit("7", about_in("7", "acme/app", "runs-on=7/pool=none"));
            town.say(&fact).await;
            let first = town
                .process("dies", Some(fuse), async |service| attend_once(service, "7").await)
                .await;
            let done = async || town.is_settled("7").await;
            assert!(town.live("next", LONG, |_| true, done).await, "died at {fuse}");
            assert_eq!(town.github.told().len(), 1, "died at {fuse}");
            assert_eq!(town.github.cancelled().len(), 1, "died at {fuse}");
            first.is_none()
        });
        if !died {
            break;
        }
        fuse += 1;
    }
    assert!(fuse > 8, "only {fuse} awaits: it did nothing");
}
