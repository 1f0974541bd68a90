//! The highest rate of webhooks that `bullpen serve` answers with 99 of 100 within 100 ms: for jobs that
//! are not ours (read and dropped) and for our jobs (stored before the answer). The sender shares the
//! machine with the service, and sends on schedule even if earlier answers are late.
//!
//! `cargo bench -p bullpen --bench webhooks`
//!
//! Not here: serving the jobs (no worker runs), or whether rows are durable (`tests/service/flood.rs`).

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bullpen_core::mailbox::Secret;
use bullpen_core::ports::Clock as _;
use bullpen_embedded::system::SystemClock;
use bullpen_github::webhook::sign;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;

const BULLPEN: &str = env!("CARGO_BIN_EXE_bullpen");
const SECRET: &str = "of a benchmark";
/// The time within which 99 of 100 answers must arrive.
const WITHIN_MS: f64 = 100.0;
/// The first rate; the search doubles it until the service fails, then bisects.
const SLOWEST: u64 = 125;
const HALVINGS: u32 = 3;
/// How long each rate lasts.
const LASTS: Duration = Duration::from_secs(4);
/// Connections that stay open, because GitHub has many senders.
const CONNECTIONS: usize = 64;
/// About the size of GitHub's own examples of this event.
const BODY_BYTES: usize = 10_000;
const CONFIG: &str = "runners:\n  small: {cpu: 2, ram: 4}\n";

/// The two kinds of jobs.
#[derive(Clone, Copy)]
enum Kind {
    Theirs,
    Ours,
}

impl Kind {
    const ALL: [Self; 2] = [Self::Theirs, Self::Ours];

    const fn label(self) -> &'static str {
        match self {
            Self::Theirs => "ubuntu-latest",
            Self::Ours => "bullpen/runner=small",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Theirs => "not ours",
            Self::Ours => "ours",
        }
    }
}

/// A process that the drop kills.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a process and reads its first line.
fn start(command: &mut Command) -> (KilledOnDrop, String) {
    let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = started.expect("the command runs");
    let said = child.stdout.take().expect("stdout is piped");
    let mut line = String::new();
    BufReader::new(said).read_line(&mut line).expect("the process prints its address");
    (KilledOnDrop(child), line.trim().to_owned())
}

fn serve(directory: &TempDir, github: &str) -> (KilledOnDrop, SocketAddr) {
    let path = |name: &str| directory.path().join(name);
    fs::write(path("runs-on.yml"), CONFIG).expect("a file");
    let mut command = Command::new(BULLPEN);
    command
        .args(["serve", "--roles", "webhook", "--webhook", "127.0.0.1:0"])
        .args(["--admin", "127.0.0.1:0", "--repository", "acme/app", "--api-url", github])
        .arg("--config")
        .arg(path("runs-on.yml"))
        .arg("--state")
        .arg(path("state"))
        .env("INPUT_GITHUB_TOKEN", "ghp_of_a_benchmark")
        .env("BULLPEN_WEBHOOK_SECRET", SECRET);
    let (service, line) = start(&mut command);
    let addresses: Value = serde_json::from_str(&line).expect("one line of JSON");
    let url = addresses["webhook"].as_str().expect("the role is webhook");
    let address = url.strip_prefix("http://").and_then(|rest| rest.split('/').next());
    (service, address.and_then(|text| text.parse().ok()).expect("an address"))
}

