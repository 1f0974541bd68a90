//! Tests of webhooks from the stand-in to a receiver: signed, in order, out of order, lost.
//!
//! Not here: the rules of verifying and parsing (`webhook::tests`).

use std::time::Duration;

use bullpen_core::forge_rates::{CallCount, CallPurpose};
use bullpen_core::ids::{JobId, RunAttempt, RunnerName};
use bullpen_core::job::{Job, JobPhase, JobState};
use bullpen_core::limits::Limits;
use bullpen_core::mailbox::Secret;
use bullpen_core::ports::{Clock as _, JobForge, UnfinishedRun};
use bullpen_github::stand_in::protocol::JobOrder;
use bullpen_github::stand_in::{Hook, WebhookLevers};
use serde_json::json;

use crate::receiver::Receiver;
use crate::world::{TOKEN, World, app, order, pat};

async fn world_and_receiver() -> (World, Receiver) {
    let (world, receiver) = (World::new().await, Receiver::start().await);
    world.stand_in.hook(receiver.hook()).expect("the receiver is on loopback");
    (world, receiver)
}

/// Submits a job, and plays its runner until the job has ended.
async fn run_a_job(world: &World) -> JobId {
    let runner = world.runner("acme", "bp-1", &["x"]).await;
    let job = world.job(&["x"]);
    assert_eq!(world.started(&runner, job.id).await, 204);
    assert_eq!(world.completed(&runner, job.id, "success").await, 204);
    JobId::new(job.id.to_string())
}

fn row(receiver: &Receiver, world: &World, job: &JobId) -> Job {
    receiver.rows(world.clock.now()).remove(job).expect("the receiver got a webhook of the job")
}

#[tokio::test]
async fn a_jobs_webhooks_are_signed_and_in_order() {
    let (world, receiver) = world_and_receiver().await;
    let job = run_a_job(&world).await;
    world.stand_in.webhooks_sent().await;
    assert_eq!(receiver.actions(), ["queued", "in_progress", "completed"]);
    assert_eq!(world.stand_in.webhook_answers(), [204; 3]);
    let row = row(&receiver, &world, &job);
    assert!(row.is_over(), "{row:?}");
    assert_eq!(row.known.runner().map(RunnerName::as_str), Some("bp-1"));
}

#[tokio::test]
async fn webhooks_make_the_same_row_in_any_order() {
    let (world, receiver) = world_and_receiver().await;
    let job = run_a_job(&world).await;
    world.stand_in.webhooks_sent().await;
    let expected = row(&receiver, &world, &job);
    for (double, newest_first) in [(true, false), (false, true), (true, true)] {
        let (world, receiver) = world_and_receiver().await;
        let held = WebhookLevers { hold: true, double, newest_first, ..WebhookLevers::default() };
        world.stand_in.pull(|levers| levers.webhooks = held);
        let job = run_a_job(&world).await;
        world.stand_in.pull(|levers| levers.webhooks.hold = false);
        world.stand_in.webhooks_sent().await;
        let actions = receiver.actions();
        assert_eq!(actions.len(), if double { 6 } else { 3 });
        assert_eq!(actions[0] == "completed", newest_first, "{actions:?}");
        assert_eq!(row(&receiver, &world, &job), expected);
    }
}

#[tokio::test]
async fn a_search_finds_a_job_whose_webhook_was_lost() {
    let (world, receiver) = world_and_receiver().await;
    let github = world.client("acme", app());
    world.stand_in.pull(|levers| levers.webhooks.lose = 1);
    let job = world.job(&["x"]);
    world.stand_in.webhooks_sent().await;
    assert_eq!(receiver.actions(), [""; 0]);
    let repository = "acme/app".into();
    let runs = github.unfinished_runs(&repository).await.unwrap();
    let expected = UnfinishedRun {
        run: RunAttempt::new(format!("{}.1", job.run_id)),
        began: Some(world.clock.now()),
    };
    assert_eq!(runs, [expected]);
    let found = github.search_run(&repository, &runs[0].run).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].job.as_str(), job.id.to_string());
    let row = Job::first(&found[0], world.clock.now(), &Limits::DEFAULT);
    assert!(matches!(row.state, JobState::Waiting { .. }), "{row:?}");
    let read = JobForge::job(&github, &repository, &found[0].job).await.unwrap();
    assert_eq!(read, found[0]);
}

