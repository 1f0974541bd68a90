//! Webhooks that do not come: never sent, not answered, or signed with a secret under replacement.
//!
//! Not here: webhooks that are wrong (`listeners`).

use bullpen_core::job::{Conclusion as Concluded, End};
use bullpen_core::mailbox::Secret;
use bullpen_github::stand_in::Hook;

use crate::stage::{HASTY, SECRET, Stage};
use crate::waiting::until;

fn success() -> End {
    End::Completed(Concluded::new("success"))
}

/// GitHub never announces the job: the service finds it by asking.
#[tokio::test]
async fn a_job_that_no_webhook_announced_is_found() {
    let stage = Stage::with(HASTY).await;
    let _served = stage.serve().await;
    stage.github.pull(|levers| levers.webhooks.lose = u32::MAX);
    let job = stage.job("bullpen/runner=small", "true");
    stage.over(job).await;
    assert_eq!(stage.settled(job).await, success());
    assert_eq!(stage.github.webhook_answers(), [0; 0], "GitHub sent no webhook");
    stage.quiet().await;
}

/// Only the webhook of the end is lost: the service requests it again, and the machine returns.
#[tokio::test]
async fn a_job_whose_end_webhook_is_lost_gives_its_machine_back() {
    let stage = Stage::new().await;
    let served = stage.serve().await;
    let job = stage.job("bullpen/runner=small", &stage.gated("go"));
    stage.started(job).await;
    stage.github.webhooks_sent().await;
    let nowhere =
        Hook { url: String::from("http://127.0.0.1:9/"), secret: Secret::new(SECRET), runs: false };
    stage.github.hook(nowhere).expect("it is on loopback");
    stage.open("go");
    stage.over(job).await;
    stage.github.webhooks_sent().await;
    assert_eq!(stage.github.webhook_answers().last(), Some(&502));
    stage.hook(&served, SECRET);
    assert_eq!(stage.settled(job).await, success());
    stage.quiet().await;
}

/// No service listened: the next process requests the webhook again.
#[tokio::test]
async fn a_webhook_without_a_listener_is_sent_again() {
    let stage = Stage::new().await;
    stage.serve().await.kill().await;
    let job = stage.job("bullpen/runner=small", "true");
    stage.github.webhooks_sent().await;
    assert_eq!(stage.github.webhook_answers(), [502]);
    let _served = stage.serve().await;
    stage.over(job).await;
    assert_eq!(stage.settled(job).await, success());
    until("redelivery", async || {
        let redelivered = |((kind, status), _): &((String, u16), u64)| {
            kind == "POST app/hook/deliveries/{id}/attempts" && *status == 202
        };
        stage.github.answers().into_iter().find(redelivered)
    })
    .await;
    stage.quiet().await;
}

/// During a secret's replacement the service still believes webhooks with the old secret.
#[tokio::test]
async fn the_previous_secret_is_good_for_as_long_as_it_is_there() {
    let mut stage = Stage::with(&[("find", "10m")]).await;
    stage.environment.insert("BULLPEN_WEBHOOK_SECRET".into(), "the new one".into());
    stage.environment.insert("BULLPEN_WEBHOOK_SECRET_PREVIOUS".into(), SECRET.into());
    let served = stage.serve().await;
    for secret in [SECRET, "the new one"] {
        stage.hook(&served, secret);
        let job = stage.job("bullpen/runner=small", "true");
        stage.over(job).await;
        assert_eq!(stage.settled(job).await, success());
    }
    stage.hook(&served, "neither");
    stage.job("bullpen/runner=small", "true");
    stage.github.webhooks_sent().await;
    assert_eq!(stage.github.webhook_answers().last(), Some(&401));
}
