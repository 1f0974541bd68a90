//! The steps `test` and `test-deep`: build every test program, then run two of them at once.
//!
//! Cargo runs one program after the other, and the product's own wait for processes and emulators
//! most of the time, while the simulator's compute. So one lane takes programs from the front of
//! the list, where the product's are, and the other from the back. A program stays one process: its
//! tests share what they start, an emulator above all. Each test is in one of the two steps.
//!
//! Not here: which tests take long (`long_tests`), or what the tests need beside cargo (`tools`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, File};
use std::io::BufReader;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context as _, Result, bail, ensure};
use cargo_metadata::Message;

use crate::gate::{Context, Part, Step, seconds, timed};
use crate::long_tests;
use crate::place::{Place, shown};
use crate::steps::AWS;

/// The step for every change.
pub(crate) const QUICK: Step = Step {
    name: "test",
    what: "the tests of the embedded product and the simulator, but for the long ones",
    part: Some(Part::Quick),
    run: quick,
};

/// The step for all other tests.
pub(crate) const DEEP: Step = Step {
    name: "test-deep",
    what: "the long tests, and those of AWS on emulators",
    part: Some(Part::Deep),
    run: deep,
};

/// What `cargo test` builds for the quick step: no AWS SDK is compiled.
const QUICK_BUILD: &[&str] =
    &["--workspace", "--exclude", "bullpen-aws", "--exclude", "bullpen-faulty"];
/// What it builds for the deep step: everything.
const DEEP_BUILD: &[&str] = &["--workspace", AWS];

/// How many tests of one program run at once, to the test programs.
const THREADS: &str = "RUST_TEST_THREADS";

/// One test program, as cargo built it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Program {
    /// The package's directory: tests start there.
    directory: PathBuf,
    /// The directory's name and the program's, as in `aws/fleet`.
    name: String,
    executable: PathBuf,
}

/// A program and the tests of it that a step runs.
#[derive(Debug)]
struct Selected {
    program: Program,
    /// The names of its tests; `None`: all that it has.
    tests: Option<Vec<String>>,
}

fn quick(gate: &Context<'_>) -> Result<()> {
    let mut selected = Vec::new();
    for program in build(gate.place, QUICK_BUILD)? {
        let (long, short) = split(gate.place, &program)?;
        selected.push(Selected { program, tests: (!long.is_empty()).then_some(short) });
    }
    run(gate, selected, Part::Quick)
}

/// Runs the tests that the quick step does not run. The difference is computed, so that none is lost.
fn deep(gate: &Context<'_>) -> Result<()> {
    let mut done = BTreeMap::new();
    for program in build(gate.place, QUICK_BUILD)? {
        let (_, short) = split(gate.place, &program)?;
        done.insert(program.name.clone(), BTreeSet::from_iter(short));
    }
    let mut selected = Vec::new();
    let mut seen = Vec::new();
    for program in build(gate.place, DEEP_BUILD)? {
        let all = names(gate.place, &program)?;
        seen.extend(all.iter().map(|test| format!("{}/{test}", program.name)));
        let Some(done) = done.get(&program.name) else {
            selected.push(Selected { program, tests: None });
            continue;
        };
        let left: Vec<String> = all.into_iter().filter(|test| !done.contains(test)).collect();
        if !left.is_empty() {
            selected.push(Selected { program, tests: Some(left) });
        }
    }
    let unused = long_tests::unused(&seen);
    ensure!(unused.is_empty(), "the list of long tests names none with: {}", unused.join(", "));
    run(gate, selected, Part::Deep)
}

/// The long tests of a program, and the short ones: those of the quick step.
fn split(place: &Place, program: &Program) -> Result<(Vec<String>, Vec<String>)> {
    let all = names(place, program)?.into_iter();
    Ok(all.partition(|test| long_tests::is_long(&program.name, test)))
}

fn run(gate: &Context<'_>, selected: Vec<Selected>, part: Part) -> Result<()> {
    let (place, tools) = (gate.place, gate.tools(part)?);
    let said = place.target.join("said");
    fs::create_dir_all(&said).with_context(|| format!("could not make {}", said.display()))?;
    let failed = run_all(selected, &said, |selected, threads| {
        let program = &selected.program;
        let mut test = place.command(&program.executable);
        test.current_dir(&program.directory)
            .env("CARGO_MANIFEST_DIR", &program.directory)
            .env(THREADS, threads.to_string())
            .envs(tools.iter().map(|(name, value)| (name, value)));
        if let Some(tests) = &selected.tests {
            test.arg("--exact").args(tests);
        }
        test
    })?;
    ensure!(failed.is_empty(), "these failed: {}", failed.join(", "));
    Ok(())
}

