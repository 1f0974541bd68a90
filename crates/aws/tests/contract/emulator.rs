//! ministack for the tests: one server for the whole process, an account for every world.
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

/// The version on which the suites pass.
const INSTALLED: &str = "bullpen/tools/ministack-1.5.33/bin/ministack";

/// Tests choose the numbers of accounts below this.
const NUMBERED_MAX: u64 = 1_000;

/// The server of this process. It ends when the process does, which closes its input.
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

/// The Python beside ministack, which `BULLPEN_MINISTACK` names or `cargo xtask tools` has
/// installed.
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
        let clocks = tempfile::tempdir().expect("a temporary directory");
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
            .expect("the program starts");
        wait_for(address, &mut process);
        Self { address, clocks, _process: process }
    }
}

fn wait_for(address: SocketAddr, process: &mut Child) {
    const TRIES_MAX: u32 = 600;
    for _ in 0..TRIES_MAX {
        if TcpStream::connect(address).is_ok() {
            return;
        }
        let ended = process.try_wait().expect("a child process");
        assert!(ended.is_none(), "ministack ended by itself: {ended:?}");
        #[expect(clippy::disallowed_methods, reason = "a process starts on real time")]
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("ministack does not answer at {address}");
}

/// The service that a test uses.
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
    /// A new, empty account at this endpoint.
    pub(crate) async fn new(endpoint: String) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(NUMBERED_MAX);
        Self::numbered(endpoint, LAST.fetch_add(1, Ordering::Relaxed)).await
    }

    /// The account of this number, the same in every run: the faults of calls depend on the
    /// account.
    pub(crate) async fn numbered(endpoint: String, number: u64) -> Self {
        // Twelve digits; with the process id if the server is shared with other processes.
        let process = if shared_server().is_some() { std::process::id() } else { 0 };
        let id = (100_000_000_000 + u64::from(process) * 10_000 + number).to_string();
        let another = configured(&id, &endpoint, Some(Wire::default())).await;
        Self { id, endpoint, another }
    }

    /// The configuration of another process.
    pub(crate) fn another(&self) -> &SdkConfig {
        &self.another
    }

    /// A configuration for this account, through a wire of the test or without one.
    pub(crate) async fn config(&self, wire: Option<Wire>) -> SdkConfig {
        configured(&self.id, &self.endpoint, wire).await
    }

    /// Sets the time of this account's queues.
    pub(crate) fn set_time(&self, now: Timestamp) {
        // Renamed into place, so that a reader never sees half of it.
        let (path, next) = (server().clocks.path().join(&self.id), format!("{}.next", self.id));
        let next = server().clocks.path().join(next);
        let (seconds, millis) = (now.as_millis() / 1_000, now.as_millis() % 1_000);
        std::fs::write(&next, format!("{seconds}.{millis:03}")).expect("the directory is ours");
        std::fs::rename(next, path).expect("the directory is ours");
    }
}

/// The endpoint of a service: ministack, or for tables a DynamoDB Local that a developer runs for a
/// second opinion. Both separate accounts by the access key.
pub(crate) fn endpoint(service: Service) -> String {
    let shared = shared_server().filter(|_| service == Service::Tables);
    shared.unwrap_or_else(|| format!("http://{}", server().address))
}

fn shared_server() -> Option<String> {
    environment("BULLPEN_TEST_DYNAMODB_LOCAL").map(|endpoint| endpoint.display().to_string())
}

/// The seed of the faults, if a developer sets one.
pub(crate) fn seed() -> Option<u64> {
    environment("BULLPEN_TEST_SEED").and_then(|seed| seed.to_str()?.parse().ok())
}

async fn configured(id: &str, endpoint: &str, wire: Option<Wire>) -> SdkConfig {
    /// Long, because a busy machine makes an emulator slow, and these tests do not measure time.
    const CALL_TIMEOUT: Duration = Duration::from_secs(60);
    let credentials = Credentials::new(id, "not a secret", None, None, "tests");
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(CALL_TIMEOUT)
        .operation_attempt_timeout(CALL_TIMEOUT)
        .operation_timeout(CALL_TIMEOUT);
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

/// Runs a case on a runtime with real threads.
pub(crate) fn block_on<F: Future>(case: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("two threads");
    runtime.block_on(case)
}
