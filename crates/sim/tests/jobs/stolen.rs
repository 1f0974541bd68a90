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

/// Two jobs of one label. The later one's machine is first and is given the earlier job, whose own
/// machine is on its way: that one serves the later job, and no third is launched.
#[test]
fn a_machine_that_is_on_its_way_serves_whoever_was_robbed() {
    for seed in 0..4 {
        for late in [2, 5, 10, 15, 20] {
            on_virtual_time(two_of_one_label(seed, Duration::from_secs(late)));
        }
    }
}

async fn two_of_one_label(seed: u64, late: Duration) {
    let town = Town::in_world(stage::calm(seed, 5).await).await;
    let submit = |job| town.submit(job, about_in(job, "acme/app", "runs-on/runner=large"));
    let (first, second) = (submit("7"), submit("8"));
    town.say(&second).await;
    let never = async || false;
    assert!(!town.live("second", late, |_| true, never).await);
    town.say(&first).await;
    let done = async || town.is_settled("7").await && town.is_settled("8").await;
    assert!(town.live("serve", LONG, |_| true, done).await, "{:?}", town.row("8").await);
    assert_eq!(town.launched(), 2, "seed {seed}, {late:?} late: {:?}", town.row("8").await);
    assert!(town.github.told().is_empty());
    town.end().await;
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