/// One webhook as it goes over the wire.
fn request(kind: Kind, job: u64) -> Vec<u8> {
    let mut body = json!({
        "action": "queued",
        "workflow_job": {
            "id": job, "run_id": job, "run_attempt": 1, "name": "build", "status": "queued",
            "conclusion": null, "labels": [kind.label()], "head_sha": "0a1b2c", "runner_id": null,
            "runner_name": null, "created_at": null, "started_at": null, "completed_at": null,
        },
        "repository": {"full_name": "acme/app", "default_branch": "main"},
        "sender": {},
    });
    let missing = BODY_BYTES.saturating_sub(body.to_string().len());
    body["sender"] = json!({"login": "x".repeat(missing)});
    let body = body.to_string();
    let signature = sign(&Secret::new(SECRET), body.as_bytes());
    let head = format!(
        "POST /webhook HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         x-github-event: workflow_job\r\nx-hub-signature-256: {signature}\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    [head.into_bytes(), body.into_bytes()].concat()
}

/// Sends a request and reads the head of a `204`, which has no body.
async fn exchange(stream: &TcpStream, request: &[u8]) -> io::Result<()> {
    let mut left = request;
    while !left.is_empty() {
        stream.writable().await?;
        match stream.try_write(left) {
            Ok(count) => left = &left[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    let (mut answer, mut part) = (Vec::new(), [0; 1024]);
    while !answer.ends_with(b"\r\n\r\n") {
        stream.readable().await?;
        match stream.try_read(&mut part) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => answer.extend_from_slice(&part[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    let text = String::from_utf8_lossy(&answer).into_owned();
    if text.starts_with("HTTP/1.1 204 ") { Ok(()) } else { Err(io::Error::other(text)) }
}

/// What one rate measured.
struct Measured {
    rate: u64,
    sent: usize,
    p50: f64,
    p99: f64,
}

impl Measured {
    fn is_good(&self) -> bool {
        self.p99 < WITHIN_MS
    }

    fn line(&self, kind: Kind) -> String {
        let Self { rate, sent, p50, p99 } = self;
        let name = kind.name();
        format!("  {name:<10} {rate:>6}/s  p50 {p50:8.1} ms  p99 {p99:8.1} ms  ({sent} sent)")
    }
}

/// Sends webhooks at one rate.
async fn at_rate(address: SocketAddr, kind: Kind, rate: u64, first: u64) -> Measured {
    let count = rate * LASTS.as_secs();
    let requests: Vec<Vec<u8>> = (0..count).map(|number| request(kind, first + number)).collect();
    let clock = SystemClock::new();
    let sender = |connection: usize| {
        let (requests, clock) = (&requests, &clock);
        async move {
            let stream = TcpStream::connect(address).await.expect("the service listens");
            stream.set_nodelay(true).expect("a TCP socket");
            let mut took = Vec::new();
            for (number, request) in
                requests.iter().enumerate().skip(connection).step_by(CONNECTIONS)
            {
                let due = Duration::from_secs(1) * u32::try_from(number).expect("a few")
                    / u32::try_from(rate).expect("a few");
                clock.sleep(due.saturating_sub(clock.monotonic())).await;
                exchange(&stream, request).await.expect("the service answers 204");
                took.push(clock.monotonic().saturating_sub(due).as_secs_f64() * 1_000.0);
            }
            took
        }
    };
    let mut took: Vec<f64> = join_all((0..CONNECTIONS).map(sender)).await.concat();
    took.sort_by(f64::total_cmp);
    let at = |percent: usize| took[(took.len() * percent / 100).min(took.len() - 1)];
    Measured { rate, sent: took.len(), p50: at(50), p99: at(99) }
}

/// The highest good rate and the lowest bad rate of one kind.
struct Edge {
    good: Option<Measured>,
    bad: Option<u64>,
    halvings: u32,
}

impl Edge {
    /// The rate to try next, until the search is done.
    fn next(&self) -> Option<u64> {
        let good = self.good.as_ref().map(|measured| measured.rate);
        match (good, self.bad) {
            (None, None) => Some(SLOWEST),
            (Some(good), None) => Some(good * 2),
            (Some(good), Some(bad)) if self.halvings < HALVINGS => Some(good.midpoint(bad)),
            (_, Some(_)) => None,
        }
    }

    fn learn(&mut self, measured: Measured) {
        self.halvings += u32::from(self.bad.is_some());
        if measured.is_good() {
            self.good = Some(measured);
        } else {
            self.bad = Some(measured.rate);
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let (_github, url) = start(Command::new(BULLPEN).arg("stand-in"));
    let directory = tempfile::tempdir().expect("a directory");
    let (_service, address) = serve(&directory, &url);
    let mut edges = Kind::ALL.map(|_| Edge { good: None, bad: None, halvings: 0 });
    let mut job = 1;
    println!("webhooks of {BODY_BYTES} bytes on {CONNECTIONS} connections:");
    while edges.iter().any(|edge| edge.next().is_some()) {
        for (kind, edge) in Kind::ALL.into_iter().zip(&mut edges) {
            let Some(rate) = edge.next() else { continue };
            let measured = at_rate(address, kind, rate, job).await;
            job += rate * LASTS.as_secs();
            println!("{}", measured.line(kind));
            edge.learn(measured);
        }
    }
    println!("the highest rates with p99 under {WITHIN_MS} ms:");
    for (kind, edge) in Kind::ALL.into_iter().zip(edges) {
        match edge.good {
            Some(measured) => println!("{}", measured.line(kind)),
            None => println!("  {:<10} none", kind.name()),
        }
    }
}
