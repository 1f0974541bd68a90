//! GitHub is down, or refuses: no machine ends because of it.
//!
//! Not here: outages of the store (`watchdog`).

use std::sync::Arc;

use bullpen_core::mailbox::Secret;
use bullpen_embedded::system::SystemClock;
use bullpen_github::stand_in::{Options, Outage, RateLimit, StandIn};
use serde_json::Value;

use crate::stage::{Stage, TOKEN};
use crate::waiting::until;

/// A world with two warm machines, and its status.
async fn two_warm() -> (Stage, Value) {
    let stage = Stage::new().await;
    stage.provision(2, "warm").await;
    stage.release("warm").await;
    let before = stage.status().await;
    (stage, before)
}

/// D18: an outage touches no machine.
#[tokio::test]
async fn an_outage_of_github_touches_nothing() {
    let (stage, before) = two_warm().await;
    for (outage, cause) in [(Outage::Unavailable, "503"), (Outage::Drop, "GitHub")] {
        stage.github.pull(|levers| levers.outage = Some(outage));
        let failed = stage.bullpen("provision --count 3 --name more").run().await;
        failed.exits(69).says("GitHub gave no credential").says(cause);
        assert_eq!(stage.status().await, before);
    }
    stage.github.pull(|levers| levers.outage = None);
    assert_eq!(stage.provision(2, "more").await.counts(), (2, 0));
}

/// D18.
#[tokio::test]
async fn a_github_that_is_not_there_touches_nothing() {
    let (mut stage, before) = two_warm().await;
    let elsewhere = "127.0.0.1:0".parse().expect("it is an address");
    let other =
        StandIn::start(elsewhere, Options::new(Secret::new(TOKEN)), Arc::new(SystemClock::new()))
            .await;
    let stopped = std::mem::replace(&mut stage.github, other.expect("some port is free"));
    stopped.stop().await;
    let failed = stage.bullpen("provision --count 3 --name more").run().await;
    failed.exits(69).says("GitHub gave no credential").says("unavailable");
    assert_eq!(stage.status().await, before);
}

/// D18: the caller learns of a revoked token, or of a rate limit.
#[tokio::test]
async fn a_refused_credential_touches_nothing_and_says_what_to_do() {
    let (stage, before) = two_warm().await;
    stage.github.pull(|levers| levers.refuse_credentials = true);
    let refused = stage.bullpen("provision --count 3 --name more").run().await;
    refused.exits(1).says("401").says("check the token");
    assert_eq!(stage.status().await, before);
    stage.github.pull(|levers| {
        levers.refuse_credentials = false;
        levers.rate_limit = Some(RateLimit::Primary);
    });
    let limited = stage.bullpen("provision --count 3 --name more").run().await;
    limited.exits(69).says("throttled");
    assert_eq!(stage.status().await, before);
}

/// D18: where the agents are the first to notice, each machine returns to idle.
#[tokio::test]
async fn what_agents_cannot_register_at_github_is_idle_again() {
    let (stage, _) = two_warm().await;
    let warm: Vec<String> = stage.states().await.into_keys().collect();
    stage.refresh().await;
    let levers = [(Some(Outage::Unavailable), false), (None, true)];
    for (outage, refuse) in levers {
        stage.github.pull(|levers| {
            (levers.outage, levers.refuse_credentials) = (outage, refuse);
        });
        // With a kept token, so that the agents are the first to call GitHub.
        let provision = stage.bullpen("provision --count 2 --name more --deadline 60s");
        let failed = provision.without("INPUT_GITHUB_TOKEN").run().await;
        failed.exits(69).says("no other machine could have helped");
        stage.github.pull(|levers| (levers.outage, levers.refuse_credentials) = (None, false));
        until("idle machines", async || {
            stage.refresh().await;
            let states = stage.states().await;
            assert_eq!(states.keys().collect::<Vec<_>>(), warm.iter().collect::<Vec<_>>());
            states.values().all(|state| state == "idle").then_some(())
        })
        .await;
    }
    assert_eq!(stage.provision(2, "after").await.counts(), (2, 0));
}