#[tokio::test]
async fn a_search_that_finds_nothing_new_costs_nothing_of_the_hour() {
    let world = World::with(|options| options.calls_per_hour = 1_000).await;
    let github = world.client("acme", pat());
    let repository = "acme/app".into();
    let mut jobs = vec![world.job(&["x"])];
    let search = async || {
        let runs = github.unfinished_runs(&repository).await.unwrap();
        let mut found = Vec::new();
        for run in &runs {
            found.extend(github.search_run(&repository, &run.run).await.unwrap());
        }
        (runs.len(), found.len())
    };
    let count = || github.calls()[&CallPurpose::Look];
    assert_eq!(search().await, (1, 1));
    assert_eq!(count(), CallCount { sent: 3, free: 0 }, "two listings and the jobs of a run");
    for _ in 0..20 {
        assert_eq!(search().await, (1, 1));
    }
    assert_eq!(count(), CallCount { sent: 63, free: 60 });
    // A new run changes one listing, and its own jobs are new.
    jobs.push(world.job(&["y"]));
    assert_eq!(search().await, (2, 2));
    assert_eq!(count(), CallCount { sent: 67, free: 62 });
    assert_eq!(world.stand_in.limited(), 0);
    let purposes: Vec<_> = github.calls().into_keys().collect();
    assert_eq!(purposes, [CallPurpose::Look]);
    drop(jobs);
}

#[tokio::test]
async fn a_failed_delivery_is_repeated_only_on_request() {
    let (world, receiver) = world_and_receiver().await;
    let github = world.client("acme", app());
    let began = world.clock.now();
    receiver.fail(2);
    let job = run_a_job(&world).await;
    world.stand_in.webhooks_sent().await;
    assert_eq!(world.stand_in.webhook_answers(), [503, 503, 204]);
    let lost = github.lost_deliveries(began).await.unwrap();
    assert_eq!(lost.len(), 2);
    for delivery in &lost {
        github.redeliver(delivery).await.unwrap();
    }
    world.stand_in.webhooks_sent().await;
    assert_eq!(github.lost_deliveries(began).await.unwrap(), [], "the second attempts arrived");
    let guids: Vec<_> = receiver.events().into_iter().filter_map(|it| it.delivery).collect();
    assert!(lost.iter().all(|it| guids.contains(&it.guid)), "the ids differ: {guids:?}");
    assert_eq!(row(&receiver, &world, &job).known.phase(), JobPhase::Completed);
    let later = world.clock.now().after(Duration::from_secs(1));
    assert_eq!(github.lost_deliveries(later).await.unwrap(), []);
    let by_token = world.client("acme", pat());
    assert_eq!(by_token.lost_deliveries(began).await.unwrap(), [], "only an App has deliveries");
    assert!(by_token.redeliver(&lost[0]).await.is_err());
}

#[tokio::test]
async fn deliveries_are_read_on_all_pages() {
    let (world, receiver) = world_and_receiver().await;
    let github = world.client("acme", app());
    receiver.fail(u32::MAX);
    for _ in 0..250 {
        world.job(&["x"]);
    }
    world.stand_in.webhooks_sent().await;
    let lost = github.lost_deliveries(world.clock.now()).await.unwrap();
    assert_eq!(lost.len(), 250);
}

