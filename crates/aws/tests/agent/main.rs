//! Tests of the binary `bullpen-agent-ec2`, from its start to the power-off. Its mailbox is in
//! ministack, behind a proxy that logs every call; the metadata service and systemd are stand-ins.
//!
//! Not here: the boot script that starts it (`boot`), or a whole service with such machines
//! (`bullpen`'s tests).

mod instance;
mod metadata;

use std::time::Duration;

use bullpen_core::mailbox::{AgentPhase, SignalKind, WithdrawalMode};
use instance::{INSTANCE, KEY, TestInstance};

/// A job that writes its environment to a file.
const JOB: &str = "env >\"$1\"\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_lives_from_its_first_beat_to_its_power_off() {
    let mut instance = TestInstance::new().await;
    let beat = instance.until("a warm machine", |report| report.beat.clone()).await;
    assert_eq!(beat.boot, "boot-1");
    instance.signal(SignalKind::WarmUpOk, 0).await;
    assert_eq!(instance.text("warmed-up"), "a step of the warm-up\n");
    assert!(
        instance.text("iptables").contains("169.254.169.254 -m owner ! --uid-owner 0 -j REJECT")
    );

    let mut runner = instance.runner();
    instance.assign(1).await;
    instance.signal(SignalKind::Acknowledged, 1).await;
    runner.send("listen");
    instance.signal(SignalKind::Registered, 1).await;
    runner.send(&format!("job build {}", instance.script("job.sh", JOB).display()));
    instance.signal(SignalKind::JobStarted, 1).await;
    instance
        .until("an idle listener", |report| {
            report.beat.clone().filter(|beat| beat.phase == AgentPhase::Listening)
        })
        .await;

    instance.withdraw(1, WithdrawalMode::Drain, Duration::from_secs(3_600)).await;
    instance.withdraw(1, WithdrawalMode::Stop, Duration::from_secs(3_600)).await;
    instance.signal(SignalKind::Removed, 1).await;
    assert!(
        !instance.path("machine/agent/runner/.runner").exists(),
        "the owner's runner files are gone"
    );

    // No owner comes before the idle deadline, so the agent ends the machine.
    instance.withdraw(2, WithdrawalMode::Stop, Duration::from_secs(1)).await;
    let (status, log) = instance.end().await;
    assert!(status.success(), "{status}: {log}");
    assert!(log.contains(INSTANCE), "{log}");
    let timers = instance.text("systemd-run");
    assert!(timers.contains("--on-active=60s systemctl poweroff"), "{timers}");
    instance.assert_only_own_items_used();
}

/// Jobs could read the instance's credentials, so the agent takes no job and says what to do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_that_cannot_close_its_metadata_takes_no_jobs() {
    let instance = TestInstance::with_filter(false).await;
    let failed = instance.signal(SignalKind::WarmUpFailed, 0).await;
    assert!(failed.detail.starts_with("metadata: "), "{failed:?}");
    assert!(failed.detail.contains("metadata = \"open\""), "{failed:?}");
    assert_eq!(instance.text("warmed-up"), "", "the warm-up stops there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notices_are_reported_once_each_and_sigterm_too() {
    let instance = TestInstance::new().await;
    instance.signal(SignalKind::WarmUpOk, 0).await;
    instance.metadata.set(
        "/latest/meta-data/events/recommendations/rebalance",
        r#"{"noticeTime": "2026-11-16T08:20:00Z"}"#,
    );
    let interrupted_by = |text: &'static str| {
        move |report: &bullpen_core::mailbox::Report| {
            let signal = report.signals.get(&SignalKind::Interrupted)?;
            (signal.detail == text).then_some(())
        }
    };
    let rebalance = "rebalance recommendation: noticed at 2026-11-16T08:20:00Z";
    instance.until("recommendation", interrupted_by(rebalance)).await;
    instance.metadata.set(
        "/latest/meta-data/spot/instance-action",
        r#"{"action": "terminate", "time": "2026-11-16T08:22:00Z"}"#,
    );
    let interruption = "spot interruption: terminate at 2026-11-16T08:22:00Z";
    instance.until("interruption", interrupted_by(interruption)).await;
    instance.terminate();
    // A notice that the agent reported a second time would replace this signal.
    instance.until("termination", interrupted_by("SIGTERM")).await;
    let before = instance.metadata.answered();
    instance
        .until("more requests", |_| (instance.metadata.answered() > before + 4).then_some(()))
        .await;
    instance.until("termination still", interrupted_by("SIGTERM")).await;
    assert_eq!(instance.metadata.refused(), 0, "the agent sends its token with every request");
    assert!(KEY.ends_with(INSTANCE));
    instance.assert_only_own_items_used();
}
