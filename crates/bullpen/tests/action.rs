//! act runs `action.yml`, on this host and without a network. With a recorder in the place of
//! `bullpen`: inputs arrive as variables, verbatim and never run; outputs come out. With `bullpen`
//! itself, against a stand-in GitHub: machines come, run a job, and return warm.
//!
//! Not here: whether the action has all inputs (beside the reader), or the command's own work.

#[path = "tools/act.rs"]
mod tool;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bullpen_core::mailbox::Secret;
use bullpen_core::ports::Clock as _;
use bullpen_embedded::system::SystemClock;
use bullpen_github::stand_in::protocol::{Conclusion, JobOrder};
use bullpen_github::stand_in::{Options, StandIn};
use serde_json::{Value, json};
use tempfile::TempDir;
use tool::{act, variable};

const TOKEN: &str = "s3cr3t-runner-token";

/// The longest wait for a workflow, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// An address without a listener, so that uses of the network fail at once.
const NO_NETWORK: &str = "http://127.0.0.1:9";

/// Records its arguments and environment in files, and writes every output.
const RECORDER: &str = r#"#!/bin/sh
printf '%s\n' "$*" > "$STAGE/$1.arguments"
env -0 > "$STAGE/$1.environment"
for pair in label=warm-1.1.build request=1.1.build requested=2 reused=1 started=0 created=1 \
    'instances=["i-1","i-2"]' 'timings={"select_ms":12}'; do
    printf '%s<<BULLPEN\n%s\nBULLPEN\n' "${pair%%=*}" "${pair#*=}" >> "$GITHUB_OUTPUT"
done
"#;

/// A shell that also writes its output to a file: act reads a step's output from a terminal, and
/// loses the last of it when the step ends at once.
const SHELL: &str = r#"#!/bin/bash
set -o pipefail
/bin/bash "$@" 2>&1 | tee -a "$STAGE/said"
"#;

