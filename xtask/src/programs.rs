//! The `test` step: builds every test program, then runs two of them at once.
//!
//! Cargo runs one after the other, and the product's own wait for processes and emulators most of the
//! time; the simulator's compute. So one lane takes programs from the front of the list, where the
//! product's are, and the other from the back. The first lane runs more tests at once than there are
//! processors, the second as many. A program stays one process, where nextest would start
//! one for each test: what its tests share, an emulator above all, is started once.
//!
//! What a program says goes to a file, and is shown when it ends, in one piece. Every program is run, and
//! those that failed are named at the end.
//!
//! Not here: what the tests need beside cargo (`tools`).

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::BufReader;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context as _, Result, bail, ensure};
use cargo_metadata::Message;

use crate::gate::{Context, Step, seconds, timed};
use crate::place::{Place, shown, succeed};
use crate::steps::AWS;
use crate::tools;

/// The step.
pub(crate) const STEP: Step =
    Step { name: "test", what: "every test of the workspace, with AWS", run };

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

fn run(gate: &Context<'_>) -> Result<()> {
    let programs = build(gate.place)?;
    let tools = tools::for_tests(gate.place)?;
    let said = gate.place.target.join("said");
    fs::create_dir_all(&said).with_context(|| format!("could not make {}", said.display()))?;
    let failed = run_all(programs, &said, |program, threads| {
        let mut test = gate.place.command(&program.executable);
        test.current_dir(&program.directory)
            .env("CARGO_MANIFEST_DIR", &program.directory)
            .env(THREADS, threads.to_string())
            .envs(tools.iter().map(|(name, value)| (name, value)));
        test
    })?;
    ensure!(failed.is_empty(), "these failed: {}", failed.join(", "));
    let mut examples = gate.place.command("cargo");
    succeed(examples.args(["test", "--workspace", AWS, "--doc"]))
}

/// Every test program of the workspace, in the order of packages and names.
fn build(place: &Place) -> Result<Vec<Program>> {
    let mut cargo = place.command("cargo");
    cargo
        .args(["test", "--workspace", AWS, "--no-run"])
        .arg("--message-format=json-render-diagnostics")
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

/// What was built, if it is a test program.
fn program(message: Message) -> Option<Program> {
    let Message::CompilerArtifact(artifact) = message else { return None };
    let executable = artifact.executable.filter(|_| artifact.profile.test)?;
    let directory = artifact.manifest_path.parent()?;
    let name = format!("{}/{}", directory.file_name()?, artifact.target.name);
    Some(Program { directory: directory.into(), name, executable: executable.into() })
}

/// Runs every program, two at once, and names those that failed. `command` is told how many tests a
/// program may run at once.
fn run_all(
    programs: Vec<Program>,
    said: &Path,
    command: impl Fn(&Program, usize) -> Command + Sync,
) -> Result<Vec<String>> {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let left = Mutex::new(VecDeque::from(programs));
    let lane = |take: fn(&mut VecDeque<Program>) -> Option<Program>, threads: usize| {
        let mut failed = Vec::new();
        loop {
            let next = take(&mut left.lock().unwrap_or_else(PoisonError::into_inner));
            let Some(program) = next else { return Ok(failed) };
            if !passes(&program, command(&program, threads), said)? {
                failed.push(program.name);
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
/// that a killed program left behind would hold a pipe open, and whoever waits can read it before.
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

    fn programs(names: &[&str]) -> Vec<Program> {
        let program = |name: &&str| Program {
            directory: "/".into(),
            name: (*name).to_owned(),
            executable: (*name).into(),
        };
        names.iter().map(program).collect()
    }

    fn itself(program: &Program, _: usize) -> Command {
        Command::new(&program.executable)
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
