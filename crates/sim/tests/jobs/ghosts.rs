//! Upkeep removes a job's runner without a machine once its job does not wait for it any more.
//!
//! Not here: runners of requests (`tests/refresh.rs`).

use std::time::Duration;

use bullpen_core::ids::{InstanceId, RunnerName};
use bullpen_core::job::{JobFact, ReportedStatus};
use bullpen_core::ports::Ports;
use bullpen_sim::clock::{on_virtual_time, pass};
use bullpen_sim::life::keep_up;

use super::service_world::{ServiceWorld, about};

async fn upkeep(sim: &ServiceWorld, minutes: u64) {
    tokio::select! {
        biased;
        () = pass(Duration::from_secs(60 * minutes)) => {}
        never = keep_up(&sim.world) => match never {},
    }
}

/// Lists a runner at GitHub that was minted and never connected.
fn minted(sim: &ServiceWorld, name: &str, machine: &InstanceId) {
    let label = about("7").labels.join(",");
    let forge = sim.world.outside.forge();
    forge.register(&RunnerName::new(name), &label, machine).expect("it is up");
}

fn is_there(sim: &ServiceWorld, name: &str) -> bool {
    let listed = sim.world.outside.forge().registered();
    listed.iter().any(|(runner, ..)| runner.as_str() == name)
}

#[test]
fn a_runner_that_its_job_still_waits_for_is_left_until_the_job_is_over() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await;
        let fact = sim.queue("7").await;
        let gone = InstanceId::new("i-gone");
        for name in ["sim-7-0", "sim-7-1", "sim-404-0"] {
            minted(&sim, name, &gone);
        }
        upkeep(&sim, 25).await;
        assert!(is_there(&sim, "sim-7-0"), "the next attempt has this name");
        assert!(!is_there(&sim, "sim-7-1"), "no attempt has this name");
        assert!(!is_there(&sim, "sim-404-0"), "no row has its job");
        let now = sim.world.outside.clock().true_now();
        sim.deliver(&sim.github.cancel_queued(fact.job.as_str(), now)).await;
        upkeep(&sim, 25).await;
        assert!(!is_there(&sim, "sim-7-0"), "its job is over");
    });
}

/// The machine of a waiting job is gone, and the job's row does not show it yet.
#[test]
fn a_runner_whose_machine_is_gone_is_removed() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await;
        let fact = sim.submit("7", about("7"));
        // Its runner listens, and GitHub gives it no job.
        sim.world.outside.forge().cancel(&fact.about.labels.join(","));
        sim.deliver(&fact).await;
        let listens = async || is_there(&sim, "sim-7-0") && sim.row("7").await.held().is_some();
        let takes_none = |_: &JobFact| false;
        let within = Duration::from_secs(600);
        assert!(sim.serve_until("serve", within, takes_none, listens).await);
        assert!(matches!(sim.github.said("7"), Some(ReportedStatus::Queued { .. })));
        let held = sim.row("7").await.held().expect("it has a machine").clone();
        sim.world.outside.fleet().lose(&held.instance);
        upkeep(&sim, 30).await;
        assert_eq!(sim.row("7").await.held(), Some(&held), "only upkeep ran");
        assert!(!is_there(&sim, "sim-7-0"));
    });
}
