//! One instance with everything around it, and the control plane's side of its mailbox.
//!
//! Not here: asserting anything but that the agent kept to its own items.

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
/// The key that the template makes of it.
pub(crate) const KEY: &str = "AROAEXAMPLEID:i-0123456789abcdef0";
const TEMPLATE: &str = "AROAEXAMPLEID:{instance}";
const STACK: &str = "agents";
const REGION: &str = "eu-west-1";
/// Twelve digits: an account of its own in ministack.
const ACCOUNT: &str = "123456789012";

const PATIENCE: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(50);

/// The stage.
pub(crate) struct Stage {
    pub(crate) metadata: Metadata,
    directory: TempDir,
    proxy: Proxy,
    mailbox: DynamoMailbox<SystemClock>,
    clock: SystemClock,
    agent: Child,
    _ministack: Ministack,
}

/// The runner program's other end.
pub(crate) struct Runner(fs::File);

impl Runner {
    pub(crate) fn say(&mut self, line: &str) {
        writeln!(self.0, "{line}").expect("it is open");
    }
}

impl Stage {
    /// An instance that has just been started.
    pub(crate) async fn new() -> Self {
        Self::with_filter(true).await
    }

    /// The same, whose image has a packet filter or has none.
    pub(crate) async fn with_filter(has_filter: bool) -> Self {
        let ministack = Ministack::start().expect("`cargo xtask tools` installs it");
        let proxy = Proxy::start(ministack.address(), Plan::calm()).await.expect("a free port");
        let (clock, stack) = (SystemClock::new(), StackName::new(STACK).expect("it is plain"));
        let credentials = Credentials::new(ACCOUNT, "not a secret", None, None, "tests");
        let config = config::loader()
            .endpoint_url(ministack.url())
            .region(Region::new(REGION))
            .credentials_provider(credentials)
            .load()
            .await;
        setup::ensure(&config, &stack, &clock).await.expect("it is a new account");
        let mailbox = DynamoMailbox::new(&config, &stack, Arc::new(clock));
        let metadata = Metadata::of(INSTANCE);
        let directory = tempfile::tempdir().expect("the system has room");
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

    /// A script with a file of its own as its first argument, which is removed.
    pub(crate) fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        let text = text.replace("$1", &self.path("job.env").to_string_lossy());
        fs::write(&path, text).expect("it can be written");
        path
    }

    /// Takes the runner program's strings; after the warm-up, which makes its directory.
    pub(crate) fn runner(&self) -> Runner {
        let path = self.path("machine/agent/runner/control");
        let made = Command::new("mkfifo").arg(&path).status().expect("it is there");
        assert!(made.success(), "{made}");
        let open = fs::OpenOptions::new().read(true).write(true).open(path);
        Runner(open.expect("it was just made"))
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
        let written = self.mailbox.post(&MailboxKey::new(KEY), &order).await.expect("it answers");
        assert!(matches!(written, Written::Won(_)), "{written:?}");
    }

    /// Waits until the report, or anything else, shows something.
    pub(crate) async fn until<T>(&self, what: &str, find: impl Fn(&Report) -> Option<T>) -> T {
        let until = self.clock.monotonic() + PATIENCE;
        let mut report = Report::default();
        while self.clock.monotonic() < until {
            let read = self.mailbox.reports(&[MailboxKey::new(KEY)]).await.expect("it answers");
            report = read.into_iter().find_map(ReportRead::report).unwrap_or_default();
            if let Some(found) = find(&report) {
                return found;
            }
            self.clock.sleep(LOOK).await;
        }
        panic!("no {what} within {PATIENCE:?}: {report:?}; the agent: {}", self.text("agent.log"));
    }

    pub(crate) async fn signal(&self, kind: SignalKind, generation: u64) -> Signal {
        let what = format!("{kind:?} {generation}");
        self.until(&what, |report| report.signal(kind, Generation(generation)).cloned()).await
    }

