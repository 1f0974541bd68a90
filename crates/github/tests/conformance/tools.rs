//! Finds GitHub's packages, and sends them questions.
//!
//! Not here: the questions (`signatures`, `webhooks`, `examples`).

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

const MISSING: &str = "GitHub's schemas are missing; `cargo xtask tools` installs them";

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance")
}

#[expect(clippy::disallowed_methods, reason = "a test finds the gate's tools by the environment")]
fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// The directory of the packages.
pub(crate) fn home() -> PathBuf {
    variable("BULLPEN_CONFORMANCE").or_else(cached).filter(|path| path.exists()).expect(MISSING)
}

/// The directory in the gate's cache that belongs to this lock file.
fn cached() -> Option<PathBuf> {
    let home = || Some(variable("HOME")?.join(".cache"));
    let tools = variable("XDG_CACHE_HOME").or_else(home)?.join("bullpen/tools");
    let lock = std::fs::read(source().join("package-lock.json")).ok()?;
    let mut entries = std::fs::read_dir(tools).ok()?.flatten().map(|entry| entry.path());
    entries.find(|path| std::fs::read(path.join("ready.json")).is_ok_and(|ready| ready == lock))
}

/// A file of one of the packages.
pub(crate) fn package(path: &str) -> PathBuf {
    home().join("node_modules").join(path)
}

/// Asks all questions at once: starting node takes longer than answering.
pub(crate) fn ask(questions: &[Value]) -> Vec<Value> {
    let mut node = Command::new("node")
        .arg(source().join("ask.mjs"))
        .arg(home())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("node is installed");
    let text = serde_json::to_vec(questions).expect("questions are JSON");
    node.stdin.take().expect("stdin is piped").write_all(&text).expect("node reads its stdin");
    let output = node.wait_with_output().expect("node ends");
    assert!(output.status.success(), "node failed; it printed why above");
    let answers: Vec<Value> = serde_json::from_slice(&output.stdout).expect("answers are JSON");
    assert_eq!(answers.len(), questions.len());
    answers
}
