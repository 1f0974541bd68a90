//! Jobs that the service cannot serve, or not yet: it tells their authors why, in time, and leaves
//! nothing behind.
//!
//! Not here: jobs that the service serves (`serving`).

use std::time::Duration;

use bullpen_core::class::Usage;
use bullpen_core::config::extension::OnUnfulfillable;
use bullpen_core::job::{End, JobState, Reason, ReportedStatus, Setback};
use bullpen_core::ports::{Ledger, Ports};
use bullpen_core::time::Timestamp;
use bullpen_sim::calm_world;
use bullpen_sim::clock::{on_virtual_time, pass};

use super::service_world::{ServiceWorld, about_in, process_once};

const LONG: Duration = Duration::from_secs(2 * 3600);

fn is_told(sim: &ServiceWorld, job: &str) -> bool {
    sim.github.notices().iter().any(|notice| notice.job.as_str() == job)
}

#[test]
fn an_unknown_pool_is_reported_at_once_and_launches_nothing() {
    for (on_unfulfillable, cancelled) in
        [(OnUnfulfillable::default(), 1), (OnUnfulfillable::Annotate, 0)]
    {
        on_virtual_time(async {
            let mut sim = ServiceWorld::new(5).await;
            sim.config.on_unfulfillable = on_unfulfillable;
            let fact = sim.submit("7", about_in("7", "acme/app", "runs-on=7/pool=none"));
            sim.deliver(&fact).await;
            let done = async || sim.is_settled("7").await;
            assert!(sim.serve_until("serve", Duration::from_secs(30), |_| true, done).await);
            let notices = sim.github.notices();
            assert!(matches!(notices[0].reason, Reason::UnknownPool { .. }), "{notices:?}");
            assert_eq!(sim.github.cancelled().len(), cancelled);
            assert_eq!(sim.launched(), 0);
        });
    }
}

/// The service cancels the run when its other jobs are over, not before.
#[test]
fn a_run_is_cancelled_after_its_other_jobs() {
    on_virtual_time(async {
        let mut sim = ServiceWorld::new(5).await;
        sim.config.on_unfulfillable = OnUnfulfillable::Cancel;
        let run = |job: &str, label: &str| {
            let mut about = about_in(job, "acme/app", label);
            about.run = "1.1".into();
            about
        };
        for (job, label) in [("7", "runs-on=7/pool=none"), ("8", "runs-on=8/runner=large")] {
            let fact = sim.submit(job, run(job, label));
            sim.deliver(&fact).await;
        }
        let done = async || is_told(&sim, "7");
        assert!(sim.serve_until("tell", LONG, |_| true, done).await);
        assert_eq!(sim.github.cancelled(), []);
        let done = async || !sim.github.cancelled().is_empty();
        assert!(sim.serve_until("cancel", LONG, |_| true, done).await);
        assert!(sim.is_over("8"), "the service cancelled the run under job 8");
        sim.end().await;
    });
}

/// A shortage costs no attempt: the job waits for the cloud until its deadline.
#[test]
fn without_capacity_the_author_is_told_at_the_deadline() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await;
        sim.world.outside.fleet().limit_capacity(Some(0));
        sim.queue("7").await;
        let began = sim.world.outside.clock().elapsed();
        let done = async || is_told(&sim, "7");
        assert!(sim.serve_until("serve", LONG, |_| true, done).await, "{:?}", sim.row("7").await);
        let took = sim.world.outside.clock().elapsed().saturating_sub(began);
        let late = sim.world.limits.job_deadline + sim.world.limits.row_look_again;
        assert!(took < late, "{took:?}");
        let notices = sim.github.notices();
        let Reason::DeadlinePassed { last: Some(Setback::NoCapacity) } = notices[0].reason else {
            panic!("{notices:?}")
        };
        assert_eq!(sim.row("7").await.attempts, 0);
        sim.end().await;
    });
}

/// A job waits under a ceiling, which costs no attempt.
#[test]
fn under_a_ceiling_a_job_waits_until_there_is_capacity() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(1).await;
        calm_world::add_idle(&sim.world, Usage::OnDemand, 1).await;
        // Its class is not reused: it fills the ceiling until its idle deadline.
        sim.queue("7").await;
        let done = async || is_told(&sim, "7") || sim.is_over("7");
        assert!(sim.serve_until("serve", LONG, |_| true, done).await);
        assert!(sim.is_over("7"), "job 7 got no machine after the idle one ended");
        let row = sim.row("7").await;
        assert!(row.setbacks.iter().any(|at| at.setback == Setback::Ceiling), "{row:?}");
        assert_eq!(row.attempts, 0, "{row:?}");
        let settled = async || sim.is_settled("7").await;
        assert!(sim.serve_until("settle", LONG, |_| true, settled).await);
        sim.end().await;
    });
}

