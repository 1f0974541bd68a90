//! Tests of warm-up scripts as real processes.

use std::fs;
use std::time::Duration;

use bullpen_agent::SelfEndReason;
use bullpen_agent::runner::tree;
use bullpen_agent::warm_up::{Frequency, Step};
use bullpen_core::mailbox::SignalKind;

use crate::place::{Instance, Pipe};

fn instance(script: &str) -> (tempfile::TempDir, Instance) {
    let directory = tempfile::tempdir().expect("a directory");
    Instance::lay_out(directory.path());
    let mut instance = Instance::at(directory.path());
    let path = instance.path("pre-runner.sh");
    fs::write(&path, script).expect("it can be written");
    instance.steps = vec![Step::bash("pre-runner", &path, Frequency::EachBoot)];
    (directory, instance)
}

#[tokio::test]
async fn d59_a_script_that_fails_in_its_middle_has_failed() {
    for middle in ["false", "false | true", "echo $unset"] {
        let (_directory, instance) = instance(&format!("echo first\n{middle}\necho never\n"));
        assert_eq!(instance.agent().await, SelfEndReason::WarmUpFailed, "{middle}");
        let failed = instance.signal(SignalKind::WarmUpFailed, 0).await;
        assert!(failed.detail.starts_with("pre-runner: exit status: 1\nfirst\n"), "{failed:?}");
        assert!(!failed.detail.contains("never"), "{failed:?}");
        assert!(!instance.shortened.lock().unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_script_that_hangs_is_ended_with_all_it_started() {
    let (directory, mut instance) = instance("");
    let pipe = directory.path().join("pipe");
    let _held = Pipe::new(&pipe);
    let wait = format!("read line <>'{}'", pipe.display());
    let script = format!("echo begun\nsetsid bash -c \"{wait}\" &\n{wait}\n");
    fs::write(instance.path("pre-runner.sh"), script).unwrap();
    instance.limits.warm_up = Duration::from_secs(1);
    assert_eq!(instance.agent().await, SelfEndReason::WarmUpFailed);
    let failed = instance.signal(SignalKind::WarmUpFailed, 0).await;
    assert_eq!(failed.detail, "pre-runner: did not end within 1 s\nbegun\n");
    assert_eq!(tree::marked(&format!("{}/warm-up/pre-runner", instance.mark())).unwrap(), []);
}

#[tokio::test]
async fn a_script_that_succeeds_makes_the_machine_warm() {
    let (_directory, instance) = instance("echo $BULLPEN_LISTENER_OF\n");
    instance.during(instance.signal(SignalKind::WarmUpOk, 0)).await;
    assert_eq!(
        instance.text("state/pre-runner.log"),
        format!("{}/warm-up/pre-runner\n", instance.mark())
    );
}

#[tokio::test]
async fn what_a_step_left_running_stays_for_the_next_one() {
    let (directory, mut instance) = instance("");
    let pipe = directory.path().join("pipe");
    let mut held = Pipe::new(&pipe);
    let service = instance.path("service.sh");
    let waits = format!(
        "bash -c \"read line <>'{}'; echo \\$line >'{}'\" &\n",
        pipe.display(),
        instance.path("said").display()
    );
    fs::write(&service, waits).unwrap();
    let first = Step::bash("preinstall", &service, Frequency::OncePerMachine);
    instance.steps.insert(0, first);
    instance.during(instance.signal(SignalKind::WarmUpOk, 0)).await;
    let mark = format!("{}/warm-up/preinstall", instance.mark());
    assert_eq!(tree::marked(&mark).unwrap().len(), 1);
    held.say("ends");
}