#[tokio::test]
async fn webhooks_can_be_late_and_a_missing_receiver_counts_as_502() {
    let (world, receiver) = world_and_receiver().await;
    world.stand_in.pull(|levers| levers.webhooks.delay_ms = 60_000);
    world.job(&["x"]);
    world.clock.advance(Duration::from_secs(59));
    tokio::task::yield_now().await;
    assert_eq!(receiver.actions(), [""; 0]);
    world.clock.advance(Duration::from_secs(1));
    world.stand_in.webhooks_sent().await;
    assert_eq!(receiver.actions(), ["queued"]);
    world.stand_in.pull(|levers| levers.webhooks.delay_ms = 0);
    drop(receiver);
    world.job(&["x"]);
    world.stand_in.webhooks_sent().await;
    assert_eq!(world.stand_in.webhook_answers(), [204, 502]);
}

#[tokio::test]
async fn a_held_job_is_announced_as_queued_with_the_status_waiting() {
    let (world, receiver) = world_and_receiver().await;
    let runner = world.runner("acme", "bp-1", &["x"]).await;
    let job = world.stand_in.submit(JobOrder { held: true, ..order(&["x"]) });
    world.stand_in.webhooks_sent().await;
    assert_eq!(receiver.actions(), ["waiting", "queued"]);
    let id = JobId::new(job.id.to_string());
    let state = row(&receiver, &world, &id).state;
    assert_eq!(state, JobState::Dormant, "the service launches nothing for it");
    assert_eq!(world.message(&runner, 0).await.0, 204, "no runner gets it");
    let path = format!("/jobs/{}/approve", job.id);
    assert_eq!(world.ask("POST", &path, TOKEN, None).await.0, 202);
    assert!(!world.stand_in.approve(job.id), "a second approval fails");
    world.stand_in.webhooks_sent().await;
    assert_eq!(receiver.actions(), ["waiting", "queued", "queued"]);
    assert!(matches!(row(&receiver, &world, &id).state, JobState::Waiting { .. }));
    assert_eq!(world.message(&runner, 0).await.0, 200);
}

#[tokio::test]
async fn a_cancelled_job_never_had_a_runner() {
    let (world, receiver) = world_and_receiver().await;
    let job = world.job(&["x"]);
    assert!(world.stand_in.cancel(job.id));
    world.stand_in.webhooks_sent().await;
    assert_eq!(receiver.actions(), ["queued", "completed"]);
    let row = row(&receiver, &world, &JobId::new(job.id.to_string()));
    assert_eq!((row.known.runner(), row.held()), (None, None));
}

/// GitHub gives a job to any runner that has its labels: here to the runner made for another job.
#[tokio::test]
async fn a_stolen_runner_is_seen_in_the_rows() {
    let (world, receiver) = world_and_receiver().await;
    let (first, second) = (world.job(&["x"]), world.job(&["x"]));
    let for_second = world.runner("acme", &format!("bp-{}-0", second.id), &["x", "y"]).await;
    assert_eq!(world.started(&for_second, first.id).await, 204);
    world.stand_in.webhooks_sent().await;
    let id = JobId::new(first.id.to_string());
    let taken = row(&receiver, &world, &id);
    let (owner, runner) = taken.took("bp").expect("it runs on another job's runner");
    assert_eq!(owner, JobId::new(second.id.to_string()));
    assert_eq!(runner.as_str(), format!("bp-{}-0", second.id));
}

#[tokio::test]
async fn webhooks_stay_on_this_machine() {
    let world = World::new().await;
    let elsewhere = "http://192.0.2.1/webhook";
    let hook = Hook { url: elsewhere.to_owned(), secret: Secret::new("s"), runs: false };
    assert!(world.stand_in.hook(hook).is_err());
    let body = json!({"url": elsewhere, "secret": "s"});
    assert_eq!(world.ask("PUT", "/hook", TOKEN, Some(body)).await.0, 422);
    let receiver = Receiver::start().await;
    let body = json!({"url": receiver.url, "secret": crate::receiver::SECRET});
    assert_eq!(world.ask("PUT", "/hook", TOKEN, Some(body)).await.0, 204);
    world.job(&["x"]);
    world.stand_in.webhooks_sent().await;
    assert_eq!(receiver.actions(), ["queued"]);
}
