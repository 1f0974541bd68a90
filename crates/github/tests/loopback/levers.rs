//! Tests of the client with a failing GitHub: outages, refusals, limits, slowness, lost answers.
//!
//! Not here: a GitHub that works (`client`, `contract`).

use std::pin::pin;
use std::time::Duration;

use bullpen_core::claim::Deletion;
use bullpen_core::class::Architecture;
use bullpen_core::ids::JobId;
use bullpen_core::ports::{Fault, FileRead, Forge as _, JobForge};
use bullpen_github::limits::{CALL_TIMEOUT, METHOD_TIMEOUT};
use bullpen_github::stand_in::{Outage, RateLimit};
use futures_util::future::{Either, join, select};
use serde_json::json;

use crate::world::{TOKEN, World, pat, spec};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn the_client_reports_an_outage_and_recovers() {
    let world = World::new().await;
    let github = world.client("acme", pat());
    for outage in [Outage::Unavailable, Outage::Drop] {
        world.stand_in.pull(|levers| levers.outage = Some(outage));
        assert!(matches!(github.runners().await, Err(Fault::Unavailable(_))));
        assert!(matches!(github.credential(&spec("bp-1", true)).await, Err(Fault::Unavailable(_))));
        assert!(matches!(
            github.credential(&spec("bp-1", false)).await,
            Err(Fault::Unavailable(_))
        ));
        assert_eq!(github.delete(&"bp-1".into()).await, Deletion::Unavailable);
        world.stand_in.pull(|levers| levers.outage = None);
        assert_eq!(github.runners().await, Ok(vec![]));
    }
}

#[tokio::test]
async fn a_stopped_server_is_unavailable() {
    let world = World::new().await;
    let github = world.client("acme", pat());
    github.runners().await.unwrap();
    let address = world.stand_in.address();
    world.stand_in.stop().await;
    assert!(matches!(github.runners().await, Err(Fault::Unavailable(_))));
    drop(std::net::TcpListener::bind(address).expect("the port is free again"));
}

#[tokio::test]
async fn a_server_that_stops_during_a_call_is_unavailable() {
    let world = World::new().await;
    let github = world.client("acme", pat());
    world.stand_in.pull(|levers| levers.slow_ms = 3_600_000);
    let stand_in = world.stand_in;
    let stop = async move {
        stand_in.called(1).await;
        stand_in.stop().await;
    };
    assert!(matches!(join(github.runners(), stop).await.0, Err(Fault::Unavailable(_))));
}

#[tokio::test]
async fn a_refused_credential_is_denied() {
    let world = World::new().await;
    let github = world.client("acme", pat());
    world.stand_in.pull(|levers| levers.refuse_credentials = true);
    let fault = github.credential(&spec("bp-1", false)).await.unwrap_err();
    assert!(matches!(&fault, Fault::Denied(text) if text.contains("Bad credentials")), "{fault}");
    assert_eq!(github.delete(&"bp-1".into()).await, Deletion::Unavailable);
}

#[tokio::test]
async fn a_rate_limit_pauses_the_client_for_as_long_as_github_asks() {
    let world = World::new().await;
    let github = world.client("acme", pat());
    let limit = RateLimit::Secondary { retry_after: 30 };
    world.stand_in.pull(|levers| levers.rate_limit = Some(limit));
    assert_eq!(github.runners().await, Err(Fault::Throttled));
    world.stand_in.pull(|levers| levers.rate_limit = None);
    world.clock.advance(Duration::from_secs(14));
    assert_eq!(github.delete(&"bp-1".into()).await, Deletion::Unavailable);
    world.clock.advance(Duration::from_secs(10));
    assert_eq!(github.runners().await, Err(Fault::Throttled));
    assert_eq!(world.stand_in.calls(), 1, "the client sent nothing meanwhile");
    // An urgent call waits for the rest of the pause.
    let advance = async { world.clock.advance(Duration::from_secs(6)) };
    let (deleted, ()) = join(github.delete(&"bp-1".into()), advance).await;
    assert_eq!(deleted, Deletion::NotFound);
    assert_eq!(github.runners().await, Ok(vec![]));
}

#[tokio::test]
async fn a_spent_budget_pauses_the_client_until_the_reset() {
    let world = World::with(|options| options.calls_per_hour = 2).await;
    let github = world.client("acme", pat());
    github.credential(&spec("bp-1", true)).await.unwrap();
    assert_eq!(github.credential_wait(), Duration::ZERO);
    github.credential(&spec("bp-2", true)).await.unwrap();
    assert_eq!(github.runners().await, Err(Fault::Throttled));
    assert!(matches!(github.credential(&spec("bp-3", true)).await, Err(Fault::Throttled)));
    assert!(github.credential_wait() > MINUTE, "the reset is up to an hour away");
    assert_eq!(world.stand_in.calls(), 2, "the client refused the calls itself");
    world.clock.advance(61 * MINUTE);
    assert!(github.runners().await.is_ok());
    world.stand_in.pull(|levers| levers.rate_limit = Some(RateLimit::Primary));
    assert_eq!(github.runners().await, Err(Fault::Throttled));
}

#[tokio::test]
async fn a_slow_call_times_out() {
    let world = World::new().await;
    let github = world.client("acme", pat());
    world.stand_in.pull(|levers| levers.slow_ms = 3_600_000);
    let advance = async {
        world.stand_in.called(1).await;
        world.clock.advance(CALL_TIMEOUT);
    };
    let (listed, ()) = join(github.runners(), advance).await;
    assert!(matches!(listed, Err(Fault::Unavailable(_))));
}

