//! `bullpen agent`: orders, jobs, and an agent that dies.

use std::collections::BTreeSet;
use std::fs;

use bullpen_agent::machine::MailboxPlace;
use bullpen_agent::runner::tree;
use bullpen_core::mailbox::{
    AgentPhase, Credential, Report, SYSTEMIC, Secret, SignalKind, WithdrawalMode,
};
use bullpen_github::stand_in::protocol::Conclusion;
use rustix::process::Signal;

use crate::github::Forge;
use crate::machine::{Machine, OURS, token};
use crate::waiting::until;

/// Waits for its gate.
const PATIENT: &str = "echo $$ >running\nuntil [ -e go ]; do sleep 0.05; done\ntouch done";

#[tokio::test]
async fn an_assigned_machine_runs_a_job_and_is_clean_after_the_release() {
    let forge = Forge::new().await;
    let machine = Machine::of(&forge);
    let mut agent = machine.agent();
    machine.signal(SignalKind::WarmUpOk, 0).await;
    machine.assign(1, token(&forge).await).await;
    let registered = machine.signal(SignalKind::Registered, 1).await;
    assert_eq!(registered.detail, forge.stand_in.runners()[0].id.to_string());
    let script = "env >seen; touch \"$TMPDIR/left\"; setsid sleep 1000 &\ncp seen ../seen";
    let job = forge.job("warm", "build", script);
    assert_eq!(forge.over(job).await, Some(Conclusion::Success));
    assert_eq!(machine.signal(SignalKind::JobStarted, 1).await.detail, "build");
    let listening = |report: &Report| {
        report.beat.as_ref().is_some_and(|beat| beat.phase == AgentPhase::Listening)
    };
    machine.report("end of the job", listening).await;
    machine.withdraw(2, WithdrawalMode::Drain, None).await;
    forge.delete("bp-i-1-1").await;
    machine.withdraw(2, WithdrawalMode::Stop, None).await;
    machine.signal(SignalKind::Removed, 2).await;
    machine.is_clean();
    let seen = fs::read_to_string(machine.path("agent/runner/seen")).expect("the job has run");
    let mut names: Vec<&str> =
        seen.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    names.retain(|name| !name.starts_with("GITHUB_") && !name.starts_with("RUNNER_"));
    names.sort_unstable();
    let expected = [
        "ACTIONS_RUNNER_HOOK_JOB_STARTED",
        "ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE",
        "BULLPEN_LISTENER_OF",
        "CI",
        "HOME",
        "LANG",
        "OF_THE_JOB",
        "PATH",
        "PWD",
        "SHLVL",
        "TMPDIR",
        "_",
    ];
    assert_eq!(names, expected);
    assert!(!seen.contains(OURS), "{seen}");
    assert!(agent.is_alive(), "{}", agent.said());
}

#[tokio::test]
async fn a_machine_serves_one_owner_after_the_other_and_removes_runners_by_token() {
    let forge = Forge::new().await;
    let machine = Machine::of(&forge);
    let _agent = machine.agent();
    for (assigned, withdrawn) in [(1, 2), (3, 4)] {
        machine.assign(assigned, token(&forge).await).await;
        machine.signal(SignalKind::Registered, assigned).await;
        let removal = forge.removal_token().await;
        machine.withdraw(withdrawn, WithdrawalMode::Stop, Some(removal)).await;
        let removed = machine.signal(SignalKind::Removed, withdrawn).await;
        assert_eq!((removed.detail.as_str(), forge.stand_in.runners()), ("", Vec::new()));
        machine.is_clean();
    }
}

#[tokio::test]
async fn a_jit_runner_is_reported_with_its_id_and_with_its_end() {
    let forge = Forge::new().await;
    let machine = Machine::of(&forge);
    let _agent = machine.agent();
    let (id, config) = forge.jit("bp-i-1-1", "warm").await;
    machine.assign(1, Credential::Jit(config)).await;
    assert_eq!(machine.signal(SignalKind::Registered, 1).await.detail, id.to_string());
    let job = forge.job("warm", "only", "pwd >../where");
    assert_eq!(forge.over(job).await, Some(Conclusion::Success));
    let ended = machine.signal(SignalKind::ListenerEnded, 1).await;
    assert_eq!(ended.detail, "exit 0 after 1 jobs");
    assert!(machine.path("agent/runner/where").exists(), "it worked where cleaning reaches");
    machine.withdraw(2, WithdrawalMode::Stop, None).await;
    machine.signal(SignalKind::Removed, 2).await;
    machine.is_clean();
}

#[tokio::test]
async fn a_refused_token_is_a_systemic_failure() {
    let forge = Forge::new().await;
    let machine = Machine::of(&forge);
    let _agent = machine.agent();
    machine.assign(1, Credential::RegistrationToken(Secret::new("made-up"))).await;
    let failed = machine.signal(SignalKind::RegistrationFailed, 1).await;
    assert!(failed.detail.starts_with(SYSTEMIC), "{failed:?}");
}

