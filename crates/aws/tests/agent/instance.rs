//! One instance with its surroundings, and the control plane's side of its mailbox.
//!
//! Not here: assertions, except that the agent uses only its own items.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use aws_config::Region;
use aws_credential_types::Credentials;
use bullpen_agent::machine::{MailboxPlace, Numbers, RunnerProgram, USER_DATA, UserData};
use bullpen_agent::system::SystemClock;
use bullpen_aws::{DynamoMailbox, StackName, config, setup};
use bullpen_core::ids::{Generation, MailboxKey};
use bullpen_core::instance::Owner;
use bullpen_core::mailbox::{
    Assignment, Credential, Order, Report, ReportRead, Secret, Signal, SignalKind, Withdrawal,
    WithdrawalMode,
};
use bullpen_core::ports::{Clock as _, Mailbox as _, Written};
use bullpen_faulty::{Ministack, Plan, Proxy};
use tempfile::TempDir;

use crate::metadata::Metadata;

pub(crate) const INSTANCE: &str = "i-0123456789abcdef0";
/// The mailbox key that the template gives for the instance.
pub(crate) const KEY: &str = "AROAEXAMPLEID:i-0123456789abcdef0";
const TEMPLATE: &str = "AROAEXAMPLEID:{instance}";
const STACK: &str = "agents";
const REGION: &str = "eu-west-1";
/// Twelve digits: an account of its own in ministack.
const ACCOUNT: &str = "123456789012";

const WAIT_MAX: Duration = Duration::from_secs(120);
const POLL_EVERY: Duration = Duration::from_millis(50);

/// An agent on an instance, with its mailbox and its metadata.
pub(crate) struct TestInstance {
    pub(crate) metadata: Metadata,
    directory: TempDir,
    proxy: Proxy,
    mailbox: DynamoMailbox<SystemClock>,
    clock: SystemClock,
    agent: Child,
    _ministack: Ministack,
}

/// The test's control of the runner program.
pub(crate) struct Runner(fs::File);

impl Runner {
    pub(crate) fn send(&mut self, line: &str) {
        writeln!(self.0, "{line}").expect("an open pipe");
    }
}

impl TestInstance {
    /// An instance that has just been started.
    pub(crate) async fn new() -> Self {
        Self::with_filter(true).await
    }

    /// An instance whose image has a packet filter or has none.
    pub(crate) async fn with_filter(has_filter: bool) -> Self {
        let ministack = Ministack::start().expect("`cargo xtask tools` installs it");
        let proxy = Proxy::start(ministack.address(), Plan::calm()).await.expect("a free port");
        let (clock, stack) = (SystemClock::new(), StackName::new(STACK).expect("a valid name"));
        let credentials = Credentials::new(ACCOUNT, "not a secret", None, None, "tests");
        let config = config::loader()
            .endpoint_url(ministack.url())
            .region(Region::new(REGION))
            .credentials_provider(credentials)
            .load()
            .await;
        setup::ensure(&config, &stack, &clock).await.expect("new tables");
        let mailbox = DynamoMailbox::new(&config, &stack, Arc::new(clock));
        let metadata = Metadata::of(INSTANCE);
        let directory = tempfile::tempdir().expect("a temporary directory");
        lay_out(directory.path(), has_filter);
        let agent = start(directory.path(), &proxy.url(), &metadata);
        Self { metadata, directory, proxy, mailbox, clock, agent, _ministack: ministack }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Writes a script, with `$1` replaced by the path of a file in this directory.
    pub(crate) fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        let text = text.replace("$1", &self.path("job.env").to_string_lossy());
        fs::write(&path, text).expect("a written file");
        path
    }

    /// Takes control of the runner program; after the warm-up, which creates its directory.
    pub(crate) fn runner(&self) -> Runner {
        let path = self.path("machine/agent/runner/control");
        let status = Command::new("mkfifo").arg(&path).status().expect("mkfifo");
        assert!(status.success(), "{status}");
        let pipe = fs::OpenOptions::new().read(true).write(true).open(path);
        Runner(pipe.expect("the new pipe"))
    }

    pub(crate) async fn assign(&self, generation: u64) {
        let now = self.clock.now();
        self.post(Order::Assigned(Assignment {
            generation: Generation(generation),
            owner: Owner::Job("j-1".into()),
            runner: "agents-j-1".into(),
            label: String::from("warm"),
            credential: Some(Credential::Jit(Secret::new("not a real one"))),
            register_by: None,
            hard_cap: now.after(Duration::from_secs(3_600)),
            issued_at: Some(now),
            own_run: None,
            group: None,
            ephemeral: false,
        }))
        .await;
    }

    pub(crate) async fn withdraw(&self, generation: u64, mode: WithdrawalMode, idle: Duration) {
        let at = self.clock.now();
        self.post(Order::Withdrawn(Withdrawal {
            generation: Generation(generation),
            mode,
            at,
            idle_deadline: at.after(idle),
            removal_token: None,
        }))
        .await;
    }

    async fn post(&self, order: Order) {
        let written = self.mailbox.post(&MailboxKey::new(KEY), &order).await.expect("an answer");
        assert!(matches!(written, Written::Won(_)), "{written:?}");
    }