#[tokio::test]
async fn a_method_of_many_calls_times_out() {
    let world = World::new().await;
    for number in 0..750 {
        world.runner("acme", &format!("bp-{number}"), &["x"]).await;
    }
    let github = world.client("acme", pat());
    let before = world.stand_in.calls();
    // Every page takes just less than a call's time limit.
    let slow = CALL_TIMEOUT.saturating_sub(Duration::from_secs(1));
    let slow_ms = u64::try_from(slow.as_millis()).unwrap();
    world.stand_in.pull(|levers| levers.slow_ms = slow_ms);
    let advancing = async {
        for page in 1.. {
            world.stand_in.called(before + page).await;
            world.clock.advance(slow);
        }
    };
    let Either::Left((listed, _)) = select(pin!(github.runners()), pin!(advancing)).await else {
        panic!("the loop never ends");
    };
    assert!(matches!(listed, Err(Fault::Unavailable(_))));
    let pages = METHOD_TIMEOUT.as_secs().div_ceil(slow.as_secs());
    assert_eq!(world.stand_in.calls() - before, pages);
}

#[tokio::test]
async fn a_call_whose_answer_was_lost_is_not_retried() {
    let world = World::new().await;
    let github = world.client("acme", pat());
    github.runners().await.unwrap();
    world.stand_in.pull(|levers| levers.lose_answers = 1);
    assert!(matches!(github.credential(&spec("bp-1", true)).await, Err(Fault::Unavailable(_))));
    assert_eq!(world.stand_in.calls(), 2);
    assert_eq!(world.stand_in.runners().len(), 1, "the call had its effect");
    github.credential(&spec("bp-1", true)).await.expect("the second replaces the first");
    assert_eq!(world.stand_in.runners().len(), 1);
}

#[tokio::test]
async fn after_a_deletion_whose_answer_was_lost_the_runner_is_not_found() {
    let world = World::new().await;
    let github = world.client("acme", pat());
    let runner = world.runner("acme", "bp-1", &["x"]).await;
    world.stand_in.pull(|levers| levers.lose_answers = 1);
    let name = "bp-1".into();
    assert!(matches!(
        github.delete_known(&name, runner.runner_id).await,
        Err(Fault::Unavailable(_))
    ));
    assert_eq!(github.delete(&name).await, Deletion::NotFound);
}

#[tokio::test]
async fn levers_can_be_pulled_over_http_and_affect_runners() {
    let world = World::new().await;
    let runner = world.runner("acme", "bp-1", &["x"]).await;
    let levers = json!({"outage": "unavailable"});
    assert_eq!(world.ask("PUT", "/levers", TOKEN, Some(levers)).await.0, 204);
    assert_eq!(world.stand_in.levers().outage, Some(Outage::Unavailable));
    assert_eq!(world.message(&runner, 0).await.0, 503);
    world.job(&["x"]);
    assert_eq!(world.ask("PUT", "/levers", TOKEN, Some(json!({}))).await.0, 204);
    assert_eq!(world.message(&runner, 0).await.0, 200, "the job waited for the end of the outage");
    let limit = json!({"rate_limit": {"secondary": {"retry_after": 5}}, "slow_ms": 0});
    assert_eq!(world.ask("PUT", "/levers", TOKEN, Some(limit)).await.0, 204);
    assert_eq!(world.rest("GET", "/orgs/acme/actions/runners", None).await.0, 429);
    let unknown = json!({"outrage": true});
    assert_eq!(world.ask("PUT", "/levers", TOKEN, Some(unknown)).await.0, 422);
}

#[tokio::test]
async fn every_answer_is_counted_by_request_and_status() {
    let world = World::new().await;
    let github = world.client("acme/app", pat());
    github.credential(&spec("bp-1", true)).await.unwrap();
    let job = world.job(&["x"]);
    for repository in ["acme/app", "acme/other"] {
        let id = JobId::new(job.id.to_string());
        let _ = JobForge::job(&github, &repository.into(), &id).await;
    }
    let counted: Vec<_> = world.stand_in.answers().into_iter().collect();
    let answered = |kind: &str, status: u16| ((kind.to_owned(), status), 1);
    let expected = [
        answered("GET actions/jobs/{id}", 200),
        answered("GET actions/jobs/{id}", 404),
        answered("POST actions/runners/generate-jitconfig", 201),
    ];
    assert_eq!(counted, expected);
}

#[tokio::test]
async fn an_unchanged_answer_costs_nothing_of_the_hour() {
    let world = World::with(|options| options.calls_per_hour = 200).await;
    let github = world.client("acme", pat());
    let (repository, path) = ("acme/.github-private".into(), ".github/runs-on.yml");
    world.stand_in.put_file("acme/.github-private", path, "pools: {}\n");
    let Ok(FileRead::Read { tag, .. }) = github.file(&repository, path, None).await else {
        panic!("the file exists");
    };
    for read in 0..300 {
        let again = github.file(&repository, path, tag.as_deref()).await;
        assert_eq!(again, Ok(FileRead::Unchanged), "read {read}");
    }
    assert_eq!(world.stand_in.limited(), 0);
}

/// An hour of 500 calls, 420 jobs that come evenly, and a search that takes all that it may.
#[tokio::test]
async fn no_mint_waits_for_looking() {
    let world = World::with(|options| options.calls_per_hour = 500).await;
    let github = world.client("acme", pat());
    let mut looked = 0;
    for job in 0..420 {
        while github.offered_runner(Architecture::X64).await.is_ok() {
            looked += 1;
        }
        github.jit(&spec(&format!("bp-{job}"), true)).await.expect("a mint has its share");
        world.clock.advance(Duration::from_millis(8_571));
    }
    assert!(looked > 25, "the search had only {looked} calls");
    assert_eq!(world.stand_in.limited(), 0);
}
