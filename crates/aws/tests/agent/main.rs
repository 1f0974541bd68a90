//! The agent of an EC2 instance as it is built, from its metadata to its end: ministack has its
//! mailbox, behind a proxy that sees every call, and the instance's metadata and systemd are stand-ins.
//!
//! Not here: the boot script that starts it (`boot`), or a whole service with such machines (`bullpen`'s
//! tests).

mod metadata;
mod stage;

use std::time::Duration;

use bullpen_core::mailbox::{AgentPhase, SignalKind, WithdrawalMode};
use stage::{INSTANCE, KEY, Stage};

/// A job that is seen to have run, and that the agent's own is kept from.
const JOB: &str = "env >\"$1\"\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_lives_from_its_first_beat_to_its_power_off() {
    let mut stage = Stage::new().await;
    let beat = stage.until("a warm machine", |report| report.beat.clone()).await;
    assert_eq!(beat.boot, "boot-1");
    stage.signal(SignalKind::WarmUpOk, 0).await;
    assert_eq!(stage.text("warmed-up"), "a step of the warm-up\n");
    assert!(stage.text("iptables").contains("169.254.169.254 -m owner ! --uid-owner 0 -j REJECT"));

    let mut runner = stage.runner();
    stage.assign(1).await;
    stage.signal(SignalKind::Acknowledged, 1).await;
    runner.say("listen");
    stage.signal(SignalKind::Registered, 1).await;
    runner.say(&format!("job build {}", stage.script("job.sh", JOB).display()));
    stage.signal(SignalKind::JobStarted, 1).await;
    stage
        .until("an idle listener", |report| {
            report.beat.clone().filter(|beat| beat.phase == AgentPhase::Listening)
        })
        .await;

    stage.withdraw(1, WithdrawalMode::Drain, Duration::from_secs(3_600)).await;
    stage.withdraw(1, WithdrawalMode::Stop, Duration::from_secs(3_600)).await;
    stage.signal(SignalKind::Removed, 1).await;
    assert!(!stage.path("machine/agent/runner/.runner").exists(), "nothing of the owner's is left");

    // As if nobody came: the machine ends itself.
    stage.withdraw(2, WithdrawalMode::Stop, Duration::from_secs(1)).await;
    let (status, said) = stage.end().await;
    assert!(status.success(), "{status}: {said}");
    assert!(said.contains(INSTANCE), "{said}");
    let timers = stage.text("systemd-run");
    assert!(timers.contains("--on-active=60s systemctl poweroff"), "{timers}");
    stage.kept_to_its_own_items();
}

/// Jobs could read its credentials: it takes none, and says what to do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_that_cannot_close_its_metadata_takes_no_jobs() {
    let stage = Stage::with_filter(false).await;
    let failed = stage.signal(SignalKind::WarmUpFailed, 0).await;
    assert!(failed.detail.starts_with("metadata: "), "{failed:?}");
    assert!(failed.detail.contains("metadata = \"open\""), "{failed:?}");
    assert_eq!(stage.text("warmed-up"), "", "nothing comes after it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notices_are_reported_once_each_and_sigterm_too() {
    let stage = Stage::new().await;
    stage.signal(SignalKind::WarmUpOk, 0).await;
    stage.metadata.set(
        "/latest/meta-data/events/recommendations/rebalance",
        r#"{"noticeTime": "2026-11-16T08:20:00Z"}"#,
    );
    let told = |text: &'static str| {
        move |report: &bullpen_core::mailbox::Report| {
            let signal = report.signals.get(&SignalKind::Interrupted)?;
            (signal.detail == text).then_some(())
        }
    };
    let rebalance = "rebalance recommendation: noticed at 2026-11-16T08:20:00Z";
    stage.until("recommendation", told(rebalance)).await;
    stage.metadata.set(
        "/latest/meta-data/spot/instance-action",
        r#"{"action": "terminate", "time": "2026-11-16T08:22:00Z"}"#,
    );
    let interruption = "spot interruption: terminate at 2026-11-16T08:22:00Z";
    stage.until("interruption", told(interruption)).await;
    stage.terminate();
    // Had one of the notices been told a second time, it would have come after this.
    stage.until("termination", told("SIGTERM")).await;
    let looks = stage.metadata.looks();
    stage.until("more looks", |_| (stage.metadata.looks() > looks + 4).then_some(())).await;
    stage.until("termination still", told("SIGTERM")).await;
    assert_eq!(stage.metadata.refused(), 0, "everything was asked with a token");
    assert!(KEY.ends_with(INSTANCE));
    stage.kept_to_its_own_items();
}