/// Every test program of a build, in the order of packages and names.
fn build(place: &Place, what: &[&str]) -> Result<Vec<Program>> {
    let mut cargo = place.command("cargo");
    cargo
        .arg("test")
        .args(what)
        .args(["--no-run", "--message-format=json-render-diagnostics"])
        .stdout(Stdio::piped());
    let mut child = cargo.spawn().context("could not start cargo")?;
    let said = child.stdout.take().context("cargo's output is piped")?;
    let messages: std::io::Result<Vec<Message>> =
        Message::parse_stream(BufReader::new(said)).collect();
    let status = child.wait().context("cargo was started")?;
    ensure!(status.success(), "`{}` failed ({status})", shown(&cargo));
    let built = messages.context("cargo said what cannot be read")?.into_iter();
    let mut programs: Vec<Program> = built.filter_map(program).collect();
    programs.sort();
    Ok(programs)
}

/// The names of a program's tests.
fn names(place: &Place, program: &Program) -> Result<Vec<String>> {
    let mut list = place.command(&program.executable);
    list.args(["--list", "--format", "terse"]).current_dir(&program.directory);
    let output = list.output().with_context(|| format!("could not start `{}`", shown(&list)))?;
    ensure!(output.status.success(), "`{}` failed ({})", shown(&list), output.status);
    let listed = String::from_utf8_lossy(&output.stdout);
    Ok(listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

/// What was built, if it is a test program.
fn program(message: Message) -> Option<Program> {
    let Message::CompilerArtifact(artifact) = message else { return None };
    let executable = artifact.executable.filter(|_| artifact.profile.test)?;
    let directory = artifact.manifest_path.parent()?;
    let name = format!("{}/{}", directory.file_name()?, artifact.target.name);
    Some(Program { directory: directory.into(), name, executable: executable.into() })
}

/// Runs every program, two at once, and names those that failed. `command` is told how many tests a
/// program may run at once: the lane of waiting programs runs more of them than there are processors.
fn run_all(
    selected: Vec<Selected>,
    said: &Path,
    command: impl Fn(&Selected, usize) -> Command + Sync,
) -> Result<Vec<String>> {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let left = Mutex::new(VecDeque::from(selected));
    let lane = |take: fn(&mut VecDeque<Selected>) -> Option<Selected>, threads: usize| {
        let mut failed = Vec::new();
        loop {
            let next = take(&mut left.lock().unwrap_or_else(PoisonError::into_inner));
            let Some(next) = next else { return Ok(failed) };
            if !passes(&next.program, command(&next, threads), said)? {
                failed.push(next.program.name);
            }
        }
    };
    let lanes = thread::scope(|scope| {
        let back = scope.spawn(|| lane(VecDeque::pop_back, cores));
        let front = lane(VecDeque::pop_front, 2 * cores);
        [front, back.join().unwrap_or_else(|_| bail!("a lane panicked"))]
    });
    let failed: Result<Vec<Vec<String>>> = lanes.into_iter().collect();
    Ok(failed?.concat())
}

/// Runs a program to its end, then shows what it said. That goes to a file and not to a pipe: a process
/// that a killed program left behind would hold a pipe open, and a person can read the file before the end.
fn passes(program: &Program, mut command: Command, said: &Path) -> Result<bool> {
    let shown = shown(&command);
    let said = said.join(program.name.replace('/', "-")).with_extension("log");
    eprintln!("test: {} runs, says: {}", program.name, said.display());
    let file =
        File::create(&said).with_context(|| format!("could not write {}", said.display()))?;
    command.stdin(Stdio::null()).stderr(file.try_clone()?).stdout(file);
    let (status, took) = timed(|| command.status());
    let status = status.with_context(|| format!("could not start `{shown}`"))?;
    let word = if status.success() { "passed" } else { "FAILED" };
    let whole = fs::read(&said).with_context(|| format!("could not read {}", said.display()))?;
    // In one piece: the other lane speaks too.
    eprintln!(
        "{}test: {} {word} in {} ({status})",
        String::from_utf8_lossy(&whole),
        program.name,
        seconds(took)
    );
    Ok(status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn programs(names: &[&str]) -> Vec<Selected> {
        let selected = |name: &&str| {
            let (name, executable) = ((*name).to_owned(), PathBuf::from(*name));
            Selected { program: Program { directory: "/".into(), name, executable }, tests: None }
        };
        names.iter().map(selected).collect()
    }

    fn itself(selected: &Selected, _: usize) -> Command {
        Command::new(&selected.program.executable)
    }

    #[test]
    fn every_program_is_run_and_those_that_failed_are_named() {
        let said = tempfile::tempdir().unwrap();
        let all = programs(&["true", "false", "true", "false"]);
        assert_eq!(run_all(all, said.path(), itself).unwrap(), ["false", "false"]);
        assert_eq!(run_all(programs(&["true"; 5]), said.path(), itself).unwrap(), [""; 0]);
    }

    #[test]
    fn a_program_that_cannot_be_started_is_an_error_that_names_it() {
        let said = tempfile::tempdir().unwrap();
        let error = run_all(programs(&["/no/such/program"]), said.path(), itself).unwrap_err();
        assert!(error.to_string().contains("/no/such/program"), "{error}");
    }
}
