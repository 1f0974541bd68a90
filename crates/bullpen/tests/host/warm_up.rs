//! `bullpen agent`: a machine's warm-up.

use std::fs;

use bullpen_agent::machine::{ENDS_BY, RunnerProgram};
use bullpen_agent::runner::tree;
use bullpen_core::mailbox::{AgentPhase, Report, SignalKind};
use bullpen_core::ports::Clock as _;
use bullpen_core::time::Timestamp;

use crate::github::Forge;
use crate::machine::{Machine, token};

#[tokio::test]
async fn d59_a_script_may_hold_any_line_and_fails_with_its_tail() {
    let forge = Forge::new().await;
    let machine = Machine::new();
    let mut data = machine.user_data(&forge);
    data.scripts.preinstall = Some(String::from("cat <<'EOF'\nEOF\nEOF() { :; }\nEOF\n"));
    data.scripts.prerun = Some(String::from("cat <<EOF\nfirst\nEOF\necho second\n"));
    data.scripts.pre_runner = Some(String::from("echo of no use\nEOF\necho never\n"));
    machine.tell(&data);
    let mut agent = machine.agent();
    let failed = machine.signal(SignalKind::WarmUpFailed, 0).await;
    let detail = &failed.detail;
    assert!(detail.starts_with("pre-runner: ") && detail.contains("of no use"), "{detail}");
    assert!(!detail.contains("never"), "{detail}");
    assert_eq!(agent.ends().await, Some(0), "the machine is to end");
    let log = fs::read_to_string(machine.path("agent/logs/prerun.log")).expect("it has run");
    assert_eq!(log, "first\nsecond\n");
    let ends_by = fs::read_to_string(machine.path(ENDS_BY)).expect("it is shortened");
    let ends_by: Timestamp = ends_by.trim().parse().expect("it is a time");
    assert!(ends_by <= machine.clock.now());
}

#[tokio::test]
async fn a_script_that_hangs_is_ended_and_reported_with_its_tail() {
    let forge = Forge::new().await;
    let machine = Machine::new();
    let mut data = machine.user_data(&forge);
    data.scripts.pre_runner = Some(String::from("echo so far\nsleep 1000\n"));
    data.numbers.warm_up_ms = 4_000;
    machine.tell(&data);
    let mut agent = machine.agent();
    let failed = machine.signal(SignalKind::WarmUpFailed, 0).await;
    let detail = &failed.detail;
    assert!(detail.contains("did not end within") && detail.contains("so far"), "{detail}");
    assert_eq!(agent.ends().await, Some(0));
    let mark = format!("{}/warm-up/pre-runner", machine.mark());
    assert_eq!(tree::marked(&mark).expect("this is Linux"), []);
}

#[tokio::test]
async fn a_machine_that_boots_again_prepares_each_boot_and_installs_once() {
    let forge = Forge::new().await;
    let machine = Machine::new();
    let mut data = machine.user_data(&forge);
    data.scripts.preinstall = Some(String::from("echo install >>$HOME/done"));
    data.scripts.prerun = Some(String::from("echo prepare >>$HOME/done"));
    machine.tell(&data);
    for boot in ["boot-1", "boot-1", "boot-2"] {
        let _agent = machine.agent_of_boot(boot);
        let ready = |report: &Report| {
            let beat = report.beat.as_ref();
            beat.is_some_and(|beat| beat.boot == boot && beat.phase == AgentPhase::Waiting)
        };
        machine.report(boot, ready).await;
    }
    let done = fs::read_to_string(machine.path("agent/temp/done")).expect("it has run");
    assert_eq!(done, "install\nprepare\nprepare\n");
}

#[tokio::test]
async fn a_machine_has_a_directory_of_its_own_with_the_configured_program() {
    let forge = Forge::new().await;
    let machine = Machine::new();
    let program = machine.state.path().join("runner");
    fs::create_dir_all(program.join("bin")).expect("a directory");
    let listener = program.join("bin/Runner.Listener");
    let text =
        concat!("#!/bin/sh\nexec ", env!("CARGO_BIN_EXE_bullpen"), " stand-in-runner \"$@\"\n");
    fs::write(&listener, text).expect("it can be written");
    let may_run = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&listener, may_run).expect("it is ours");
    let mut data = machine.user_data(&forge);
    data.runner = RunnerProgram::Directory(program.clone());
    machine.tell(&data);
    let _agent = machine.agent();
    machine.assign(1, token(&forge).await).await;
    machine.signal(SignalKind::Registered, 1).await;
    assert!(machine.path("agent/runner/.runner").exists() && !program.join(".runner").exists());
}

#[tokio::test]
async fn a_runner_that_is_not_there_fails_the_warm_up() {
    let forge = Forge::new().await;
    let machine = Machine::new();
    let mut data = machine.user_data(&forge);
    data.runner = RunnerProgram::Directory(machine.state.path().join("no-runner"));
    machine.tell(&data);
    let mut agent = machine.agent();
    let failed = machine.signal(SignalKind::WarmUpFailed, 0).await;
    assert!(failed.detail.contains("the runner's directory"), "{failed:?}");
    assert_eq!(agent.ends().await, Some(0));
}
