//! `bullpen agent` on a machine's directory, with the stand-in runner, a stand-in GitHub and a mailbox
//! in SQLite.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bullpen_agent::runner::tree;
use bullpen_core::ids::{Generation, MailboxKey, RequestId, RunnerName};
use bullpen_core::instance::Owner;
use bullpen_core::mailbox::{
    Assignment, Credential, Mode, Order, Phase, Report, Secret, Signal, SignalKind, Withdrawal,
};
use bullpen_core::ports::{Clock as _, Mailbox as _, Written};
use bullpen_core::time::Timestamp;
use bullpen_embedded::SqliteMailbox;
use bullpen_embedded::machine::{self, RunnerProgram, UserData};
use bullpen_embedded::system::SystemClock;
use bullpen_github::stand_in::protocol::Conclusion;
use rustix::process;

use crate::program::{Program, until};
use crate::stage::Forge;

const HOUR: Duration = Duration::from_secs(3_600);
/// What must not reach a job.
const OURS: &str = "of-the-control-plane";
/// Waits until it is told to end.
const PATIENT: &str = "echo $$ >running\nuntil [ -e go ]; do sleep 0.05; done\ntouch done";

/// A machine of the process fleet, and what the fleet and the control plane do to it.
struct Machine {
    state: tempfile::TempDir,
    clock: SystemClock,
    agents: std::cell::Cell<u32>,
}

impl Machine {
    fn new() -> Self {
        let state = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(state.path().join("machines/i-1")).expect("a directory");
        Self { state, clock: SystemClock::new(), agents: std::cell::Cell::new(0) }
    }

    /// One that was told what it needs to run jobs for `forge`.
    fn of(forge: &Forge) -> Self {
        let machine = Self::new();
        machine.tell(&machine.user_data(forge));
        machine
    }

    fn user_data(&self, forge: &Forge) -> UserData {
        let command = [env!("CARGO_BIN_EXE_bullpen"), "stand-in-runner"].map(String::from).to_vec();
        let mailbox = self.state.path().join("mailbox.db");
        UserData::new(mailbox, forge.url(), RunnerProgram::StandIn { command })
    }

    fn tell(&self, data: &UserData) {
        fs::write(self.path(machine::USER_DATA), data.to_text()).expect("it can be written");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.state.path().join("machines/i-1").join(name)
    }

    fn work(&self, name: &str) -> PathBuf {
        self.path("agent/work").join(name)
    }

    fn mark(&self) -> String {
        machine::mark(&self.path("")).expect("it is there")
    }

    /// As the fleet starts it.
    fn agent(&self) -> Program {
        self.agent_of_boot("boot-1")
    }

    fn agent_of_boot(&self, boot: &str) -> Program {
        let number = self.agents.get() + 1;
        self.agents.set(number);
        let dir = self.path("");
        let dir = dir.to_str().expect("it is text");
        let arguments = ["agent", "--machine", dir, "--boot", boot];
        let environment = BTreeMap::from([(String::from("BULLPEN_TOKEN"), String::from(OURS))]);
        let output = self.state.path().join(format!("agent-{number}.log"));
        Program::start(&arguments, self.state.path(), &environment, &output)
    }

    fn mailbox(&self) -> SqliteMailbox<SystemClock> {
        let path = self.state.path().join("mailbox.db");
        SqliteMailbox::open(&path, Arc::new(self.clock)).expect("it can be opened")
    }

    async fn post(&self, order: Order) {
        let written = self.mailbox().post(&key(), &order).await;
        assert!(matches!(written, Ok(Written::Won(_))), "{written:?}");
    }

    async fn assign(&self, generation: u64, credential: Credential) {
        let assignment = Assignment {
            generation: Generation(generation),
            owner: Owner::Request(RequestId::new("1.1.a")),
            runner: RunnerName::new(format!("bp-i-1-{generation}")),
            label: String::from("warm"),
            credential: Some(credential),
            register_by: None,
            hard_cap: self.clock.now().after(HOUR),
        };
        self.post(Order::Assigned(assignment)).await;
    }

    async fn withdraw(&self, generation: u64, mode: Mode, removal_token: Option<Secret>) {
        let withdrawal = Withdrawal {
            generation: Generation(generation),
            mode,
            at: self.clock.now(),
            idle_deadline: self.clock.now().after(HOUR),
            removal_token,
        };
        self.post(Order::Withdrawn(withdrawal)).await;
    }

    async fn report(&self, what: &str, find: impl Fn(&Report) -> bool) -> Report {
        let mailbox = self.mailbox();
        until(what, async || {
            let reports = mailbox.reports(&[key()]).await.expect("the file is there");
            reports.into_iter().next().flatten().filter(|report| find(report))
        })
        .await
    }

