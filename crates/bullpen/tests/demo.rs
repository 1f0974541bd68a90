//! `bullpen demo`, as a user at a terminal runs it: its output, `explain` while it runs, and that
//! it leaves nothing behind, at its end and after an interruption.
//!
//! Not here: durations.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use bullpen_core::ports::Clock as _;
use bullpen_embedded::system::SystemClock;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(120);

/// A running demo, with its temporary files and its output in the test's directory.
struct Demo {
    child: Child,
    directory: TempDir,
}

impl Demo {
    /// The other variables would mislead any other command.
    fn start(arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let file = |name: &str| File::create(directory.path().join(name)).expect("a file");
        let temporary = directory.path().join("t");
        fs::create_dir(&temporary).expect("a directory");
        let path = std::env::vars_os().find(|(name, _)| name == "PATH").expect("a PATH").1;
        let child = Command::new(env!("CARGO_BIN_EXE_bullpen"))
            .arg("demo")
            .args(arguments)
            .env_clear()
            .env("PATH", path)
            .env("TMPDIR", &temporary)
            .envs([
                ("GITHUB_API_URL", "http://127.0.0.1:9"),
                ("GITHUB_REPOSITORY", "not/a/repository"),
                ("GITHUB_TOKEN", "ghs_of_a_workflow"),
                ("GITHUB_ACTIONS", "true"),
                ("INPUT_STATE", "/no/such/directory"),
                ("INPUT_INSTANCE_COUNT", "many"),
                ("BULLPEN_STATE", "/no/such/directory"),
                ("BULLPEN_PROCESS_FLEET__BOOT_DELAY", "1h"),
            ])
            .stdin(Stdio::null())
            .stdout(file("stdout"))
            .stderr(file("stderr"))
            .spawn()
            .expect("the command runs");
        Self { child, directory }
    }

    fn said(&self, name: &str) -> String {
        fs::read_to_string(self.directory.path().join(name)).unwrap_or_default()
    }

    /// Waits until its output has these words.
    async fn says(&mut self, words: &str) {
        until(words, async || self.said("stderr").contains(words).then_some(())).await;
    }

    async fn ends(&mut self) -> ExitStatus {
        until("end", async || self.child.try_wait().expect("it is our child")).await
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).expect("process ids are small");
        kill_process(Pid::from_raw(pid).expect("it is not zero"), signal).expect("it is our child");
    }

    /// Runs `explain` in the state directory that the demo named.
    fn explain(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let talk = self.said("stderr");
        let (_, rest) = talk.rsplit_once("--state ").expect("it names its state");
        let state = rest.split_whitespace().next().expect("a path");
        let answer = Command::new(env!("CARGO_BIN_EXE_bullpen"))
            .arg("explain")
            .args(arguments)
            .args(["--state", state])
            .env_clear()
            .output()
            .expect("the command runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (answer.status.code(), text(&answer.stdout), text(&answer.stderr))
    }

    /// Asserts that neither a file nor a process is left.
    fn leaves_nothing(&self) {
        let left: Vec<_> =
            fs::read_dir(self.directory.path().join("t")).expect("a directory").collect();
        assert!(left.is_empty(), "{left:?}");
        let left = processes_with(self.directory.path());
        assert!(left.is_empty(), "{left:?}");
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // After a failed test: the demo cleans up on this signal.
        if let Ok(None) = self.child.try_wait() {
            self.signal(Signal::TERM);
            let _ = self.child.wait();
        }
    }
}

async fn until<T>(what: &str, mut find: impl AsyncFnMut() -> Option<T>) -> T {
    let clock = SystemClock::new();
    while clock.monotonic() < PATIENCE {
        if let Some(found) = find().await {
            return found;
        }
        clock.sleep(Duration::from_millis(5)).await;
    }
    panic!("no {what:?} within {PATIENCE:?}");
}

/// Every process that names the directory in its command line or its environment, as all processes
/// of the demo do, because their machines are in it.
fn processes_with(directory: &Path) -> Vec<String> {
    let name = directory.to_str().expect("it is text");
    let processes = fs::read_dir("/proc").expect("this is Linux").flatten();
    let words = processes.filter_map(|process| {
        // A process may end meanwhile.
        let read = |file| fs::read(process.path().join(file)).unwrap_or_default();
        let words =
            String::from_utf8_lossy(&[read("cmdline"), read("environ")].concat()).into_owned();
        words.contains(name).then_some(words)
    });
    words.collect()
}

