//! `bullpen demo`, as somebody at a terminal has it: what it prints, what it answers, and that
//! nothing of it is left, whether it went to its end or was interrupted.
//!
//! Not here: how long anything took.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use bullpen_core::ports::Clock as _;
use bullpen_embedded::system::SystemClock;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);

/// A demo that runs, with its temporary files and its output in a directory of the test's.
struct Demo {
    child: Child,
    directory: TempDir,
}

impl Demo {
    /// What is in the environment besides would lead any other command astray.
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

    /// Waits until it has said this.
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

    /// Neither a file nor a process.
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
        // A test that failed: the demo cleans up when it is asked to.
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

/// Every process that names the directory in its command line or its environment. All that the demo
/// starts does: the machine it belongs to is there.
fn processes_with(directory: &Path) -> Vec<String> {
    let name = directory.to_str().expect("it is text");
    let processes = fs::read_dir("/proc").expect("this is Linux").flatten();
    let words = processes.filter_map(|process| {
        // One that ends meanwhile is gone.
        let read = |file| fs::read(process.path().join(file)).unwrap_or_default();
        let words =
            String::from_utf8_lossy(&[read("cmdline"), read("environ")].concat()).into_owned();
        words.contains(name).then_some(words)
    });
    words.collect()
}

#[tokio::test]
async fn it_shows_three_runs_and_leaves_nothing() {
    let mut demo = Demo::start(&[]);
    let status = demo.ends().await;
    let (table, talk) = (demo.said("stdout"), demo.said("stderr"));
    assert_eq!(status.code(), Some(0), "{table}\n{talk}");
    demo.leaves_nothing();
    let rows: Vec<Vec<&str>> =
        table.lines().skip(1).take(4).map(|line| line.split_whitespace().collect()).collect();
    for (row, starts, ends) in [
        (&rows[0], ["cold", "1.1.build", "4", "large", "on-demand", "0", "0", "4"], "4/4"),
        (&rows[1], ["warm", "2.1.build", "4", "large", "on-demand", "4", "0", "0"], "4/4"),
        (&rows[2], ["mixed", "3.1.build", "4", "large", "on-demand", "4", "0", "0"], "4/4"),
        (&rows[3], ["mixed", "3.1.spot", "2", "large", "spot", "0", "0", "2"], "2/2"),
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
async fn it_tells_the_same_as_json() {
    let mut demo = Demo::start(&["--json"]);
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
    for (at, signal, code) in [
        ("launching 4", Signal::INT, 130),
        ("job 2 runs on", Signal::INT, 130),
        ("3.1.spot   launching 2", Signal::TERM, 143),
    ] {
        let mut demo = Demo::start(&[]);
        demo.says(at).await;
        demo.signal(signal);
        let status = demo.ends().await;
        assert_eq!(status.code(), Some(code), "{at}: {}", demo.said("stderr"));
        assert_eq!(demo.said("stdout"), "", "{at}");
        demo.leaves_nothing();
    }
}