    /// Waits until `find` returns a value; it gets the latest report.
    pub(crate) async fn until<T>(&self, what: &str, find: impl Fn(&Report) -> Option<T>) -> T {
        let until = self.clock.monotonic() + WAIT_MAX;
        let mut report = Report::default();
        while self.clock.monotonic() < until {
            let read = self.mailbox.reports(&[MailboxKey::new(KEY)]).await.expect("an answer");
            report = read.into_iter().find_map(ReportRead::report).unwrap_or_default();
            if let Some(found) = find(&report) {
                return found;
            }
            self.clock.sleep(POLL_EVERY).await;
        }
        panic!("no {what} within {WAIT_MAX:?}: {report:?}; the agent: {}", self.text("agent.log"));
    }

    pub(crate) async fn signal(&self, kind: SignalKind, generation: u64) -> Signal {
        let what = format!("{kind:?} {generation}");
        self.until(&what, |report| report.signal(kind, Generation(generation)).cloned()).await
    }

    pub(crate) fn terminate(&self) {
        let status = Command::new("kill").arg(self.agent.id().to_string()).status();
        assert!(status.expect("kill").success());
    }

    /// How the agent ended by itself, and all that it said.
    pub(crate) async fn end(&mut self) -> (ExitStatus, String) {
        let until = self.clock.monotonic() + WAIT_MAX;
        while self.clock.monotonic() < until {
            if let Some(status) = self.agent.try_wait().expect("a child process") {
                return (status, self.text("agent.log"));
            }
            self.clock.sleep(POLL_EVERY).await;
        }
        panic!("the agent did not end: {}", self.text("agent.log"));
    }

    /// Asserts that the agent made only calls that the policy of an instance allows.
    pub(crate) fn assert_only_own_items_used(&self) {
        let (inbox, report) = (format!("in#{KEY}"), format!("out#{KEY}"));
        let counts = self.proxy.counts();
        let mut seen = [0, 0];
        for call in counts.log() {
            match (&*call.operation, call.item.as_deref()) {
                ("GetItem", Some(item)) if item == inbox => seen[0] += 1,
                ("UpdateItem", Some(item)) if item == report => seen[1] += 1,
                other => panic!("the policy does not allow {other:?}"),
            }
        }
        assert!(seen.iter().all(|calls| *calls > 0), "{seen:?}");
    }
}

impl Drop for TestInstance {
    fn drop(&mut self) {
        // A failing test leaves no process behind.
        let _ = self.agent.kill();
        let _ = self.agent.wait();
        let mark = bullpen_agent::machine::mark(&self.path("machine")).unwrap_or_default();
        let _ = bullpen_agent::runner::tree::kill_marked(&mark);
    }
}

/// Writes an executable script.
fn program(path: &Path, script: &str) {
    fs::write(path, format!("#!/bin/sh\n{script}\n")).expect("a written file");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("an executable file");
}

/// Writes the image's runner program, the user data, and stand-ins for systemd and the packet
/// filter that log their calls.
fn lay_out(base: &Path, has_filter: bool) {
    for directory in ["machine", "image/bin", "programs", "filter"] {
        fs::create_dir_all(base.join(directory)).expect("a directory");
    }
    let runner =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../agent/tests/processes/Runner.Listener");
    // Copied by another process, so that no other thread's child inherits it open for writing.
    let copied = Command::new("cp").arg(runner).arg(base.join("image/bin")).status();
    assert!(copied.expect("cp").success());
    let log_calls = |name: &str| format!("echo \"$@\" >>{}", base.join(name).display());
    program(&base.join("programs/systemd-run"), &log_calls("systemd-run"));
    for name in ["iptables", "ip6tables"].iter().filter(|_| has_filter) {
        program(&base.join("filter").join(name), &log_calls(name));
    }
    let data = user_data(base);
    fs::write(base.join("machine").join(USER_DATA), data.to_text()).expect("a written file");
}

fn user_data(base: &Path) -> UserData {
    let runner = RunnerProgram::Image { directory: base.join("image"), download: None };
    let mut data = UserData::new(PathBuf::new(), "https://github.example/octo".into(), runner);
    data.mailbox = MailboxPlace::DynamoDb {
        dynamodb: STACK.to_owned(),
        region: Some(REGION.to_owned()),
        key: Some(TEMPLATE.to_owned()),
    };
    let output = base.join("warmed-up");
    data.scripts.prerun = Some(format!("echo a step of the warm-up >>{}", output.display()));
    // Stand-ins first: a test must not change its host's packet filter.
    let path = format!("{}:/usr/bin:/bin", base.join("filter").display());
    data.environment.insert(String::from("PATH"), path);
    data.numbers = Numbers { heartbeat_ms: 500, clock_skew_ms: 500, ..data.numbers };
    data
}

fn start(base: &Path, dynamodb: &str, metadata: &Metadata) -> Child {
    let log = fs::File::create(base.join("agent.log")).expect("a log file");
    let path = format!("{}:/usr/bin:/bin", base.join("programs").display());
    Command::new(env!("CARGO_BIN_EXE_bullpen-agent-ec2"))
        .arg("--machine")
        .arg(base.join("machine"))
        .args(["--boot", "boot-1"])
        .env_clear()
        .env("PATH", path)
        .env("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.url())
        .env("AWS_ENDPOINT_URL_DYNAMODB", dynamodb)
        .env("AWS_ACCESS_KEY_ID", ACCOUNT)
        .env("AWS_SECRET_ACCESS_KEY", "not a secret")
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a second handle"))
        .stderr(log)
        .spawn()
        .expect("cargo built it")
}