#[tokio::test]
async fn it_shows_a_service_with_twenty_jobs_and_leaves_nothing() {
    let mut demo = Demo::start(&[]);
    let status = demo.ends().await;
    let (table, talk) = (demo.said("stdout"), demo.said("stderr"));
    assert_eq!(status.code(), Some(0), "{table}\n{talk}");
    demo.leaves_nothing();
    let counts: Vec<Vec<&str>> =
        table.lines().map(|line| line.split_whitespace().take(2).collect()).collect();
    assert!(counts.contains(&vec!["taken", "1"]), "{table}");
    assert!(counts.iter().any(|line| line.starts_with(&["hot"])), "{table}");
    assert!(counts.iter().any(|line| line.starts_with(&["started"])), "{table}");
    for line in [
        "A new machine pretends to boot for 2 s",
        "refused, as its author was told: no runner after ",
        "there is no pool `cii`; did you mean ci?",
        "The pools were full after ",
        "ci 2 hot",
        "nightly 2 stopped",
        "20 jobs, ",
        ", 0 violations; ",
        "The slowest, as `bullpen explain` tells it: job ",
        // A launched machine, or a stopped one.
        "machine to start",
    ] {
        assert!(table.contains(line), "{line}: {table}");
    }
    for line in [
        "ci         2 warming-up",
        "  target    0 hot, 2 stopped (entry \"always\")",
        "burst 2, warm",
        "warm 1     runs on",
        "warm 1     waited ",
        "cancelled after ",
        "the pools are refilled",
    ] {
        assert!(talk.contains(line), "{line}: {talk}");
    }
    assert!(!talk.contains('\u{1b}'), "a file is no terminal: {talk}");
}

#[tokio::test]
async fn it_tells_the_service_as_json_and_can_be_asked_while_it_is_kept() {
    let mut demo = Demo::start(&["--keep", "--json"]);
    demo.says("Ctrl-C ends it").await;
    let told: Value = serde_json::from_str(&demo.said("stdout")).expect("JSON");
    let jobs = told["jobs"].as_array().expect("a list");
    let tiers = |burst: u64, name: &str| {
        let of_burst = jobs.iter().filter(|job| job["burst"] == json!(burst));
        of_burst.filter(|job| job["tier"] == json!(name)).count()
    };
    assert_eq!((jobs.len(), tiers(1, "created"), tiers(2, "reused")), (20, 3, 3), "{told}");
    assert!(tiers(3, "hot") >= 2 && tiers(3, "started") >= 2, "{told}");
    let has = |pool: usize, kind: &str| told["pools"][pool]["machines"][kind].as_u64();
    assert_eq!((has(0, "hot"), has(1, "stopped")), (Some(2), Some(2)), "{told}");
    assert_eq!((&told["violations"], &told["wrong"]), (&json!([]), &json!([])));
    assert_eq!(told["pretended_boot_ms"], json!(2_000));
    every_job_is_explained(&demo, &told);
    unknown_jobs_are_reported(&demo);
    demo.signal(Signal::INT);
    assert_eq!(demo.ends().await.code(), Some(0), "{}", demo.said("stderr"));
    demo.leaves_nothing();
}

fn every_job_is_explained(demo: &Demo, told: &Value) {
    let id = told["jobs"][0]["id"].to_string();
    let (code, page, _) = demo.explain(&[&id]);
    assert!(code == Some(0) && page.starts_with(&format!("job {id}  cold 1  acme/app")), "{page}");
    for code in ["queued", "heard", "routed", "launched", "warm", "listens", "began", "released"] {
        assert!(page.contains(&format!("  {code} ")), "{code}: {page}");
    }
    let slowest = &told["slowest"];
    let id = slowest["job"].as_str().expect("an id");
    let address = format!("https://github.com/acme/app/actions/runs/1/job/{id}?pr=1");
    let (code, answer, _) = demo.explain(&[&address, "--json"]);
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    assert_eq!((code, &answer["verdict"]), (Some(0), &slowest["verdict"]));
    let parts = answer["parts"].as_array().expect("a list").iter();
    let sum: u64 = parts.filter_map(|part| part["ms"].as_u64()).sum();
    assert_eq!(answer["waited_ms"], json!(sum));
}

