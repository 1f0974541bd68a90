//! Requests to the two listeners: wrong, too large, unreadable or unknown webhooks; and the admin
//! listener's answers.
//!
//! Not here: the rules of webhooks one by one (`bullpen_github::webhook`).

use std::time::Duration;

use bullpen_core::ids::QueueName;
use bullpen_core::ports::{Fifo, Outgoing, Queues as _};
use bullpen_embedded::SqliteQueues;
use serde_json::Value;

use crate::process::within;
use crate::waiting::until;
use crate::webhook::Webhook;
use crate::world::{SECRET, World};

const FIVE_MEGABYTES: usize = 5 * 1024 * 1024;

#[tokio::test]
async fn webhooks_that_github_did_not_send_are_refused_and_the_rest_is_served() {
    let world = World::new().await;
    let served = world.serve().await;
    let url = &served.webhook;
    let status = async |webhook: Webhook| webhook.send(url).await.status;
    let job = || Webhook::new("workflow_job", "{}");
    assert_eq!(status(job()).await, 401, "no signature");
    assert_eq!(status(job().signed("another secret")).await, 401);
    let sha1 = job().header("x-hub-signature-256", "sha1=00");
    assert_eq!(status(sha1).await, 401);
    let mut tampered = job().signed(SECRET);
    tampered.body = b"[]".to_vec();
    assert_eq!(status(tampered).await, 401);

    let ping = Webhook::new("ping", r#"{"zen": "Design for failure."}"#).signed(SECRET);
    assert_eq!(status(ping).await, 204);
    let unknown = Webhook::new("sponsorship", r#"{"action": "created"}"#).signed(SECRET);
    assert_eq!(status(unknown).await, 204);

    let delivery = "72d3162e-cc78-11e3-81ab-4c9367dc0958";
    let broken = Webhook::new("workflow_job", "{\"action\": ").signed(SECRET);
    assert_eq!(status(broken.header("x-github-delivery", delivery)).await, 400);
    until("word of it", async || served.process.talk().contains(delivery).then_some(())).await;

    // The service still serves jobs.
    let job = world.job("bullpen/runner=small", "true");
    world.over(job).await;
    world.settled(job).await;
    assert_eq!(world.github.webhook_answers(), [204; 3]);
}

/// The listener refuses a large body before it parses it: by its announced length alone, or else
/// once it has grown too large. The service's memory does not grow with it.
#[tokio::test]
async fn a_large_body_is_refused_before_it_is_read() {
    let world = World::new().await;
    let served = world.serve().await;
    let before = served.process.peak_kib();
    let announced = Webhook::new("workflow_job", "").signed(SECRET);
    let announced = announced.header("content-length", &(FIVE_MEGABYTES + 1).to_string());
    assert_eq!(announced.send(&served.webhook).await.status, 413);
    let unsigned = Webhook::new("workflow_job", "");
    let unsigned = unsigned.header("content-length", &FIVE_MEGABYTES.to_string());
    assert_eq!(unsigned.send(&served.webhook).await.status, 401, "and not a byte was read");

    let chunk = format!("{:x}\r\n{}\r\n", 1 << 20, "x".repeat(1 << 20));
    let chunks = format!("{}0\r\n\r\n", chunk.repeat(40));
    let mut unannounced = Webhook::new("workflow_job", chunks).signed(SECRET);
    unannounced = unannounced.header("transfer-encoding", "chunked").without("content-length");
    assert_eq!(unannounced.send(&served.webhook).await.status, 413);
    let grown = served.process.peak_kib() - before;
    assert!(grown < 24 * 1024, "{grown} KiB more for refused bodies");
}

/// The worker moves an unreadable message to the dead letters with the reason, and serves the next
/// message of its group.
#[tokio::test]
async fn a_poison_message_is_put_aside_and_blocks_no_job() {
    let world = World::new().await;
    let _served = world.serve().await;
    world.github.pull(|levers| levers.webhooks.hold = true);
    let job = world.job("bullpen/runner=small", "true");
    let queues = SqliteQueues::beside(&world.ledger()).expect("the file is there");
    let fifo = Fifo { group: job.to_string(), deduplication: "poison".to_owned() };
    let poison =
        Outgoing { body: "not a wake-up".to_owned(), delay: Duration::ZERO, fifo: Some(fifo) };
    let sent = queues.send(&QueueName::new("bullpen-launches.fifo"), &[poison]).await;
    assert_eq!(sent, Ok(vec![Ok(())]));
    world.github.pull(|levers| levers.webhooks.hold = false);
    world.over(job).await;
    world.settled(job).await;
    let dead = QueueName::new("bullpen-dead-letters");
    let letters = within("dead letter", queues.receive(&dead, 10, Duration::from_secs(20))).await;
    let letters = letters.expect("the queue is there");
    let [letter] = &letters[..] else { panic!("{letters:?}") };
    let letter: Value = serde_json::from_str(&letter.body).expect("it is JSON");
    assert_eq!(
        (&letter["body"], &letter["queue"]),
        (&"not a wake-up".into(), &"bullpen-launches.fifo".into())
    );
    assert!(
        letter["reason"].as_str().is_some_and(|reason| reason.contains("expected")),
        "{letter}"
    );
}

#[tokio::test]
async fn the_admin_listener_says_how_the_service_is() {
    let world = World::new().await;
    let served = world.serve().await;
    assert_eq!(served.ask("/healthz").await.status, 200);
    assert_eq!(served.ask("/readyz").await.status, 200);
    assert_eq!(served.ask("/nothing").await.status, 404);
    let job = world.job("bullpen/runner=small", "true");
    world.over(job).await;
    world.settled(job).await;
    let metrics = served.ask("/metrics").await;
    assert_eq!(metrics.status, 200);
    for name in ["bullpen_job_wait_seconds", "bullpen_job_startup_seconds"] {
        assert!(metrics.body.contains(name), "{name} in {}", metrics.body);
    }
    // Neither listener answers the other's paths.
    let webhook = served.webhook.trim_end_matches("/webhook");
    assert_eq!(crate::wire::get(&format!("{webhook}/metrics")).await.status, 404);
    let job = Webhook::new("ping", "{}").signed(SECRET);
    assert_eq!(job.send(&format!("{}/webhook", served.admin)).await.status, 405);
}
