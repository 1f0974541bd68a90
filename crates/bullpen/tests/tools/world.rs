//! The world of a test of the service: a state directory, a GitHub that sends signed webhooks, and
//! the service as a process of its own. Machines, agents and jobs are real processes. Dropping a
//! world destroys everything that its test left behind; a process that is left after that fails the
//! test.
//!
//! Not here: any test, or its configuration.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bullpen_agent::runner::tree;
use bullpen_core::ids::JobId;
use bullpen_core::instance::State;
use bullpen_core::job::{End, Job, JobState};
use bullpen_core::mailbox::Secret;
use bullpen_core::ports::Ledger as _;
use bullpen_embedded::SqliteLedger;
use bullpen_embedded::system::SystemClock;
use bullpen_github::AppKey;
use bullpen_github::stand_in::protocol::{JobOrder, JobView};
use bullpen_github::stand_in::{Hook, KnownApp, Options, StandIn};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::process::{self, Process, Ran, within};
use crate::shared::{processes_under, stack_file};
use crate::waiting::until;
use crate::wire::{Answer, get};

pub(crate) const SECRET: &str = "it is a secret";
pub(crate) const REPOSITORY: &str = "acme/app";
/// The token with which a test calls the stand-in GitHub.
pub(crate) const TOKEN: &str = "ghp_of_the_world";
const APP_ID: &str = "4711";
pub(crate) const APP_KEY: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../github/fixtures/test-app-key.pem");

/// Limits that only a broken product exceeds, even on a busy host; and a service with short
/// intervals, so that tests need not wait a minute.
const PATIENT: &[(&str, &str)] = &[
    ("assignment-acknowledged", "60s"),
    ("registration", "60s"),
    ("fleet-validation", "140s"),
    ("heartbeat-stale", "60s"),
    ("sweep", "1s"),
    ("row-look-again", "3s"),
    ("find", "1s"),
    ("upkeep", "2s"),
    ("uses-max", "1000"),
];

/// Limits for worlds that wait for leases and deadlines: the claims and rows of a killed process
/// are free again within half a minute.
pub(crate) const HASTY: &[(&str, &str)] = &[
    ("row-lease", "9s"),
    ("row-lease-renew", "3s"),
    ("drain", "6s"),
    ("claim-lease", "17s"),
    ("claim-renew", "2s"),
    ("assignment-acknowledged", "8s"),
    ("registration", "8s"),
    ("fleet-validation", "17s"),
    ("warm-up", "18s"),
    ("release-acknowledgement", "8s"),
    // A launch that no process continues counts as alive for this long.
    ("request-deadline", "60s"),
    ("reconcile-grace", "1s"),
    ("clock-skew", "1s"),
];

/// The lines of each command's log that a failed test shows.
const LAST_LINES: usize = 60;

/// A world.
pub(crate) struct World {
    place: TempDir,
    pub(crate) github: StandIn,
    pub(crate) environment: BTreeMap<String, String>,
    calls: Cell<u32>,
    /// Whether its ledger is in a file that a test can read as well.
    pub(crate) on_files: bool,
    /// The program of its commands.
    pub(crate) program: PathBuf,
    /// The user that runs its commands, if not the test's own.
    pub(crate) user: Option<u32>,
}

impl World {
    /// A world with this `runs-on.yml`, and with these limits in its `bullpen.toml`.
    pub(crate) async fn configured(config: &str, limits: &[(&str, &str)]) -> Self {
        Self::configured_in(&std::env::temp_dir(), config, limits).await
    }