    pub(crate) fn terminate(&self) {
        let told = Command::new("kill").arg(self.agent.id().to_string()).status();
        assert!(told.expect("it is there").success());
    }

    /// How the agent ended by itself, and all that it said.
    pub(crate) async fn end(&mut self) -> (ExitStatus, String) {
        let until = self.clock.monotonic() + PATIENCE;
        while self.clock.monotonic() < until {
            if let Some(status) = self.agent.try_wait().expect("it is our child") {
                return (status, self.text("agent.log"));
            }
            self.clock.sleep(LOOK).await;
        }
        panic!("the agent lives on: {}", self.text("agent.log"));
    }

    /// What the policy of an instance allows, and nothing else.
    pub(crate) fn kept_to_its_own_items(&self) {
        let (inbox, report) = (format!("in#{KEY}"), format!("out#{KEY}"));
        let counts = self.proxy.counts();
        let mut seen = [0, 0];
        for call in counts.log() {
            match (&*call.operation, call.item.as_deref()) {
                ("GetItem", Some(item)) if item == inbox => seen[0] += 1,
                ("UpdateItem", Some(item)) if item == report => seen[1] += 1,
                other => panic!("the agent has no business with {other:?}"),
            }
        }
        assert!(seen.iter().all(|calls| *calls > 0), "{seen:?}");
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // A test that failed leaves nothing running.
        let _ = self.agent.kill();
        let _ = self.agent.wait();
        let mark = bullpen_agent::machine::mark(&self.path("machine")).unwrap_or_default();
        let _ = bullpen_agent::runner::tree::kill_marked(&mark);
    }
}

/// A program of the image's.
fn program(path: &Path, script: &str) {
    fs::write(path, format!("#!/bin/sh\n{script}\n")).expect("it can be written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is ours");
}

/// The image's runner program, the user data, and a systemd and a packet filter that only note their
/// calls.
fn lay_out(base: &Path, has_filter: bool) {
    for directory in ["machine", "image/bin", "programs", "filter"] {
        fs::create_dir_all(base.join(directory)).expect("a directory");
    }
    let runner =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../agent/tests/processes/Runner.Listener");
    // Written by another process, so that no thread's child holds it open.
    let copied = Command::new("cp").arg(runner).arg(base.join("image/bin")).status();
    assert!(copied.expect("it is there").success());
    let notes = |name: &str| format!("echo \"$@\" >>{}", base.join(name).display());
    program(&base.join("programs/systemd-run"), &notes("systemd-run"));
    for name in ["iptables", "ip6tables"].iter().filter(|_| has_filter) {
        program(&base.join("filter").join(name), &notes(name));
    }
    let data = user_data(base);
    fs::write(base.join("machine").join(USER_DATA), data.to_text()).expect("it can be written");
}

fn user_data(base: &Path) -> UserData {
    let runner = RunnerProgram::Image { directory: base.join("image"), download: None };
    let mut data = UserData::new(PathBuf::new(), "https://github.example/octo".into(), runner);
    data.mailbox = MailboxPlace::DynamoDb {
        dynamodb: STACK.to_owned(),
        region: Some(REGION.to_owned()),
        key: Some(TEMPLATE.to_owned()),
    };
    let said = base.join("warmed-up");
    data.scripts.prerun = Some(format!("echo a step of the warm-up >>{}", said.display()));
    // Not the system's own: a test must not change what packets its host lets through.
    let path = format!("{}:/usr/bin:/bin", base.join("filter").display());
    data.environment.insert(String::from("PATH"), path);
    data.numbers = Numbers { heartbeat_ms: 500, clock_skew_ms: 500, ..data.numbers };
    data
}

fn start(base: &Path, dynamodb: &str, metadata: &Metadata) -> Child {
    let log = fs::File::create(base.join("agent.log")).expect("it can be written");
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
        .stdout(log.try_clone().expect("it is open"))
        .stderr(log)
        .spawn()
        .expect("cargo built it")
}
