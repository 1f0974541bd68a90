//! ministack as the tests use it: one server for the whole process, an account for every world.
//!
//! Not here: any contract, or installing ministack (`cargo xtask tools`).

use std::future::Future;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aws_config::Region;
use aws_config::timeout::TimeoutConfig;
use aws_credential_types::Credentials;
use bullpen_aws::{SdkConfig, config};
use bullpen_core::time::Timestamp;
use tempfile::TempDir;

use crate::wire::Wire;

/// The version that the suites are known to pass on.
const INSTALLED: &str = "bullpen/tools/ministack-1.5.33/bin/ministack";

/// Accounts below this are numbered by who uses them.
const NUMBERED_MAX: u64 = 1_000;

/// The one server of this process. It ends when the process does, because its input ends then.
struct Server {
    address: SocketAddr,
    clocks: TempDir,
    _process: Child,
}

fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(Server::start)
}

#[expect(clippy::disallowed_methods, reason = "a test finds its tools by the environment")]
fn environment(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from)
}

/// The Python that ministack is installed for: beside it, where we are told that it is or where
/// `cargo xtask tools` puts it.
fn python() -> PathBuf {
    let cache = environment("XDG_CACHE_HOME")
        .or_else(|| environment("HOME").map(|home| home.join(".cache")))
        .unwrap_or_default();
    let program = environment("BULLPEN_MINISTACK").unwrap_or_else(|| cache.join(INSTALLED));
    let python = program.with_file_name("python3");
    assert!(
        program.is_file() && python.is_file(),
        "ministack is not installed at {}: run `cargo xtask tools`, or set BULLPEN_MINISTACK",
        program.display()
    );
    python
}

impl Server {
    fn start() -> Self {
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/contract/ministack_by_hand.py");
        let clocks = tempfile::tempdir().expect("the system has room for temporary files");
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let address = port.expect("loopback has a free port");
        let mut process = Command::new(python())
            .arg(script)
            .env("BIND_HOST", "127.0.0.1")
            .env("GATEWAY_PORT", address.port().to_string())
            .env("LOG_LEVEL", "ERROR")
            .env("BULLPEN_CLOCKS", clocks.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("the program is there");
        wait_for(address, &mut process);
        Self { address, clocks, _process: process }
    }
}

fn wait_for(address: SocketAddr, process: &mut Child) {
    const LOOKS_MAX: u32 = 600;
    for _ in 0..LOOKS_MAX {
        if TcpStream::connect(address).is_ok() {
            return;
        }
        let ended = process.try_wait().expect("it is our child");
        assert!(ended.is_none(), "ministack ended by itself: {ended:?}");
        #[expect(clippy::disallowed_methods, reason = "a process starts on real time")]
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("ministack does not answer at {address}");
}

/// What a world is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    Tables,
    Queues,
}

/// An account of its own in the emulator.
pub(crate) struct Account {
    id: String,
    endpoint: String,
    another: SdkConfig,
}

impl Account {
    /// A new one, with nothing in it, reached at this endpoint.
    pub(crate) async fn new(endpoint: String) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(NUMBERED_MAX);
        Self::numbered(endpoint, LAST.fetch_add(1, Ordering::Relaxed)).await
    }

    /// The one of this number, the same in every run: what befalls calls depends on their account.
    pub(crate) async fn numbered(endpoint: String, number: u64) -> Self {
        // Twelve digits, and not those of another process, should the server be another's.
        let process = if others().is_some() { std::process::id() } else { 0 };
        let id = (100_000_000_000 + u64::from(process) * 10_000 + number).to_string();
        let another = configured(&id, &endpoint, Some(Wire::default())).await;
        Self { id, endpoint, another }
    }

    /// What the configuration of another process would be.
    pub(crate) fn another(&self) -> &SdkConfig {
        &self.another
    }

    /// This account, through a wire of ours or as everyone else would use it.
    pub(crate) async fn config(&self, wire: Option<Wire>) -> SdkConfig {
        configured(&self.id, &self.endpoint, wire).await
    }

    /// The time of this account's queues.
    pub(crate) fn set_time(&self, now: Timestamp) {
        // In one step: a reader must never see half of it.
        let (path, next) = (server().clocks.path().join(&self.id), format!("{}.next", self.id));
        let next = server().clocks.path().join(next);
        let (seconds, millis) = (now.as_millis() / 1_000, now.as_millis() % 1_000);
        std::fs::write(&next, format!("{seconds}.{millis:03}")).expect("the directory is ours");
        std::fs::rename(next, path).expect("the directory is ours");
    }
}

/// Where the tables are: in ministack, or in a DynamoDB Local that somebody runs for a second
/// opinion. Both keep accounts apart by the access key.
pub(crate) fn endpoint(service: Service) -> String {
    let other = others().filter(|_| service == Service::Tables);
    other.unwrap_or_else(|| format!("http://{}", server().address))
}

fn others() -> Option<String> {
    environment("BULLPEN_TEST_DYNAMODB_LOCAL").map(|endpoint| endpoint.display().to_string())
}

/// The seed of the faults, where somebody wants another.
pub(crate) fn seed() -> Option<u64> {
    environment("BULLPEN_TEST_SEED").and_then(|seed| seed.to_str()?.parse().ok())
}

async fn configured(id: &str, endpoint: &str, wire: Option<Wire>) -> SdkConfig {
    /// A busy machine makes an emulator slow, and slow is not what these tests are about.
    const PATIENCE: Duration = Duration::from_secs(60);
    let credentials = Credentials::new(id, "not a secret", None, None, "tests");
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(PATIENCE)
        .operation_attempt_timeout(PATIENCE)
        .operation_timeout(PATIENCE);
    let loader = config::loader()
        .timeout_config(timeouts.build())
        .endpoint_url(endpoint)
        .region(Region::new("eu-west-1"))
        .credentials_provider(credentials);
    match wire {
        Some(wire) => loader.http_client(wire.client()),
        None => loader,
    }
    .load()
    .await
}

/// Runs a case on real threads.
pub(crate) fn real<F: Future>(case: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("the system has room for two threads");
    runtime.block_on(case)
}
