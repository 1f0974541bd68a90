//! Helpers of the process fleet's tests: a directory, a clock, an agent, and polling.
//!
//! Not here: test cases.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::future::Future;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bullpen_agent::runner::tree::{self, Identity};
use bullpen_core::ids::{InstanceId, StopOp};
use bullpen_core::ports::{Clock, Fleet as _, Machine, MachineState, StopOrder};
use bullpen_core::time::Timestamp;
use bullpen_embedded::fleet::{
    Capacity, Catalogue, Entropy, FleetSettings, ProcessFleet, supervise,
};
pub(crate) use bullpen_sim::contract::fleet::any_machines as request;
use serde_json::Value;
use tempfile::TempDir;

pub(crate) type Fleet = ProcessFleet<RealClock>;

/// An agent that does nothing and ignores signals.
pub(crate) const STUBBORN: &str = "trap '' TERM INT HUP; sleep 1000 & sleep 1000; wait";
/// The number of its processes, with its supervisor.
pub(crate) const STUBBORN_PROCESSES: usize = 4;

/// The host's clock, on which processes run.
#[derive(Debug)]
pub(crate) struct RealClock {
    began: std::time::Instant,
}

#[expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "processes run on the host's time, and this is where a test gets it"
)]
impl RealClock {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { began: std::time::Instant::now() })
    }

    fn wall() -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Timestamp::EPOCH.after(since.unwrap())
    }

    async fn nap(wait: Duration) {
        tokio::time::sleep(wait).await;
    }
}

impl Clock for RealClock {
    fn now(&self) -> Timestamp {
        Self::wall()
    }

    fn monotonic(&self) -> Duration {
        self.began.elapsed()
    }

    fn sleep(&self, wait: Duration) -> impl Future<Output = ()> + Send {
        Self::nap(wait)
    }
}

/// Runs a case on a runtime like the command's.
pub(crate) fn real<F: Future>(case: F) -> F::Output {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(2).enable_all().build().unwrap().block_on(case)
}

/// Not a test: the supervisor of every machine here. The fleet appends the machine's directory to
/// the command line, where the harness takes it for the name of a test to skip.
#[test]
fn the_supervisor() {
    let mut arguments = env::args().skip_while(|argument| argument != "--skip");
    let Some(machine) = arguments.nth(1) else { return };
    real(supervise(Path::new(&machine), RealClock::new())).unwrap();
}

/// A fleet's directory; dropping it kills all its processes.
pub(crate) struct TestHost {
    directory: PathBuf,
    _temporary: TempDir,
}

impl TestHost {
    pub(crate) fn new() -> Self {
        let temporary = TempDir::new().unwrap();
        let directory = temporary.path().canonicalize().unwrap().join("machines");
        Self { directory, _temporary: temporary }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn settings(&self, agent: &str) -> FleetSettings {
        settings(&self.directory, agent)
    }

    pub(crate) fn fleet(&self, agent: &str) -> Fleet {
        open(self.settings(agent))
    }

    /// All processes of the fleet's machines.
    pub(crate) fn processes(&self) -> Vec<Identity> {
        let mark = self.directory.to_str().unwrap().to_owned();
        tree::under(&BTreeSet::from([mark])).unwrap()
    }

    fn boot(&self, id: &InstanceId) -> Option<Value> {
        let path = self.directory.join(id.as_str()).join("boot.json");
        Some(serde_json::from_slice(&fs::read(path).ok()?).unwrap())
    }

    /// A machine's supervisor, from `boot.json`.
    pub(crate) fn supervisor(&self, id: &InstanceId) -> Option<Identity> {
        Some(serde_json::from_value(self.boot(id)?["supervisor"].clone()).unwrap())
    }

    /// Why the supervisor has ended its machine, from `boot.json`.
    pub(crate) fn ended(&self, id: &InstanceId) -> Option<String> {
        Some(self.boot(id)?["phase"]["ended"]["by"].as_str()?.to_owned())
    }

    /// The lines of a file in a machine's agent directory.
    pub(crate) fn lines(&self, id: &InstanceId, file: &str) -> Vec<String> {
        let path = self.directory.join(id.as_str()).join("agent").join(file);
        fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
    }
}

impl Drop for TestHost {
    /// Runs also if the test fails.
    fn drop(&mut self) {
        loop {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            for process in left {
                process.kill().unwrap();
            }
        }
    }
}

pub(crate) fn open(settings: FleetSettings) -> Fleet {
    Fleet::open(settings, RealClock::new()).unwrap()
}

pub(crate) fn settings(directory: &Path, agent: &str) -> FleetSettings {
    let exe = env::current_exe().unwrap().into_os_string();
    let select = ["--exact", "support::the_supervisor", "--nocapture", "--skip"];
    FleetSettings {
        directory: directory.to_owned(),
        supervisor: [exe].into_iter().chain(select.map(OsString::from)).collect(),
        agent: ["/bin/sh", "-c", agent, "agent"].map(OsString::from).into(),
        environment: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
        user_data: "the user data of the tests".to_owned(),
        watchdog: Duration::from_secs(600),
        boot_delay: Duration::ZERO,
        capacity: Capacity::default(),
        catalogue: Catalogue::built_in(),
        isolation: None,
        entropy: Entropy::new(|| {
            let mut bytes = [0; 8];
            File::open("/dev/urandom").unwrap().read_exact(&mut bytes).unwrap();
            u64::from_le_bytes(bytes)
        }),
    }
}

pub(crate) fn order(id: &InstanceId, op: &str, until: Timestamp) -> StopOrder {
    StopOrder { id: id.clone(), op: StopOp::new(op), until }
}

/// Polls until the condition is true, for at most a minute.
pub(crate) async fn eventually(what: &str, mut is_true: impl AsyncFnMut() -> bool) {
    const POLLS: u32 = 3_000;
    for _ in 0..POLLS {
        if is_true().await {
            return;
        }
        RealClock::nap(Duration::from_millis(20)).await;
    }
    panic!("not within a minute: {what}");
}

/// Waits until a machine is in this state.
pub(crate) async fn until(fleet: &Fleet, id: &InstanceId, wanted: MachineState) {
    eventually(&format!("{id} is {wanted:?}"), async || state(fleet, id).await == wanted).await;
}

/// A machine's state; gone if the fleet does not list it.
pub(crate) async fn state(fleet: &Fleet, id: &InstanceId) -> MachineState {
    let found = fleet.describe(std::slice::from_ref(id)).await.unwrap().items;
    found.first().map_or(MachineState::Gone, |machine| machine.state)
}

/// Launches a machine and waits until it runs.
pub(crate) async fn running(fleet: &Fleet, intent: &str) -> Machine {
    let machine = fleet.launch(&request(intent, 1)).await.unwrap().machines.remove(0);
    until(fleet, &machine.id, MachineState::Running).await;
    machine
}
