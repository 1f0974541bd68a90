//! What becomes of a machine after its job, whoever sees to it.
//!
//! Not here: machines of requests (`tests/requests.rs`).

use std::time::Duration;

use bullpen_core::class::Usage;
use bullpen_core::config::runner::Reuse;
use bullpen_core::ids::ClassName;
use bullpen_core::instance::State;
use bullpen_core::job::{Conclusion, JobFact, MachineSource, ReportedStatus};
use bullpen_core::ports::{JobForge, Ledger, Ports};
use bullpen_sim::clock::{on_virtual_time, pass};
use bullpen_sim::life::keep_up;
use bullpen_sim::stage;

use super::town::{Town, attend_once};

const LONG: Duration = Duration::from_secs(30 * 60);

/// Serves a job until GitHub says that it is over; its end is in its row, and nothing was done.
async fn ended(town: &Town, job: &str) {
    let fact = town.queue(job).await;
    let deaf = |fact: &JobFact| !matches!(fact.said, ReportedStatus::Completed { .. });
    let over = async || town.is_over(job);
    assert!(town.live(&format!("serve {job}"), LONG, deaf, over).await);
    let last = town.github.job(&fact.about.repository, &fact.job).await.expect("calm");
    town.say(&last).await;
    assert!(town.row(job).await.is_over());
}

async fn served(town: &Town, job: &str) -> MachineSource {
    town.queue(job).await;
    let done = async || town.is_settled(job).await;
    assert!(town.live(job, LONG, |_| true, done).await, "{:?}", town.row(job).await);
    town.came_by(job).await.expect("it had a machine")
}

/// Dies at await number `fuse` of the job's end; returns whether it died.
fn dies_at(fuse: u64) -> bool {
    on_virtual_time(async {
        let town = Town::new(5).await.reusing();
        stage::idle(&town.world, Usage::OnDemand, 1).await;
        ended(&town, "7").await;
        let first =
            town.process("dies", Some(fuse), async |service| attend_once(service, "7").await).await;
        tokio::select! {
            biased;
            () = pass(Duration::from_secs(100)) => {}
            never = keep_up(&town.world) => match never {},
        }
        let done = async || town.is_settled("7").await;
        assert!(town.live("next", LONG, |_| true, done).await, "died at {fuse}");
        assert_eq!(served(&town, "8").await, MachineSource::Reused, "died at {fuse}");
        assert_eq!(town.launched(), 1, "died at {fuse}");
        town.end().await;
        first.is_none()
    })
}

#[test]
fn a_machine_is_idle_again_whoever_began_to_release_it_and_wherever_that_stopped() {
    let mut fuse = 0;
    while dies_at(fuse) {
        fuse += 1;
    }
    assert!(fuse > 8, "only {fuse} awaits: it did nothing");
}

/// Once it is decided that a machine serves on, nobody of the service is needed to return it.
#[test]
fn upkeep_alone_returns_a_machine_that_serves_on() {
    let returned = (0..40).filter(|fuse| is_returned_by_upkeep(*fuse)).count();
    assert!(returned > 2, "{returned}");
}

fn is_returned_by_upkeep(fuse: u64) -> bool {
    on_virtual_time(async {
        let town = Town::new(5).await.reusing();
        let idle = stage::idle(&town.world, Usage::OnDemand, 1).await;
        ended(&town, "7").await;
        let dead =
            town.process("dies", Some(fuse), async |service| attend_once(service, "7").await).await;
        tokio::select! {
            biased;
            () = pass(Duration::from_secs(100)) => {}
            never = keep_up(&town.world) => match never {},
        }
        let record = town.world.outside.ledger().read(&idle[0].id).await.expect("calm");
        let is_idle = matches!(record.expect("it is recorded").state, State::Idle { .. });
        dead.is_none() && is_idle
    })
}

#[test]
fn a_machine_serves_as_often_as_its_class_says() {
    on_virtual_time(async {
        let mut town = Town::new(5).await.reusing();
        let large = town.config.runners.get_mut(&ClassName::new("large")).expect("there is one");
        large.reuse = Some(Reuse { max_uses: Some(2), max_age: None });
        stage::idle(&town.world, Usage::OnDemand, 1).await;
        for (job, how) in [
            ("7", MachineSource::Reused),
            ("8", MachineSource::Reused),
            ("9", MachineSource::Created),
        ] {
            assert_eq!(served(&town, job).await, how, "{job}");
        }
        town.end().await;
    });
}

#[test]
fn a_machine_grows_as_old_as_its_class_says() {
    on_virtual_time(async {
        let mut town = Town::new(5).await.reusing();
        let large = town.config.runners.get_mut(&ClassName::new("large")).expect("there is one");
        large.reuse = Some(Reuse { max_uses: None, max_age: Some(Duration::from_secs(60)) });
        stage::idle(&town.world, Usage::OnDemand, 1).await;
        for (job, how) in [("7", MachineSource::Reused), ("8", MachineSource::Created)] {
            assert_eq!(served(&town, job).await, how, "{job}");
        }
        town.end().await;
    });
}

/// Nobody said whose code ran: it may have been a fork's.
#[test]
fn a_machine_ends_whose_jobs_origin_is_not_known() {
    on_virtual_time(async {
        let town = Town::new(5).await.reusing();
        let idle = stage::idle(&town.world, Usage::OnDemand, 1).await;
        let fact = town.queue("7").await;
        town.github.set_outage(true);
        let deaf = |fact: &JobFact| !matches!(fact.said, ReportedStatus::Completed { .. });
        let over = async || town.is_over("7");
        assert!(town.live("serve 7", LONG, deaf, over).await);
        let conclusion = Conclusion::new("success");
        let said =
            ReportedStatus::Completed { conclusion, runner: Some("sim-7-0".into()), at: None };
        town.say(&JobFact { said, ..fact }).await;
        let done = async || town.is_settled("7").await;
        assert!(town.live("next", LONG, |_| true, done).await);
        let record = town.world.outside.ledger().read(&idle[0].id).await.expect("calm");
        let state = record.expect("it is recorded").state;
        assert!(matches!(state, State::Terminating { .. } | State::Terminated { .. }), "{state:?}");
        town.github.set_outage(false);
        town.end().await;
    });
}
