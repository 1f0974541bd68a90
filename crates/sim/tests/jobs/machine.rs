//! The service or upkeep returns or ends a machine after its job.
//!
//! Not here: machines of requests (`tests/requests.rs`).

use std::time::Duration;

use bullpen_core::class::Usage;
use bullpen_core::config::runner::Reuse;
use bullpen_core::ids::ClassName;
use bullpen_core::instance::State;
use bullpen_core::job::{Conclusion, JobFact, MachineSource, ReportedStatus};
use bullpen_core::ports::{JobForge, Ledger, Ports};
use bullpen_sim::calm_world;
use bullpen_sim::clock::{on_virtual_time, pass};
use bullpen_sim::life::keep_up;

use super::service_world::{ServiceWorld, process_once};

const LONG: Duration = Duration::from_secs(30 * 60);

/// Serves a job until GitHub says that it is over and the row has its end; the machine is not
/// released.
async fn ended(sim: &ServiceWorld, job: &str) {
    let fact = sim.queue(job).await;
    let takes = |fact: &JobFact| !matches!(fact.said, ReportedStatus::Completed { .. });
    let over = async || sim.is_over(job);
    assert!(sim.serve_until(&format!("serve {job}"), LONG, takes, over).await);
    let last = sim.github.job(&fact.about.repository, &fact.job).await.expect("calm");
    sim.deliver(&last).await;
    assert!(sim.row(job).await.is_over());
}

async fn served(sim: &ServiceWorld, job: &str) -> MachineSource {
    sim.queue(job).await;
    let done = async || sim.is_settled(job).await;
    assert!(sim.serve_until(job, LONG, |_| true, done).await, "{:?}", sim.row(job).await);
    sim.machine_source(job).await.expect("it had a machine")
}

/// A worker dies at await number `fuse` of the job's end; returns whether it died.
fn dies_at(fuse: u64) -> bool {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await.reusing();
        calm_world::add_idle(&sim.world, Usage::OnDemand, 1).await;
        ended(&sim, "7").await;
        let first =
            sim.process("dies", Some(fuse), async |service| process_once(service, "7").await).await;
        tokio::select! {
            biased;
            () = pass(Duration::from_secs(100)) => {}
            never = keep_up(&sim.world) => match never {},
        }
        let done = async || sim.is_settled("7").await;
        assert!(sim.serve_until("next", LONG, |_| true, done).await, "died at {fuse}");
        assert_eq!(served(&sim, "8").await, MachineSource::Reused, "died at {fuse}");
        assert_eq!(sim.launched(), 1, "died at {fuse}");
        sim.end().await;
        first.is_none()
    })
}

#[test]
fn a_machine_is_idle_again_wherever_the_worker_that_releases_it_dies() {
    let mut fuse = 0;
    while dies_at(fuse) {
        fuse += 1;
    }
    assert!(fuse > 8, "only {fuse} awaits: the worker did nothing");
}

/// Once a worker has decided that a machine may be reused, upkeep returns it without the service.
#[test]
fn upkeep_alone_returns_a_machine_that_may_be_reused() {
    let returned = (0..40).filter(|fuse| is_returned_by_upkeep(*fuse)).count();
    assert!(returned > 2, "{returned}");
}

fn is_returned_by_upkeep(fuse: u64) -> bool {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await.reusing();
        let idle = calm_world::add_idle(&sim.world, Usage::OnDemand, 1).await;
        ended(&sim, "7").await;
        let dead =
            sim.process("dies", Some(fuse), async |service| process_once(service, "7").await).await;
        tokio::select! {
            biased;
            () = pass(Duration::from_secs(100)) => {}
            never = keep_up(&sim.world) => match never {},
        }
        let record = sim.world.outside.ledger().read(&idle[0].id).await.expect("calm");
        let is_idle = matches!(record.expect("it is recorded").state, State::Idle { .. });
        dead.is_none() && is_idle
    })
}

#[test]
fn a_machine_serves_as_often_as_its_class_says() {
    on_virtual_time(async {
        let mut sim = ServiceWorld::new(5).await.reusing();
        let large = sim.config.runners.get_mut(&ClassName::new("large")).expect("there is one");
        large.reuse = Some(Reuse { max_uses: Some(2), max_age: None });
        calm_world::add_idle(&sim.world, Usage::OnDemand, 1).await;
        for (job, how) in [
            ("7", MachineSource::Reused),
            ("8", MachineSource::Reused),
            ("9", MachineSource::Created),
        ] {
            assert_eq!(served(&sim, job).await, how, "{job}");
        }
        sim.end().await;
    });
}

#[test]
fn a_machine_serves_up_to_the_age_that_its_class_says() {
    on_virtual_time(async {
        let mut sim = ServiceWorld::new(5).await.reusing();
        let large = sim.config.runners.get_mut(&ClassName::new("large")).expect("there is one");
        large.reuse = Some(Reuse { max_uses: None, max_age: Some(Duration::from_secs(60)) });
        calm_world::add_idle(&sim.world, Usage::OnDemand, 1).await;
        for (job, how) in [("7", MachineSource::Reused), ("8", MachineSource::Created)] {
            assert_eq!(served(&sim, job).await, how, "{job}");
        }
        sim.end().await;
    });
}

/// GitHub did not say whose code ran: it may be a fork's.
#[test]
fn a_machine_ends_after_a_job_of_unknown_origin() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await.reusing();
        let idle = calm_world::add_idle(&sim.world, Usage::OnDemand, 1).await;
        let fact = sim.queue("7").await;
        sim.github.set_outage(true);
        let takes = |fact: &JobFact| !matches!(fact.said, ReportedStatus::Completed { .. });
        let over = async || sim.is_over("7");
        assert!(sim.serve_until("serve 7", LONG, takes, over).await);
        let conclusion = Conclusion::new("success");
        let said =
            ReportedStatus::Completed { conclusion, runner: Some("sim-7-0".into()), at: None };
        sim.deliver(&JobFact { said, ..fact }).await;
        let done = async || sim.is_settled("7").await;
        assert!(sim.serve_until("next", LONG, |_| true, done).await);
        let record = sim.world.outside.ledger().read(&idle[0].id).await.expect("calm");
        let state = record.expect("it is recorded").state;
        assert!(matches!(state, State::Terminating { .. } | State::Terminated { .. }), "{state:?}");
        sim.github.set_outage(false);
        sim.end().await;
    });
}