#[test]
fn an_outage_of_github_costs_no_machine_and_no_attempt() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await.reusing();
        let idle = calm_world::add_idle(&sim.world, Usage::OnDemand, 1).await;
        let fact = sim.submit("7", super::service_world::about("7"));
        sim.world.outside.forge().set_outage(true);
        sim.github.set_outage(true);
        sim.deliver(&fact).await;
        let never = async || false;
        assert!(!sim.serve_until("outage", Duration::from_secs(240), |_| true, never).await);
        let row = sim.row("7").await;
        assert_eq!(row.attempts, 0, "{row:?}");
        assert!(!row.is_over(), "{row:?}");
        let record = sim.world.outside.ledger().read(&idle[0].id).await.expect("calm");
        assert_eq!(record.as_ref(), Some(&idle[0]), "the outage changed the idle machine");
        sim.world.outside.forge().set_outage(false);
        sim.github.set_outage(false);
        let done = async || sim.is_over("7") && sim.is_settled("7").await;
        assert!(sim.serve_until("after", Duration::from_secs(300), |_| true, done).await);
        assert_eq!(sim.launched(), 1, "the service launched beside the idle machine");
        sim.end().await;
    });
}

/// A user cancels the job at every quarter of a second of its assignment: no machine and no
/// listener is left.
#[test]
fn a_job_that_is_cancelled_while_it_is_assigned_leaves_nothing() {
    for reuse in [false, true] {
        for quarters in (0..40).chain([60, 90, 130, 180, 240]) {
            on_virtual_time(async {
                let mut sim = ServiceWorld::new(5).await;
                if reuse {
                    sim = sim.reusing();
                    calm_world::add_idle(&sim.world, Usage::OnDemand, 1).await;
                }
                // GitHub gives it to no runner, so that a user can cancel it at any moment.
                let fact = sim.submit("7", super::service_world::about("7"));
                sim.world.outside.forge().cancel(&fact.about.labels.join(","));
                sim.deliver(&fact).await;
                let after = Duration::from_millis(250 * quarters);
                let never = async || false;
                assert!(!sim.serve_until("assign", after, |_| true, never).await);
                let now: Timestamp = sim.world.outside.clock().true_now();
                let fact = sim.github.cancel_queued("7", now);
                sim.deliver(&fact).await;
                let done = async || sim.is_settled("7").await;
                assert!(sim.serve_until("end", LONG, |_| true, done).await, "{after:?}");
                let row = sim.row("7").await;
                assert!(
                    matches!(row.state, JobState::Ended { end: End::Cancelled, .. }),
                    "{row:?}"
                );
                assert_eq!(sim.github.notices(), [], "{after:?}");
                sim.end().await;
            });
        }
    }
}

#[test]
fn a_queued_job_that_github_forgot_is_given_up_and_a_started_job_is_over() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await;
        sim.world.outside.fleet().limit_capacity(Some(0));
        let fact = sim.queue("7").await;
        sim.github.forget("7");
        let mut started = fact.clone();
        started.job = "8".into();
        started.said = ReportedStatus::Started { runner: None, at: None };
        sim.deliver(&started).await;
        pass(Duration::from_secs(61 * 60)).await;
        let over = async || sim.row("7").await.is_over() && sim.row("8").await.is_over();
        assert!(sim.serve_until("serve", LONG, |_| true, over).await);
        let JobState::Ended { end: End::Failed(reason), .. } = sim.row("7").await.state else {
            panic!("{:?}", sim.row("7").await);
        };
        assert_eq!(reason, Reason::Vanished);
    });
}

/// A process dies while it works off the debts of an ended job: the next process finishes them.
#[test]
fn an_ended_job_is_reported_and_cancelled_once_wherever_its_worker_dies() {
    let mut fuse = 0;
    loop {
        let died = on_virtual_time(async {
            let mut sim = ServiceWorld::new(5).await;
            sim.config.on_unfulfillable = OnUnfulfillable::Cancel;
            let fact = sim.submit("7", about_in("7", "acme/app", "runs-on=7/pool=none"));
            sim.deliver(&fact).await;
            let first = sim
                .process("dies", Some(fuse), async |service| process_once(service, "7").await)
                .await;
            let done = async || sim.is_settled("7").await;
            assert!(sim.serve_until("next", LONG, |_| true, done).await, "died at {fuse}");
            assert_eq!(sim.github.notices().len(), 1, "died at {fuse}");
            assert_eq!(sim.github.cancelled().len(), 1, "died at {fuse}");
            first.is_none()
        });
        if !died {
            break;
        }
        fuse += 1;
    }
    assert!(fuse > 8, "only {fuse} awaits: the worker did nothing");
}
