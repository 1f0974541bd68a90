//! GitHub is down, or refuses: no machine ends because of it.
//!
//! Not here: outages of the store (`watchdog`).

use std::sync::Arc;

use bullpen_core::mailbox::Secret;
use bullpen_embedded::system::SystemClock;
use bullpen_github::stand_in::{Options, Outage, RateLimit, StandIn};
use serde_json::Value;

use crate::waiting::until;
use crate::world::{TOKEN, World};

/// A world with two warm machines, and its status.
async fn two_warm() -> (World, Value) {
    let world = World::new().await;
    world.provision(2, "warm").await;
    world.release("warm").await;
    let before = world.status().await;
    (world, before)
}

/// D18: an outage touches no machine.
#[tokio::test]
async fn an_outage_of_github_touches_nothing() {
    let (world, before) = two_warm().await;
    for (outage, cause) in [(Outage::Unavailable, "503"), (Outage::Drop, "GitHub")] {
        world.github.pull(|levers| levers.outage = Some(outage));
        let failed = world.bullpen("provision --count 3 --name more").run().await;
        failed.exits(69).says("GitHub gave no credential").says(cause);
        assert_eq!(world.status().await, before);
    }
    world.github.pull(|levers| levers.outage = None);
    assert_eq!(world.provision(2, "more").await.counts(), (2, 0));
}

/// D18.
#[tokio::test]
async fn a_github_that_is_not_there_touches_nothing() {
    let (mut world, before) = two_warm().await;
    let elsewhere = "127.0.0.1:0".parse().expect("it is an address");
    let other =
        StandIn::start(elsewhere, Options::new(Secret::new(TOKEN)), Arc::new(SystemClock::new()))
            .await;
    let stopped = std::mem::replace(&mut world.github, other.expect("some port is free"));
    stopped.stop().await;
    let failed = world.bullpen("provision --count 3 --name more").run().await;
    failed.exits(69).says("GitHub gave no credential").says("unavailable");
    assert_eq!(world.status().await, before);
}

/// D18: the caller learns of a revoked token, or of a rate limit.
#[tokio::test]
async fn a_refused_credential_touches_nothing_and_says_what_to_do() {
    let (world, before) = two_warm().await;
    world.github.pull(|levers| levers.refuse_credentials = true);
    let refused = world.bullpen("provision --count 3 --name more").run().await;
    refused.exits(1).says("401").says("check the token");
    assert_eq!(world.status().await, before);
    world.github.pull(|levers| {
        levers.refuse_credentials = false;
        levers.rate_limit = Some(RateLimit::Primary);
    });
    let limited = world.bullpen("provision --count 3 --name more").run().await;
    limited.exits(69).says("throttled");
    assert_eq!(world.status().await, before);
}

/// D18: where the agents are the first to notice, each machine returns to idle.
#[tokio::test]
async fn what_agents_cannot_register_at_github_is_idle_again() {
    let (world, _) = two_warm().await;
    let warm: Vec<String> = world.states().await.into_keys().collect();
    world.refresh().await;
    let levers = [(Some(Outage::Unavailable), false), (None, true)];
    for (outage, refuse) in levers {
        world.github.pull(|levers| {
            (levers.outage, levers.refuse_credentials) = (outage, refuse);
        });
        // With a kept token, so that the agents are the first to call GitHub.
        let provision = world.bullpen("provision --count 2 --name more --deadline 60s");
        let failed = provision.without("INPUT_GITHUB_TOKEN").run().await;
        failed.exits(69).says("no other machine could have helped");
        world.github.pull(|levers| (levers.outage, levers.refuse_credentials) = (None, false));
        until("idle machines", async || {
            world.refresh().await;
            let states = world.states().await;
            assert_eq!(states.keys().collect::<Vec<_>>(), warm.iter().collect::<Vec<_>>());
            states.values().all(|state| state == "idle").then_some(())
        })
        .await;
    }
    assert_eq!(world.provision(2, "after").await.counts(), (2, 0));
}