fn unknown_jobs_are_reported(demo: &Demo) {
    let (code, _, why) = demo.explain(&["999999999"]);
    assert_eq!(code, Some(1), "{why}");
    assert!(why.contains("no job 999999999 in this ledger") && why.contains("hint: "), "{why}");
    let (code, _, why) = demo.explain(&["https://github.com/acme/app/actions/runs/77"]);
    assert_eq!(code, Some(64), "{why}");
    assert!(why.contains("that is a run"), "{why}");
}

#[tokio::test]
async fn the_workflow_shows_three_runs_and_leaves_nothing() {
    let mut demo = Demo::start(&["--workflow"]);
    let status = demo.ends().await;
    let (table, talk) = (demo.said("stdout"), demo.said("stderr"));
    assert_eq!(status.code(), Some(0), "{table}\n{talk}");
    demo.leaves_nothing();
    let rows: Vec<Vec<&str>> =
        table.lines().skip(1).take(4).map(|line| line.split_whitespace().collect()).collect();
    for (row, starts, ends) in [
        (&rows[0], ["cold", "1.1.build", "4", "on-demand", "0", "0", "4"], "4/4"),
        (&rows[1], ["warm", "2.1.build", "4", "on-demand", "4", "0", "0"], "4/4"),
        (&rows[2], ["mixed", "3.1.build", "4", "on-demand", "4", "0", "0"], "4/4"),
        (&rows[3], ["mixed", "3.1.spot", "2", "spot", "0", "0", "2"], "2/2"),
    ] {
        assert!(row.starts_with(&starts) && row.ends_with(&[ends]), "{table}");
    }
    assert!(table.contains("A new machine pretends to boot for 2 s"), "{table}");
    assert!(table.contains("Warm to cold, until all listen: 1 : "), "{table}");
    assert!(table.contains("ledger verify: 6 records, 0 violations. 6 machines"), "{table}");
    for line in
        ["run 2, warm", "listens (4 of 4)", "job 1 runs on", "is over: success", "is idle again"]
    {
        assert!(talk.contains(line), "{line}: {talk}");
    }
    assert!(!talk.contains('\u{1b}'), "a file is no terminal: {talk}");
}

#[tokio::test]
async fn the_workflow_tells_the_same_as_json() {
    let mut demo = Demo::start(&["--workflow", "--json"]);
    let status = demo.ends().await;
    assert_eq!(status.code(), Some(0), "{}", demo.said("stderr"));
    demo.leaves_nothing();
    let told: Value = serde_json::from_str(&demo.said("stdout")).expect("JSON");
    let requests = told["requests"].as_array().expect("a list");
    let counts: Vec<Value> = requests
        .iter()
        .map(|row| json!([row["request"], row["reused"], row["created"], row["jobs_done"]]))
        .collect();
    let expected = [
        json!(["1.1.build", 0, 4, 4]),
        json!(["2.1.build", 4, 0, 4]),
        json!(["3.1.build", 4, 0, 4]),
        json!(["3.1.spot", 0, 2, 2]),
    ];
    assert_eq!(counts, expected);
    assert_eq!((&told["violations"], &told["wrong"]), (&json!([]), &json!([])));
    assert_eq!(told["pretended_boot_ms"], json!(2_000.0));
}

#[tokio::test]
async fn an_interrupted_one_leaves_nothing() {
    for (arguments, at, signal, code) in [
        (&["--workflow"][..], "launching 4", Signal::INT, 130),
        (&["--workflow"], "job 2 runs on", Signal::INT, 130),
        (&["--workflow"], "3.1.spot   launching 2", Signal::TERM, 143),
        (&[], "burst 1, cold", Signal::TERM, 143),
        (&[], "cold 2     runs on", Signal::INT, 130),
        (&["--keep"], "burst 4, mixed", Signal::INT, 130),
        (&[], "2 ready-to-stop", Signal::TERM, 143),
    ] {
        let mut demo = Demo::start(arguments);
        demo.says(at).await;
        demo.signal(signal);
        let status = demo.ends().await;
        assert_eq!(status.code(), Some(code), "{at}: {}", demo.said("stderr"));
        assert_eq!(demo.said("stdout"), "", "{at}");
        demo.leaves_nothing();
    }
}
