//! The world of a test: a state directory, a GitHub, and the commands that a workflow would run.
//! Machines, agents and jobs are real processes. Dropping a world destroys everything that its test
//! left behind; a process that is left after that fails the test.
//!
//! Not here: any test.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use bullpen_agent::runner::tree::{self, Identity};
use bullpen_core::mailbox::Secret;
use bullpen_embedded::system::SystemClock;
use bullpen_github::stand_in::protocol::{Conclusion, JobOrder};
use bullpen_github::stand_in::{Options, StandIn};
use serde_json::Value;
use tempfile::TempDir;

use crate::call::{Call, Ran};
use crate::shared::{processes_under, stack_file};
use crate::waiting::until;

/// Limits that only a broken product exceeds, even on a busy host.
const PATIENT: &[(&str, &str)] = &[
    ("assignment-acknowledged", "60s"),
    ("registration", "60s"),
    ("fleet-validation", "140s"),
    ("heartbeat-stale", "60s"),
    ("forge-patience", "2s"),
];

/// Limits for worlds that wait for leases and deadlines: a killed command's claims, machines and
/// launches are free again within half a minute.
pub(crate) const HASTY: &[(&str, &str)] = &[
    ("assignment-acknowledged", "8s"),
    ("registration", "8s"),
    ("claim-lease", "17s"),
    ("claim-renew", "2s"),
    ("fleet-validation", "17s"),
    ("warm-up", "18s"),
    ("max-runtime-workflow", "20s"),
    ("release-acknowledgement", "8s"),
    ("reconcile-grace", "1s"),
    ("clock-skew", "1s"),
];

/// The token of a person at the stand-in GitHub.
pub(crate) const TOKEN: &str = "ghp_of_a_person";