    async fn signal(&self, kind: SignalKind, generation: u64) -> Signal {
        let generation = Generation(generation);
        let what = format!("{kind:?} {generation}");
        let report = self.report(&what, |report| report.signal(kind, generation).is_some()).await;
        report.signal(kind, generation).expect("it was just there").clone()
    }

    /// Waits until a file is there.
    async fn appears(&self, path: PathBuf) {
        until("file", async || path.exists().then_some(())).await;
    }

    fn is_clean(&self) {
        assert_eq!(tree::marked(&self.mark()).expect("this is Linux"), []);
        for directory in ["agent/work", "agent/temp"] {
            let left = fs::read_dir(self.path(directory)).expect("it is there").count();
            assert_eq!(left, 0, "{directory}");
        }
        for file in [".runner", ".credentials", "_diag"] {
            assert!(!self.path("agent/runner").join(file).exists(), "{file}");
        }
    }
}

fn key() -> MailboxKey {
    MailboxKey::new("i-1")
}

impl Drop for Machine {
    fn drop(&mut self) {
        // A test that failed leaves nothing running.
        let mark = self.mark();
        let steps = ["preinstall", "prerun", "pre-runner"];
        let steps = steps.map(|step| format!("{mark}/warm-up/{step}"));
        for mark in std::iter::once(&mark).chain(&steps) {
            let _ = tree::kill_marked(mark);
        }
    }
}

async fn token(forge: &Forge) -> Credential {
    Credential::RegistrationToken(forge.registration_token().await)
}

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
    let listening =
        |report: &Report| report.beat.as_ref().is_some_and(|beat| beat.phase == Phase::Listening);
    machine.report("end of the job", listening).await;
    machine.withdraw(2, Mode::Drain, None).await;
    forge.delete("bp-i-1-1").await;
    machine.withdraw(2, Mode::Stop, None).await;
    machine.signal(SignalKind::Removed, 2).await;
    machine.is_clean();
    let seen = fs::read_to_string(machine.path("agent/runner/seen")).expect("the job has run");
    let mut names: Vec<&str> =
        seen.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    names.retain(|name| !name.starts_with("GITHUB_") && !name.starts_with("RUNNER_"));
    names.sort_unstable();
    let expected = [
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
        machine.withdraw(withdrawn, Mode::Stop, Some(removal)).await;
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
    machine.withdraw(2, Mode::Stop, None).await;
    machine.signal(SignalKind::Removed, 2).await;
    machine.is_clean();
}

#[tokio::test]
async fn a_refused_token_is_nobodys_fault_here() {
    let forge = Forge::new().await;
    let machine = Machine::of(&forge);
    let _agent = machine.agent();
    machine.assign(1, Credential::RegistrationToken(Secret::new("made-up"))).await;
    let failed = machine.signal(SignalKind::RegistrationFailed, 1).await;
    assert!(failed.detail.starts_with(bullpen_core::mailbox::SYSTEMIC), "{failed:?}");
}

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
    let ends_by = fs::read_to_string(machine.path(machine::ENDS_BY)).expect("it is shortened");
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
            beat.is_some_and(|beat| beat.boot == boot && beat.phase == Phase::Waiting)
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
    first.signal(process::Signal::KILL);
    assert_eq!(first.ends().await, None, "a signal is no exit code");
    let beats = |report: &Report| report.beat.as_ref().map_or(0, |beat| beat.seq);
    let before = beats(&machine.report("beat", |report| report.beat.is_some()).await);
    let mut second = machine.agent();
    let busy = |report: &Report| {
        beats(report) > before && report.beat.as_ref().is_some_and(|it| it.phase == Phase::Busy)
    };
    machine.report("beat of the next agent", busy).await;
    let mut third = machine.agent();
    assert_eq!(third.ends().await, Some(1), "one agent lives on a machine");
    assert!(third.said().contains("another agent lives"), "{}", third.said());
    fs::write(machine.work("go"), "").expect("it can be written");
    assert_eq!(forge.over(job).await, Some(Conclusion::Success));
    machine.withdraw(2, Mode::Stop, Some(forge.removal_token().await)).await;
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
    agent.signal(process::Signal::TERM);
    assert_eq!(machine.signal(SignalKind::Interrupted, 0).await.detail, "SIGTERM");
    assert!(agent.is_alive());
}

#[tokio::test]
async fn a_mailbox_that_cannot_be_opened_yet_is_waited_for() {
    let forge = Forge::new().await;
    let machine = Machine::new();
    let store = machine.state.path().join("store");
    let mut data = machine.user_data(&forge);
    data.mailbox = store.join("mailbox.db");
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