    /// The same in a directory of its own in `parent`.
    pub(crate) async fn configured_in(
        parent: &Path,
        config: &str,
        limits: &[(&str, &str)],
    ) -> Self {
        let place = tempfile::Builder::new().prefix("bp").tempdir_in(parent).expect("a directory");
        let address = "127.0.0.1:0".parse().expect("it is an address");
        let github = StandIn::start(address, options(), Arc::new(SystemClock::new())).await;
        let github = github.expect("some port is free");
        let path = |name: &str| place.path().join(name).display().to_string();
        let environment = BTreeMap::from(
            [
                ("PATH", "/usr/local/bin:/usr/bin:/bin".to_owned()),
                ("HOME", path("home")),
                ("BULLPEN_STATE", path("state")),
                ("BULLPEN_WEBHOOK_SECRET", SECRET.to_owned()),
                ("BULLPEN_LOG", "info".to_owned()),
                ("INPUT_STACK", path("bullpen.toml")),
                ("INPUT_CONFIG", path("runs-on.yml")),
                ("INPUT_APP_ID", APP_ID.to_owned()),
                ("INPUT_APP_KEY", APP_KEY.to_owned()),
                ("GITHUB_API_URL", github.url()),
                ("GITHUB_REPOSITORY", REPOSITORY.to_owned()),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
        let (calls, program) = (Cell::new(0), process::built());
        let world = Self { place, github, environment, calls, on_files: true, program, user: None };
        world.configure(config);
        let text = stack_file(PATIENT.iter().chain(limits));
        fs::write(world.path("bullpen.toml"), text).expect("it can be written");
        world
    }

    /// Replaces its `runs-on.yml`, in one step.
    pub(crate) fn configure(&self, config: &str) {
        let new = self.path("runs-on.yml.new");
        fs::write(&new, config).expect("it can be written");
        fs::rename(new, self.path("runs-on.yml")).expect("it can be replaced");
    }

    /// A configured world with its ledger, queues and mailboxes in the emulator.
    #[cfg(feature = "aws")]
    pub(crate) async fn on_aws(config: &str, limits: &[(&str, &str)]) -> Self {
        let mut world = Self::configured(config, limits).await;
        world.on_files = false;
        world.environment.extend(crate::emulator::environment());
        world
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.path("state")
    }

    /// Starts a command of this world; white space separates its arguments.
    pub(crate) fn bullpen(&self, line: &str) -> Process {
        self.command_of(&self.program, line)
    }

    /// The same by another program.
    pub(crate) fn command_of(&self, program: &Path, line: &str) -> Process {
        let number = self.calls.get() + 1;
        self.calls.set(number);
        let output = self.path(&format!("call-{number}"));
        Process::start(program, self.user, line, &self.environment, &output)
    }

    pub(crate) async fn run(&self, line: &str) -> Ran {
        self.bullpen(line).ends().await
    }

    /// Starts the service, and sends GitHub's webhooks to it from then on.
    pub(crate) async fn serve(&self) -> Served {
        self.serve_with("").await
    }

    /// Starts the service with more arguments.
    pub(crate) async fn serve_with(&self, more: &str) -> Served {
        self.serve_of(&self.program, more).await
    }

    /// The same by another program.
    pub(crate) async fn serve_of(&self, program: &Path, more: &str) -> Served {
        let line = format!("serve --webhook 127.0.0.1:0 --admin 127.0.0.1:0 {more}");
        // Redeliveries that it requests at once must not go to its predecessor's address.
        self.github.pull(|levers| levers.webhooks.hold = true);
        let mut process = self.command_of(program, &line);
        let told: Value =
            serde_json::from_str(&process.first_line().await).expect("it says where it listens");
        let url = |key: &str| told[key].as_str().expect("an address").to_owned();
        let served = Served { process, webhook: url("webhook"), admin: url("admin") };
        self.hook(&served, SECRET);
        self.github.pull(|levers| levers.webhooks.hold = false);
        served
    }

    /// Makes GitHub send its webhooks to this service, signed with this secret.
    pub(crate) fn hook(&self, served: &Served, secret: &str) {
        let (url, secret) = (served.webhook.clone(), Secret::new(secret));
        let hook = Hook { url, secret, runs: false };
        self.github.hook(hook).expect("it is on loopback");
    }

    /// Queues a job with this label.
    pub(crate) fn job(&self, label: &str, script: &str) -> u64 {
        self.github.submit(order(label, script)).id
    }

    /// Waits until GitHub says that a job is over.
    pub(crate) async fn over(&self, job: u64) -> JobView {
        within(&format!("end of job {job}"), self.github.over(job)).await
    }

    /// Waits until GitHub says that a job has begun.
    pub(crate) async fn started(&self, job: u64) -> JobView {
        within(&format!("start of job {job}"), self.github.started(job)).await
    }

    /// The ledger, which a test may read beside the service.
    pub(crate) fn ledger(&self) -> SqliteLedger<SystemClock> {
        let path = self.state().join("ledger.db");
        SqliteLedger::open(&path, Arc::new(SystemClock::new())).expect("it is there")
    }

    /// A job's row.
    pub(crate) async fn row(&self, job: u64) -> Option<Job> {
        let row = self.ledger().row(&JobId::new(job.to_string())).await.expect("it is readable");
        row.map(|row| Job::decode(&row.body).expect("it is a job"))
    }

    /// Waits until a job's row has ended without debts; returns its end.
    pub(crate) async fn settled(&self, job: u64) -> End {
        until(&format!("settled row of job {job}"), async || {
            match self.row(job).await.map(|row| row.state) {
                Some(JobState::Ended { end, debts, .. }) if debts.is_settled() => Some(end),
                _ => None,
            }
        })
        .await
    }

    /// Waits for a job's end by `explain`, in worlds whose ledger a test cannot read.
    #[cfg(feature = "aws")]
    pub(crate) async fn ended(&self, job: u64) {
        until(&format!("end of job {job} in its row"), async || {
            let told = self.run(&format!("explain {job} --json")).await;
            // Until the job has a row, `explain` fails.
            let told = if told.code == Some(0) { told.json() } else { Value::Null };
            (told["state"] == "ended" && told["machine"] == Value::Null).then_some(())
        })
        .await;
    }

    pub(crate) async fn status(&self) -> Value {
        self.run("status --json").await.json()
    }

    /// Waits until no machine has an owner and every remaining machine is idle; then checks
    /// processes and ledger. Returns the idle machines, stopped ones included.
    pub(crate) async fn quiet(&self) -> BTreeSet<String> {
        let idle = until("quiet world", async || {
            // Reading the ledger costs less than running a command.
            if self.on_files && !self.nobody_owns_anything().await {
                return None;
            }
            idle_only(&self.status().await)
        })
        .await;
        for machine in self.machines() {
            let name = machine.file_name().expect("it has a name").to_string_lossy().into_owned();
            let left = processes_under(&machine);
            let runs = idle.get(&name) == Some(&true);
            assert!(runs || left.is_empty(), "{name} is an orphan: {left:?}");
            assert!(!runs || !left.is_empty(), "{name} is a ghost");
        }
        self.run("ledger verify").await.exits(0);
        idle.into_keys().collect()
    }

    async fn nobody_owns_anything(&self) -> bool {
        let ledger = self.ledger();
        let mut cursor: Option<String> = None;
        loop {
            let page = ledger.live(cursor.as_deref()).await.expect("it is readable");
            if page.items.iter().any(|record| !matches!(record.state, State::Idle { .. })) {
                return false;
            }
            match page.next {
                Some(next) => cursor = Some(next),
                None => return true,
            }
        }
    }

    /// Every machine's directory.
    pub(crate) fn machines(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.state().join("machines")) else { return Vec::new() };
        let paths = entries.flatten().map(|entry| entry.path());
        paths.filter(|path| path.join("machine.json").exists()).collect()
    }

    /// A script that records that it runs, and continues once `gate` exists.
    pub(crate) fn gated(&self, gate: &str) -> String {
        let (ran, gate) = (self.path("ran"), self.path(gate));
        let note = format!("echo \"$RUNNER_NAME\" >> {}", ran.display());
        format!("{note}\nuntil [ -e {} ]; do sleep 0.05; done\n", gate.display())
    }

    pub(crate) fn open(&self, gate: &str) {
        fs::write(self.path(gate), "").expect("it can be written");
    }

    #[expect(clippy::print_stderr, reason = "a failed test shows its world's logs")]
    fn tell_why(&self) {
        eprintln!("{} is kept; it said last:\n{}", self.place.path().display(), self.last_words());
    }

    /// The end of each command's standard error.
    fn last_words(&self) -> String {
        let calls = 1..=self.calls.get();
        let said = calls.map(|call| {
            let name = format!("call-{call}.err");
            let text = fs::read_to_string(self.path(&name)).unwrap_or_default();
            let lines: Vec<&str> = text.lines().rev().take(LAST_LINES).collect();
            lines.into_iter().rev().fold(format!("{name}:\n"), |said, line| said + line + "\n")
        });
        said.collect()
    }
}

fn options() -> Options {
    let pem = fs::read_to_string(APP_KEY).expect("the fixture is there");
    let public_key = AppKey::from_pem(&pem).expect("it is a key").public_key();
    let installations = BTreeMap::from([(7, "acme".to_owned())]);
    let app = KnownApp { id: APP_ID.to_owned(), public_key, installations };
    Options { app: Some(app), ..Options::new(Secret::new(TOKEN)) }
}

/// A job with this label.
pub(crate) fn order(label: &str, script: &str) -> JobOrder {
    JobOrder {
        repository: REPOSITORY.to_owned(),
        labels: vec![label.to_owned()],
        script: script.to_owned(),
        ..JobOrder::default()
    }
}

/// The idle machines and whether they run, if all machines are idle.
fn idle_only(status: &Value) -> Option<BTreeMap<String, bool>> {
    if status["unrecorded"] != Value::Array(Vec::new()) {
        return None;
    }
    let all = status["instances"].as_array().expect("a list");
    let idle = all.iter().map(|one| {
        let runs = one["tier"] != "stopped";
        let fits = one["machine"] == if runs { "running" } else { "stopped" };
        let id = one["id"].as_str().expect("an id").to_owned();
        (one["state"] == "idle" && fits).then_some((id, runs))
    });
    idle.collect()
}

impl Drop for World {
    fn drop(&mut self) {
        let machines = self.state().join("machines");
        let mark = machines.canonicalize().unwrap_or(machines).display().to_string();
        // GitHub is served by this very thread, so it is left alone.
        self.environment.remove("INPUT_APP_ID");
        self.environment.remove("INPUT_APP_KEY");
        let destroyed = self.bullpen("destroy --yes").ends_blocking();
        let left = tree::under(&BTreeSet::from([mark])).expect("this is Linux");
        for one in &left {
            let _ = one.kill();
        }
        if std::thread::panicking() {
            self.place.disable_cleanup(true);
            self.tell_why();
        } else {
            destroyed.exits(0);
            assert!(left.is_empty(), "left behind: {left:?}");
        }
    }
}

/// The service as a process.
pub(crate) struct Served {
    pub(crate) process: Process,
    pub(crate) webhook: String,
    pub(crate) admin: String,
}

impl Served {
    /// Sends a request to the admin listener.
    pub(crate) async fn ask(&self, path: &str) -> Answer {
        get(&format!("{}{path}", self.admin)).await
    }

    /// Kills the process, and waits for its end.
    pub(crate) async fn kill(self) {
        self.process.signal(Signal::KILL);
        self.process.ends().await;
    }
}