/// A world.
pub(crate) struct World {
    place: TempDir,
    pub(crate) github: StandIn,
    environment: BTreeMap<String, String>,
    calls: Cell<u32>,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(&[]).await
    }

    /// A world with these limits in its `bullpen.toml`.
    pub(crate) async fn with(limits: &[(&str, &str)]) -> Self {
        #[cfg(feature = "aws")]
        if crate::aws::is_wanted() {
            return Self::on_aws(limits).await;
        }
        Self::on_files(limits).await
    }

    /// A world with its ledger, queues and mailboxes in the emulator, and the tables created.
    #[cfg(feature = "aws")]
    pub(crate) async fn on_aws(limits: &[(&str, &str)]) -> Self {
        let mut world = Self::on_files(limits).await;
        world.environment.extend(crate::emulator::environment());
        world.refresh().await;
        world
    }

    pub(crate) async fn on_files(limits: &[(&str, &str)]) -> Self {
        let place = tempfile::Builder::new().prefix("bp").tempdir().expect("a directory");
        let clock = Arc::new(SystemClock::new());
        let address = "127.0.0.1:0".parse().expect("it is an address");
        let github = StandIn::start(address, Options::new(Secret::new(TOKEN)), clock).await;
        let github = github.expect("some port is free");
        let path = |name: &str| place.path().join(name).display().to_string();
        let environment = BTreeMap::from(
            [
                ("PATH", "/usr/local/bin:/usr/bin:/bin".to_owned()),
                ("HOME", path("home")),
                ("BULLPEN_STATE", path("state")),
                ("INPUT_STACK", path("bullpen.toml")),
                ("INPUT_GITHUB_TOKEN", TOKEN.to_owned()),
                ("GITHUB_API_URL", github.url()),
                ("GITHUB_REPOSITORY", "acme/app".to_owned()),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
        let world = Self { place, github, environment, calls: Cell::new(0) };
        world.limit(limits);
        world
    }

    /// Replaces the limits.
    pub(crate) fn limit(&self, limits: &[(&str, &str)]) {
        let text = stack_file(PATIENT.iter().chain(limits));
        fs::write(self.path("bullpen.toml"), text).expect("it can be written");
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// A file with the token.
    pub(crate) fn token_file(&self) -> String {
        let path = self.path("token");
        fs::write(&path, TOKEN).expect("it can be written");
        path.display().to_string()
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.path("state")
    }

    /// A machine's directory.
    pub(crate) fn machine(&self, id: &str) -> PathBuf {
        self.state().join("machines").join(id)
    }

    /// A command of this world; white space separates its arguments.
    pub(crate) fn bullpen(&self, line: &str) -> Call {
        let number = self.calls.get() + 1;
        self.calls.set(number);
        Call::new(line, &self.environment, &self.path(&format!("call-{number}")))
    }

    /// Provisions a request, and asserts that it is fulfilled.
    pub(crate) async fn provision(&self, count: usize, name: &str) -> Provisioned {
        let line = format!("provision --count {count} --name {name} --json");
        let provisioned = Provisioned(self.bullpen(&line).run().await.json());
        assert_eq!(provisioned.ids().len(), count, "no machine twice: {}", provisioned.0);
        provisioned
    }

    /// Releases the request of this name, and asserts that the release waits for no machine.
    pub(crate) async fn release(&self, name: &str) -> Value {
        let released = self.bullpen(&format!("release --name {name} --json")).run().await.json();
        assert_eq!(released["waiting"], Value::Array(Vec::new()), "{released}");
        released
    }

    pub(crate) async fn refresh(&self) -> Ran {
        let refreshed = self.bullpen("refresh --json").run().await;
        refreshed.exits(0);
        refreshed
    }

    pub(crate) async fn status(&self) -> Value {
        self.bullpen("status --json").run().await.json()
    }

    /// Every instance's id and state.
    pub(crate) async fn states(&self) -> BTreeMap<String, String> {
        let status = self.status().await;
        let instances = status["instances"].as_array().expect("a list").clone();
        let text = |value: &Value| value.as_str().expect("it is text").to_owned();
        instances.iter().map(|one| (text(&one["id"]), text(&one["state"]))).collect()
    }

    /// Asserts the ledger's invariants.
    pub(crate) async fn verify(&self) {
        self.bullpen("ledger verify").run().await.exits(0);
    }

    /// All processes of this world's machines.
    pub(crate) fn processes(&self) -> Vec<Identity> {
        processes_under(&self.state().join("machines"))
    }

    /// Queues a job for runners with this label.
    pub(crate) fn job(&self, label: &str, script: &str) -> u64 {
        let order = JobOrder {
            repository: String::from("acme/app"),
            labels: vec![label.to_owned()],
            script: script.to_owned(),
            ..JobOrder::default()
        };
        self.github.submit(order).id
    }

    /// Runs a job for this label to success; returns the name of its runner.
    pub(crate) async fn runs_job(&self, label: &str, script: &str) -> String {
        let job = self.job(label, script);
        let over = until("end of the job", async || {
            self.github.job(job).filter(|view| view.conclusion.is_some())
        })
        .await;
        assert_eq!(over.conclusion, Some(Conclusion::Success), "{script}");
        over.runner.expect("a runner ran it")
    }

    /// The runners that are online with this label.
    pub(crate) fn online(&self, label: &str) -> BTreeSet<String> {
        let runners = self.github.runners().into_iter();
        let with_label = runners.filter(|runner| runner.labels.iter().any(|one| one == label));
        with_label.filter(|runner| runner.online).map(|runner| runner.name).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let machines = self.state().join("machines");
        let mark = machines.canonicalize().unwrap_or(machines).display().to_string();
        // GitHub is served by this very thread, so it is left alone.
        let destroy = self.bullpen("destroy --yes").without("INPUT_GITHUB_TOKEN");
        let destroyed = destroy.run_blocking();
        let left = tree::under(&BTreeSet::from([mark])).expect("this is Linux");
        for one in &left {
            let _ = one.kill();
        }
        if !std::thread::panicking() {
            destroyed.exits(0);
            assert!(left.is_empty(), "left behind: {left:?}");
        }
    }
}

/// The output of `provision --json`.
#[derive(Debug)]
pub(crate) struct Provisioned(pub(crate) Value);

impl Provisioned {
    pub(crate) fn label(&self) -> &str {
        self.0["label"].as_str().expect("a label")
    }

    /// How many were reused, and how many created.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let number = |key: &str| self.0[key].as_u64().expect("a number");
        assert_eq!(number("started"), 0, "nothing is ever stopped here");
        (number("reused"), number("created"))
    }

    pub(crate) fn ids(&self) -> BTreeSet<String> {
        let instances = self.0["instances"].as_array().expect("a list").iter();
        instances.map(|one| one["id"].as_str().expect("an id").to_owned()).collect()
    }

    pub(crate) fn id(&self) -> String {
        self.ids().pop_first().expect("at least one")
    }
}
