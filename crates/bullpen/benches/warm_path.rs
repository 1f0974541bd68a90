//! How long a warm request takes, by the built command with real agents and runner programs, and what
//! becomes of many requests at once. The GitHub is the stand-in, in a process of its own.
//!
//! `cargo bench -p bullpen --bench warm_path` runs both parts; `-- lone` and `-- crowd` one of them.
//!
//! Not here: counts of calls (`bullpen_sim`), or anything that decides whether a tree is good.

#![expect(clippy::print_stdout, reason = "figures are what a benchmark is for")]

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
/// Requests at once, what each wants, and what is warm for them.
const CROWD: usize = 50;
const CROWD_COUNT: usize = 4;
const CROWD_WARM: usize = 100;
/// No boot is waited for that nobody measures, and one machine serves all of a benchmark.
const STACK: &str = r#"
[process-fleet]
boot-delay = "100ms"
capacity = 256

[limits]
uses-max = 100000
"#;

/// A stand-in GitHub and a state; both gone at the end.
struct Stage {
    stand_in: Child,
    url: String,
    directory: TempDir,
    clock: SystemClock,
}

impl Stage {
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
        let said = stand_in.stdout.take().expect("it was asked for");
        BufReader::new(said).read_line(&mut line).expect("it says where it is");
        let told: Value = serde_json::from_str(&line).expect("it is JSON");
        let url = told["url"].as_str().expect("an address").to_owned();
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

    /// What it told, and how long it took from its start to its end.
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

impl Drop for Stage {
    fn drop(&mut self) {
        let ended = self.command(&["destroy", "--yes"]).output();
        assert!(ended.is_ok_and(|output| output.status.success()), "machines are left");
        let _ = self.stand_in.kill();
        let _ = self.stand_in.wait();
    }
}

fn main() {
    // cargo adds words of its own, such as `--bench`.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|it| !it.starts_with('-')).collect();
    let wants = |part: &str| wanted.is_empty() || wanted.iter().any(|word| word == part);
    if wants("lone") {
        lone();
    }
    if wants("crowd") {
        crowd();
    }
}

/// One warm machine, taken and given back again and again.
fn lone() {
    let stage = Stage::new();
    stage.provision("first", 1);
    stage.release("first");
    let (mut assigned, mut ready, mut total, mut wall) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for run in 0..RUNS {
        let name = format!("run{run}");
        let (told, took) = stage.provision(&name, 1);
        assert_eq!(told["reused"], 1, "{told}");
        assigned.push(number(&told["instances"][0]["assigned_ms"]));
        ready.push(number(&told["instances"][0]["ready_ms"]));
        total.push(number(&told["timings"]["total_ms"]));
        wall.push(took.as_secs_f64() * 1_000.0);
        stage.release(&name);
    }
    println!("{RUNS} requests for one warm machine, in ms:");
    line("to assignment", assigned);
    line("to listening", ready);
    line("request", total);
    line("command", wall);
}

/// Many requests at once for more machines than are warm.
fn crowd() {
    let stage = Stage::new();
    stage.provision("first", CROWD_WARM);
    stage.release("first");
    let count = CROWD_COUNT.to_string();
    let start = |number: usize| {
        let name = format!("crowd{number}");
        let words = ["provision", "--json", "--name", &name, "--count", &count];
        let mut command = stage.command(&words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs")
    };
    let began = stage.clock.monotonic();
    let children: Vec<Child> = (0..CROWD).map(start).collect();
    let outputs: Vec<Output> =
        children.into_iter().map(|child| child.wait_with_output().expect("our child")).collect();
    let took = stage.clock.monotonic().saturating_sub(began);
    let succeeded = outputs.iter().filter(|output| output.status.success()).count();
    let told: Vec<Value> =
        outputs.iter().filter_map(|it| serde_json::from_slice(&it.stdout).ok()).collect();
    let sum = |field: &str| told.iter().map(|it| number(&it[field])).sum::<f64>();
    let said = outputs.iter().map(|output| String::from_utf8_lossy(&output.stderr));
    let unused = said.map(|said| said.matches(" is not used: ").count()).sum::<usize>();
    println!(
        "{CROWD} requests for {CROWD_COUNT} machines each at once, {CROWD_WARM} warm: {succeeded} \
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
        told.iter().filter_map(|it| it["instances"].as_array()).flatten().collect();
    let of = |how: &str, field: &str| {
        machines.iter().filter(|it| it["how"] == how).map(|it| number(&it[field])).collect()
    };
    line("reused, to assignment", of("reused", "assigned_ms"));
    line("reused, to listening", of("reused", "ready_ms"));
    line("created, to listening", of("created", "ready_ms"));
    line("request", told.iter().map(|it| number(&it["timings"]["total_ms"])).collect());
    let (verified, _) = stage.timed(&["ledger", "verify", "--json"]);
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
