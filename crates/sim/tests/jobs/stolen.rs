//! Runners that GitHub gave to another job, and runners that went away: what is launched in their place,
//! and when.
//!
//! Not here: exchanging what both have already (`serving`).

use std::time::Duration;

use bullpen_core::instance::State;
use bullpen_core::job::{Fact, Setback};
use bullpen_core::ports::{Ledger, Ports};
use bullpen_sim::clock::on_virtual_time;
use bullpen_sim::stage;

use super::town::{Town, about, about_in};

const LONG: Duration = Duration::from_secs(30 * 60);

/// Two jobs of one label, two machines on their way: whichever comes first serves the first job, and
/// the other machine serves the other job, whoever it was launched for.
#[test]
fn a_machine_that_is_on_its_way_serves_whoever_was_robbed() {
    let stolen = (0..12).filter(|seed| two_on_their_way(*seed)).count();
    assert!(stolen > 2, "it hardly ever happened: {stolen}");
}

/// Returns whether one of the two took the other's runner.
fn two_on_their_way(seed: u64) -> bool {
    on_virtual_time(async {
        let town = Town::in_world(stage::calm(seed, 5).await).await;
        for job in ["7", "8"] {
            let fact = town.submit(job, about_in(job, "acme/app", "runs-on/runner=large"));
            town.say(&fact).await;
        }
        let done = async || town.is_settled("7").await && town.is_settled("8").await;
        assert!(town.live("serve", LONG, |_| true, done).await, "{:?}", town.row("8").await);
        assert_eq!(town.launched(), 2, "seed {seed}: {:?}", town.row("8").await);
        assert!(town.github.told().is_empty());
        town.end().await;
        let ran_on = town.row("7").await.known.runner().cloned();
        ran_on.is_some_and(|runner| runner.as_str() != "sim-7-0")
    })
}

/// Nobody waits for the patience of a runner that listens when it does not.
#[test]
fn a_runner_that_stops_listening_is_replaced_at_the_next_look() {
    on_virtual_time(async {
        let town = Town::new(5).await;
        let fact = town.submit("7", about("7"));
        // Its runner listens and is given nothing.
        town.world.outside.forge().cancel(&fact.about.labels.join(","));
        town.say(&fact).await;
        let deaf = |_: &Fact| false;
        let runs = async || {
            let Some(held) = town.row("7").await.held().cloned() else { return false };
            let record = town.world.outside.ledger().read(&held.instance).await.expect("calm");
            record.is_some_and(|record| matches!(record.state, State::Running { .. }))
        };
        assert!(town.live("serve", LONG, deaf, runs).await);
        let held = town.row("7").await.held().expect("it has a machine").clone();
        assert!(town.world.outside.forge().forget(&held.runner, &held.instance));
        let freed = async || {
            let setbacks = town.row("7").await.setbacks;
            setbacks.iter().any(|at| at.setback == Setback::ListenerEnded)
        };
        let within = Duration::from_secs(25);
        assert!(town.live("look", within, deaf, freed).await, "{:?}", town.row("7").await);
        assert_eq!(town.row("7").await.attempts, 1, "it counts");
    });
}