fn run(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output().expect("it starts");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A repository with the action and one workflow, and the directory of the recorded files.
struct World {
    directory: TempDir,
}

impl World {
    /// With a recorder in the place of `bullpen`.
    fn of(workflow: &str) -> Self {
        let world = Self::without_program(workflow);
        world.program("bullpen", RECORDER);
        world
    }

    /// With a shell that records the output of steps.
    fn with_said(workflow: &str) -> Self {
        let world = Self::of(workflow);
        world.program("bash", SHELL);
        world
    }

    /// With `bullpen` itself.
    fn real(workflow: &str) -> Self {
        let world = Self::without_program(workflow);
        let program = env!("CARGO_BIN_EXE_bullpen");
        std::os::unix::fs::symlink(program, world.path("bin/bullpen")).expect("a link");
        world
    }

    fn without_program(workflow: &str) -> Self {
        let world = Self { directory: tempfile::tempdir().expect("a directory") };
        let repository = world.path("repository");
        let workflows = repository.join(".github/workflows");
        for directory in [&workflows, &world.path("home"), &world.path("bin")] {
            std::fs::create_dir_all(directory).expect("a directory");
        }
        let from = root().join("crates/bullpen/tests/action").join(workflow);
        std::fs::copy(from, workflows.join("test.yml")).expect("the workflow");
        std::fs::copy(root().join("action.yml"), repository.join("action.yml")).expect("a copy");
        // act asks git for the revision.
        let git = |words: &[&str]| {
            let who = ["-c", "user.name=test", "-c", "user.email=test@localhost"];
            run(Command::new("git").arg("-C").arg(&repository).args(who).args(words));
        };
        git(&["init", "--quiet", "--initial-branch", "main"]);
        git(&["add", "--all"]);
        git(&["commit", "--quiet", "--no-gpg-sign", "--message", "test"]);
        git(&["remote", "add", "origin", "https://github.com/owner/name.git"]);
        world
    }

    fn program(&self, name: &str, script: &str) {
        let path = self.path("bin").join(name);
        std::fs::write(&path, script).expect("a file");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("a program");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs the workflow on this host; returns whether it succeeded, and its output.
    fn run(&self) -> (bool, String) {
        self.run_with(&[])
    }

    /// Runs the workflow with variables, as a repository's settings have them.
    fn run_with(&self, variables: &[(&str, &str)]) -> (bool, String) {
        let path = variable("PATH").expect("a PATH");
        let path = format!("{}:{}", self.path("bin").display(), path.display());
        // In a file, because other users of this host can read arguments.
        let secrets = self.path("secrets");
        std::fs::write(&secrets, format!("RUNNER_TOKEN={TOKEN}\n")).expect("it can be written");
        let output = Command::new(act())
            .arg("push")
            .args(["--platform", "ubuntu-latest=-self-hosted", "--pull=false"])
            .args(["--action-offline-mode", "--no-cache-server", "--container-daemon-socket", "-"])
            .arg("--secret-file")
            .arg(secrets)
            .args(["--env", &format!("STAGE={}", self.directory.path().display())])
            .args(
                variables
                    .iter()
                    .flat_map(|(name, value)| ["--var".to_owned(), format!("{name}={value}")]),
            )
            .current_dir(self.path("repository"))
            .env_clear()
            .env("PATH", path)
            .env("HOME", self.path("home"))
            .envs(["http_proxy", "https_proxy"].map(|name| (name, NO_NETWORK)))
            .stdin(Stdio::null())
            .output()
            .expect("act starts");
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }

    fn recorded(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn environment(&self, mode: &str) -> BTreeMap<String, String> {
        let text = self.recorded(&format!("{mode}.environment"));
        let pairs = text.split_terminator('\0').filter_map(|pair| pair.split_once('='));
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// Asserts that no input was run as a script.
    fn nothing_was_executed(&self) {
        assert!(!self.path("executed").exists());
    }
}

#[test]
fn inputs_arrive_as_variables_and_outputs_come_out() {
    let world = World::of("three-jobs.yml");
    let (succeeded, said) = world.run();
    assert!(succeeded, "{said}");
    world.nothing_was_executed();

    for mode in ["provision", "release", "refresh"] {
        assert_eq!(world.recorded(&format!("{mode}.arguments")), format!("{mode}\n"));
    }
    let provision = world.environment("provision");
    for (name, value) in [
        ("INPUT_NAME", "build"),
        ("INPUT_INSTANCE_COUNT", "2"),
        ("INPUT_ALLOWED_INSTANCE_TYPES", "c* m6i.large"),
        ("INPUT_RESOURCE_CLASS_CONFIG", r#"{"large":{"cpu":2,"mmem":4096}}"#),
        ("INPUT_GITHUB_TOKEN", TOKEN),
        ("INPUT_REQUEST", ""),
    ] {
        assert_eq!(provision.get(name).map(String::as_str), Some(value), "{name}");
    }
    assert_eq!(world.environment("release")["INPUT_REQUEST"], "1.1.build");
    assert_eq!(world.environment("refresh")["INPUT_DRY_RUN"], "true");
    assert!(!said.contains(TOKEN), "{said}");

    let outputs: Value = serde_json::from_str(&world.recorded("outputs.json")).expect("JSON");
    let expected = json!({
        "label": "warm-1.1.build",
        "request": "1.1.build",
        "requested": "2",
        "reused": "1",
        "started": "0",
        "created": "1",
        "instances": "[\"i-1\",\"i-2\"]",
        "timings": "{\"select_ms\":12}",
    });
    assert_eq!(outputs, expected);
}

#[test]
fn a_text_arrives_as_it_was_written_and_is_never_run() {
    let world = World::of("three-jobs.yml");
    let (succeeded, said) = world.run();
    assert!(succeeded, "{said}");
    world.nothing_was_executed();
    let workflow =
        std::fs::read_to_string(root().join("crates/bullpen/tests/action/three-jobs.yml"));
    let workflow = workflow.expect("the workflow");
    let block = workflow.lines().skip_while(|line| !line.contains("pre-runner-script: |")).skip(1);
    let indent = " ".repeat(12);
    let script: String =
        block.map_while(|line| line.strip_prefix(&indent)).flat_map(|line| [line, "\n"]).collect();
    assert!(script.contains("$(touch") && script.contains('`') && script.lines().count() == 5);
    assert_eq!(world.environment("refresh")["INPUT_PRE_RUNNER_SCRIPT"], script);
}

#[test]
fn a_mode_that_is_none_is_refused_before_anything_is_run() {
    let world = World::with_said("bad-mode.yml");
    let (succeeded, log) = world.run();
    let said = world.recorded("said");
    assert!(!succeeded && said.contains("is not provision, release or refresh"), "{said}{log}");
    world.nothing_was_executed();
    assert!(!world.path("provision.arguments").exists());
}

#[test]
fn a_runner_without_bullpen_is_told_what_to_do() {
    let world = World::with_said("no-program.yml");
    let (succeeded, log) = world.run();
    let said = world.recorded("said");
    assert!(!succeeded && said.contains("/no/such/bullpen"), "{said}{log}");
    assert!(said.contains("install bullpen on this runner, or set bullpen-path"), "{said}");
}

/// A state directory; its drop destroys it with all its machines.
struct State(PathBuf);

impl State {
    fn bullpen(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bullpen"));
        run(command.args(words).arg("--state").arg(&self.0).env_clear())
    }

    /// Each machine's state and owner.
    fn machines(&self) -> Vec<(Value, Value)> {
        let told = self.bullpen(&["status", "--json"]).stdout;
        let told: Value = serde_json::from_slice(&told).expect("JSON");
        let machines = told["instances"].as_array().expect("a list");
        machines.iter().map(|it| (it["state"].clone(), it["owner"].clone())).collect()
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.bullpen(&["destroy", "--yes"]);
    }
}

async fn file(path: &Path) -> String {
    let clock = SystemClock::new();
    while clock.monotonic() < PATIENCE {
        if let Ok(text) = std::fs::read_to_string(path) {
            return text;
        }
        clock.sleep(Duration::from_millis(20)).await;
    }
    panic!("no {} within {PATIENCE:?}", path.display());
}

/// Queues a job for the label, waits for its end, and lets the workflow continue.
async fn run_a_job(world: &World, stand_in: &StandIn, label: &str, instances: &[String]) {
    let order = JobOrder {
        repository: String::from("owner/name"),
        labels: vec![label.to_owned()],
        run_id: Some(1),
        script: format!("echo \"$RUNNER_NAME\" > {}", world.path("of-the-job").display()),
        ..JobOrder::default()
    };
    let job = stand_in.submit(order).id;
    let job = tokio::time::timeout(PATIENCE, stand_in.over(job)).await.expect("the job runs");
    assert_eq!(job.conclusion, Some(Conclusion::Success));
    let runner = job.runner.expect("it had one");
    assert_eq!(world.recorded("of-the-job").trim(), runner);
    assert!(instances.iter().any(|id| runner.contains(id.as_str())), "{runner} {instances:?}");
    std::fs::write(world.path("job-is-over"), "").expect("a file");
}

#[tokio::test]
async fn the_three_modes_bring_machines_and_take_them_back_warm() {
    let address = "127.0.0.1:0".parse().expect("an address");
    let clock = Arc::new(SystemClock::new());
    let stand_in = StandIn::start(address, Options::new(Secret::new(TOKEN)), clock);
    let stand_in = stand_in.await.expect("a free port");
    let world = Arc::new(World::real("real-commands.yml"));
    let kept = State(world.path("state"));
    // The job writes to the test's directory, and the program may be in a directory of its user
    // alone.
    let numbers = world.path("bullpen.toml");
    std::fs::write(&numbers, "[process-fleet]\nisolation = \"none\"\n").expect("a file");
    let workflow = tokio::task::spawn_blocking({
        let (world, url) = (Arc::clone(&world), stand_in.url());
        let [place, numbers] = [&kept.0, &numbers].map(|path| path.display().to_string());
        move || world.run_with(&[("STAND_IN", &url), ("STATE", &place), ("STACK", &numbers)])
    });

    let outputs: Value =
        serde_json::from_str(&file(&world.path("outputs.json")).await).expect("JSON");
    for (name, value) in
        [("request", "1.1.build"), ("requested", "2"), ("reused", "0"), ("created", "2")]
    {
        assert_eq!(outputs[name], value, "{outputs}");
    }
    let list = |outputs: &Value| -> Vec<String> {
        let text = outputs["instances"].as_str().expect("a text");
        let mut list: Vec<String> = serde_json::from_str(text).expect("a list");
        list.sort();
        list
    };
    let instances = list(&outputs);
    assert_eq!(instances.len(), 2);
    let label = outputs["label"].as_str().expect("a text");
    assert!(label.starts_with("warm-1.1.build."), "{outputs}");
    run_a_job(&world, &stand_in, label, &instances).await;

    let (succeeded, said) = workflow.await.expect("act was run");
    assert!(!succeeded, "`work` fails, and the machines go back all the same: {said}");
    let again: Value = serde_json::from_str(&file(&world.path("again.json")).await).expect("JSON");
    assert_eq!((&again["reused"], &again["created"]), (&json!("2"), &json!("0")), "{said}");
    assert_eq!(list(&again), instances);
    let theirs = (json!("running"), json!("1.1.again"));
    assert_eq!(kept.machines(), [theirs.clone(), theirs]);
    assert!(!said.contains(TOKEN), "{said}");
    // act shows every output; GitHub shows none.
    let said: Vec<&str> = said.lines().filter(|line| !line.contains("::set-output::")).collect();
    let said = said.join("\n");
    assert!(!said.contains(label), "all who can read the repository read its logs: {said}");
}
