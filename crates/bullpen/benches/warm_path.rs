//! Times a warm request and many requests at once: the built command with real agents and runner
//! programs, against the stand-in GitHub in its own process.
//!
//! `cargo bench -p bullpen --bench warm_path` runs both parts; `-- lone` and `-- many` one of them.
//!
//! Not here: counts of calls (`bullpen_sim`), or pass/fail checks.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use bullpen_core::ports::Clock as _;
use bullpen_embedded::system::SystemClock;
use serde_json::Value;
use tempfile::TempDir;

const BULLPEN: &str = env!("CARGO_BIN_EXE_bullpen");
/// Warm requests, one after another.
const RUNS: usize = 200;
/// Requests at once, machines per request, and warm machines in total.
const REQUESTS: usize = 50;
const MACHINES_EACH: usize = 4;
const WARM_MACHINES: usize = 100;
/// Boots are short because the benchmark does not measure them; one machine may serve every run.
const STACK: &str = r#"
[process-fleet]
boot-delay = "100ms"
capacity = 256

[limits]
uses-max = 100000
"#;

/// A stand-in GitHub and a state directory; the drop removes both.
struct Bench {
    stand_in: Child,
    url: String,
    directory: TempDir,
    clock: SystemClock,
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join("bullpen.toml"), STACK).expect("a file");
        let mut stand_in = Command::new(BULLPEN)
            .args(["stand-in", "--token-file"])
            .arg(directory.path().join("token"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the command runs");
        let mut line = String::new();
        let said = stand_in.stdout.take().expect("stdout is piped");
        BufReader::new(said).read_line(&mut line).expect("the stand-in prints its address");
        let address: Value = serde_json::from_str(&line).expect("the line is JSON");
        let url = address["url"].as_str().expect("an address").to_owned();
        Self { stand_in, url, directory, clock: SystemClock::new() }
    }

    fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(BULLPEN);
        command
            .args(words)
            .arg("--stack")
            .arg(self.directory.path().join("bullpen.toml"))
            .arg("--state")
            .arg(self.state())
            .env("GITHUB_API_URL", &self.url)
            .env("GITHUB_REPOSITORY", "acme/app")
            .env("INPUT_GITHUB_TOKEN_FILE", self.directory.path().join("token"))
            .stdin(Stdio::null());
        command
    }

    /// The command's JSON output, and its time from start to exit.
    fn timed(&self, words: &[&str]) -> (Value, Duration) {
        let began = self.clock.monotonic();
        let output = self.command(words).output().expect("the command runs");
        let took = self.clock.monotonic().saturating_sub(began);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {said}");
        (serde_json::from_slice(&output.stdout).unwrap_or_default(), took)
    }

    fn provision(&self, name: &str, count: usize) -> (Value, Duration) {
        self.timed(&["provision", "--json", "--name", name, "--count", &count.to_string()])
    }

    fn release(&self, name: &str) {
        self.timed(&["release", "--request", &format!("local.1.{name}")]);
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let ended = self.command(&["destroy", "--yes"]).output();
        assert!(ended.is_ok_and(|output| output.status.success()), "machines are left");
        let _ = self.stand_in.kill();
        let _ = self.stand_in.wait();
    }
}

fn main() {
    // cargo adds its own arguments, such as `--bench`.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|it| !it.starts_with('-')).collect();
    let wants = |part: &str| wanted.is_empty() || wanted.iter().any(|word| word == part);
    if wants("lone") {
        lone();
    }
    if wants("many") {
        many();
    }
}

/// One warm machine, provisioned and released in a loop.
fn lone() {
    let bench = Bench::new();
    bench.provision("first", 1);
    bench.release("first");
    let (mut assigned, mut ready, mut total, mut wall) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for run in 0..RUNS {
        let name = format!("run{run}");
        let (json, took) = bench.provision(&name, 1);
        assert_eq!(json["reused"], 1, "{json}");
        assigned.push(number(&json["instances"][0]["assigned_ms"]));
        ready.push(number(&json["instances"][0]["ready_ms"]));
        total.push(number(&json["timings"]["total_ms"]));
        wall.push(took.as_secs_f64() * 1_000.0);
        bench.release(&name);
    }
    println!("{RUNS} requests for one warm machine, in ms:");
    line("to assignment", assigned);
    line("to listening", ready);
    line("request", total);
    line("command", wall);
}

/// Many requests at once; together they want more machines than are warm.
fn many() {
    let bench = Bench::new();
    bench.provision("first", WARM_MACHINES);
    bench.release("first");
    let count = MACHINES_EACH.to_string();
    let start = |number: usize| {
        let name = format!("many{number}");
        let words = ["provision", "--json", "--name", &name, "--count", &count];
        let mut command = bench.command(&words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs")
    };
    let began = bench.clock.monotonic();
    let children: Vec<Child> = (0..REQUESTS).map(start).collect();
    let outputs: Vec<Output> =
        children.into_iter().map(|child| child.wait_with_output().expect("our child")).collect();
    let took = bench.clock.monotonic().saturating_sub(began);
    let succeeded = outputs.iter().filter(|output| output.status.success()).count();
    let results: Vec<Value> =
        outputs.iter().filter_map(|it| serde_json::from_slice(&it.stdout).ok()).collect();
    let sum = |field: &str| results.iter().map(|it| number(&it[field])).sum::<f64>();
    let said = outputs.iter().map(|output| String::from_utf8_lossy(&output.stderr));
    let unused = said.map(|said| said.matches(" is not used: ").count()).sum::<usize>();
    println!(
        "{REQUESTS} requests for {MACHINES_EACH} machines each at once, {WARM_MACHINES} warm: {succeeded} \
         fulfilled, {} reused, {} created, {unused} failed their checks, {:.1} s",
        sum("reused"),
        sum("created"),
        took.as_secs_f64()
    );
    for output in outputs.iter().filter(|output| !output.status.success()) {
        println!(
            "  {}",
            String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default()
        );
    }
    let machines: Vec<&Value> =
        results.iter().filter_map(|it| it["instances"].as_array()).flatten().collect();
    let of = |how: &str, field: &str| {
        machines.iter().filter(|it| it["how"] == how).map(|it| number(&it[field])).collect()
    };
    line("reused, to assignment", of("reused", "assigned_ms"));
    line("reused, to listening", of("reused", "ready_ms"));
    line("created, to listening", of("created", "ready_ms"));
    line("request", results.iter().map(|it| number(&it["timings"]["total_ms"])).collect());
    let (verified, _) = bench.timed(&["ledger", "verify", "--json"]);
    println!(
        "ledger verify: {} records, violations {}",
        verified["records"], verified["violations"]
    );
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is not a number"))
}

fn line(what: &str, mut times: Vec<f64>) {
    times.sort_by(f64::total_cmp);
    let at = |percent: usize| times.get((times.len() * percent / 100).min(times.len().max(1) - 1));
    let [p50, p95, max] = [50, 95, 100].map(|percent| at(percent).copied().unwrap_or(f64::NAN));
    println!("  {what:<22} p50 {p50:8.1}  p95 {p95:8.1}  max {max:8.1}  ({})", times.len());
}