#[tokio::test]
async fn an_agent_that_is_killed_leaves_its_job_to_the_next_one() {
    let forge = Forge::new().await;
    let machine = Machine::of(&forge);
    let mut first = machine.agent();
    machine.assign(1, token(&forge).await).await;
    machine.signal(SignalKind::Registered, 1).await;
    let job = forge.job("warm", "patient", PATIENT);
    machine.signal(SignalKind::JobStarted, 1).await;
    machine.appears(machine.work("running")).await;
    first.signal(Signal::KILL);
    assert_eq!(first.ends().await, None, "a signal is no exit code");
    let beats = |report: &Report| report.beat.as_ref().map_or(0, |beat| beat.seq);
    let before = beats(&machine.report("beat", |report| report.beat.is_some()).await);
    let mut second = machine.agent();
    let busy = |report: &Report| {
        beats(report) > before
            && report.beat.as_ref().is_some_and(|it| it.phase == AgentPhase::Busy)
    };
    machine.report("beat of the next agent", busy).await;
    let mut third = machine.agent();
    assert_eq!(third.ends().await, Some(1), "one agent lives on a machine");
    assert!(third.said().contains("another agent runs"), "{}", third.said());
    fs::write(machine.work("go"), "").expect("it can be written");
    assert_eq!(forge.over(job).await, Some(Conclusion::Success));
    machine.withdraw(2, WithdrawalMode::Stop, Some(forge.removal_token().await)).await;
    machine.signal(SignalKind::Removed, 2).await;
    machine.is_clean();
    assert!(second.is_alive(), "{}", second.said());
}

#[tokio::test]
async fn a_termination_signal_is_reported_and_the_agent_lives_on() {
    let forge = Forge::new().await;
    let machine = Machine::of(&forge);
    let mut agent = machine.agent();
    machine.signal(SignalKind::WarmUpOk, 0).await;
    agent.signal(Signal::TERM);
    assert_eq!(machine.signal(SignalKind::Interrupted, 0).await.detail, "SIGTERM");
    assert!(agent.is_alive());
}

#[tokio::test]
async fn a_mailbox_that_cannot_be_opened_yet_is_waited_for() {
    let forge = Forge::new().await;
    let machine = Machine::new();
    let store = machine.state.path().join("store");
    let mut data = machine.user_data(&forge);
    data.mailbox = MailboxPlace::File(store.join("mailbox.db"));
    machine.tell(&data);
    let mut agent = machine.agent();
    machine.appears(machine.path("agent/lock")).await;
    assert!(agent.is_alive(), "{}", agent.said());
    std::os::unix::fs::symlink(machine.state.path(), &store).expect("a link");
    machine.signal(SignalKind::WarmUpOk, 0).await;
}

#[tokio::test]
async fn a_machine_without_user_data_is_a_crash() {
    let machine = Machine::new();
    let mut agent = machine.agent();
    assert_eq!(agent.ends().await, Some(1));
    assert!(agent.said().contains("user-data"), "{}", agent.said());
}

/// No process would find the machine again, and its supervisor is dead.
#[tokio::test]
async fn an_agent_whose_directory_is_deleted_ends_with_its_job() {
    let forge = Forge::new().await;
    let machine = Machine::of(&forge);
    let mark = BTreeSet::from([machine.mark()]);
    let mut agent = machine.agent();
    machine.assign(1, token(&forge).await).await;
    machine.signal(SignalKind::Registered, 1).await;
    forge.job("warm", "patient", PATIENT);
    machine.signal(SignalKind::JobStarted, 1).await;
    until("deleted directory", async || fs::remove_dir_all(machine.path("")).ok()).await;
    assert_eq!(agent.ends().await, Some(1), "{}", agent.said());
    assert!(agent.said().contains("without its directory"), "{}", agent.said());
    assert_eq!(tree::under(&mark).expect("this is Linux"), []);
    fs::create_dir_all(machine.path("")).expect("the world ends its processes by it");
}

/// A new process opens the mailbox that is there.
#[tokio::test]
async fn an_agent_ends_when_its_mailbox_is_another_file() {
    let forge = Forge::new().await;
    let machine = Machine::of(&forge);
    let mut agent = machine.agent();
    machine.signal(SignalKind::WarmUpOk, 0).await;
    let [mailbox, copy] = ["mailbox.db", "copy.db"].map(|name| machine.state.path().join(name));
    fs::copy(&mailbox, &copy).expect("it can be copied");
    fs::rename(&copy, &mailbox).expect("it can be replaced");
    assert_eq!(agent.ends().await, Some(1), "{}", agent.said());
    assert!(agent.said().contains("mailbox.db was replaced"), "{}", agent.said());
}
