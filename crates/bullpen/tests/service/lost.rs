//! Webhooks that do not come: never sent, not answered, or signed with a secret under replacement.
//!
//! Not here: webhooks that are wrong (`listeners`).

use bullpen_core::job::{Conclusion as Concluded, End};
use bullpen_core::mailbox::Secret;
use bullpen_github::stand_in::Hook;

use crate::waiting::until;
use crate::world::{HASTY, SECRET, World};

fn success() -> End {
    End::Completed(Concluded::new("success"))
}

/// GitHub never announces the job: the service finds it by asking.
#[tokio::test]
async fn a_job_that_no_webhook_announced_is_found() {
    let world = World::with(HASTY).await;
    let _served = world.serve().await;
    world.github.pull(|levers| levers.webhooks.lose = u32::MAX);
    let job = world.job("bullpen/runner=small", "true");
    world.over(job).await;
    assert_eq!(world.settled(job).await, success());
    assert_eq!(world.github.webhook_answers(), [0; 0], "GitHub sent no webhook");
    world.quiet().await;
}

/// Only the webhook of the end is lost: the service requests it again, and the machine returns.
#[tokio::test]
async fn a_job_whose_end_webhook_is_lost_gives_its_machine_back() {
    let world = World::new().await;
    let served = world.serve().await;
    let job = world.job("bullpen/runner=small", &world.gated("go"));
    world.started(job).await;
    world.github.webhooks_sent().await;
    let nowhere =
        Hook { url: String::from("http://127.0.0.1:9/"), secret: Secret::new(SECRET), runs: false };
    world.github.hook(nowhere).expect("it is on loopback");
    world.open("go");
    world.over(job).await;
    world.github.webhooks_sent().await;
    assert_eq!(world.github.webhook_answers().last(), Some(&502));
    world.hook(&served, SECRET);
    assert_eq!(world.settled(job).await, success());
    world.quiet().await;
}

/// No service listened: the next process requests the webhook again.
#[tokio::test]
async fn a_webhook_without_a_listener_is_sent_again() {
    let world = World::new().await;
    world.serve().await.kill().await;
    let job = world.job("bullpen/runner=small", "true");
    world.github.webhooks_sent().await;
    assert_eq!(world.github.webhook_answers(), [502]);
    let _served = world.serve().await;
    world.over(job).await;
    assert_eq!(world.settled(job).await, success());
    until("redelivery", async || {
        let redelivered = |((kind, status), _): &((String, u16), u64)| {
            kind == "POST app/hook/deliveries/{id}/attempts" && *status == 202
        };
        world.github.answers().into_iter().find(redelivered)
    })
    .await;
    world.quiet().await;
}

/// During a secret's replacement the service still believes webhooks with the old secret.
#[tokio::test]
async fn the_previous_secret_is_good_for_as_long_as_it_is_there() {
    let mut world = World::with(&[("find", "10m")]).await;
    world.environment.insert("BULLPEN_WEBHOOK_SECRET".into(), "the new one".into());
    world.environment.insert("BULLPEN_WEBHOOK_SECRET_PREVIOUS".into(), SECRET.into());
    let served = world.serve().await;
    for secret in [SECRET, "the new one"] {
        world.hook(&served, secret);
        let job = world.job("bullpen/runner=small", "true");
        world.over(job).await;
        assert_eq!(world.settled(job).await, success());
    }
    world.hook(&served, "neither");
    world.job("bullpen/runner=small", "true");
    world.github.webhooks_sent().await;
    assert_eq!(world.github.webhook_answers().last(), Some(&401));
}
