//! Runners at GitHub without a machine: those of jobs are removed once their jobs wait for them no more.
//!
//! Not here: runners of requests (`tests/refresh.rs`).

use std::time::Duration;

use bullpen_core::ids::{InstanceId, RunnerName};
use bullpen_core::job::{JobFact, ReportedStatus};
use bullpen_core::ports::Ports;
use bullpen_sim::clock::{on_virtual_time, pass};
use bullpen_sim::life::keep_up;

use super::town::{Town, about};

async fn upkeep(town: &Town, minutes: u64) {
    tokio::select! {
        biased;
        () = pass(Duration::from_secs(60 * minutes)) => {}
        never = keep_up(&town.world) => match never {},
    }
}

/// A runner that was minted and never came, as GitHub lists it.
fn minted(town: &Town, name: &str, machine: &InstanceId) {
    let label = about("7").labels.join(",");
    let forge = town.world.outside.forge();
    forge.register(&RunnerName::new(name), &label, machine).expect("it is up");
}

fn is_there(town: &Town, name: &str) -> bool {
    let listed = town.world.outside.forge().registered();
    listed.iter().any(|(runner, ..)| runner.as_str() == name)
}

#[test]
fn a_runner_that_its_job_still_waits_for_is_left_until_the_job_is_over() {
    on_virtual_time(async {
        let town = Town::new(5).await;
        let fact = town.queue("7").await;
        let gone = InstanceId::new("i-gone");
        for name in ["sim-7-0", "sim-7-1", "sim-404-0"] {
            minted(&town, name, &gone);
        }
        upkeep(&town, 25).await;
        assert!(is_there(&town, "sim-7-0"), "the next attempt has this name");
        assert!(!is_there(&town, "sim-7-1"), "no attempt has this name");
        assert!(!is_there(&town, "sim-404-0"), "nobody knows its job");
        let now = town.world.outside.clock().true_now();
        town.say(&town.github.cancel_queued(fact.job.as_str(), now)).await;
        upkeep(&town, 25).await;
        assert!(!is_there(&town, "sim-7-0"), "its job is over");
    });
}

/// The machine of a job that waits is gone, and nobody told the row yet.
#[test]
fn a_runner_is_removed_whose_machine_is_gone() {
    on_virtual_time(async {
        let town = Town::new(5).await;
        let fact = town.submit("7", about("7"));
        // Its runner listens and is given nothing.
        town.world.outside.forge().cancel(&fact.about.labels.join(","));
        town.say(&fact).await;
        let listens = async || is_there(&town, "sim-7-0") && town.row("7").await.held().is_some();
        let deaf = |_: &JobFact| false;
        assert!(town.live("serve", Duration::from_secs(600), deaf, listens).await);
        assert!(matches!(town.github.said("7"), Some(ReportedStatus::Queued { .. })));
        let held = town.row("7").await.held().expect("it has a machine").clone();
        town.world.outside.fleet().lose(&held.instance);
        upkeep(&town, 30).await;
        assert_eq!(town.row("7").await.held(), Some(&held), "nobody served it");
        assert!(!is_there(&town, "sim-7-0"));
    });
}
