//! Programs of tests: scripts that stand for a machine's programs.
//!
//! Not here: what a script does, which each test says.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes a program. Another process writes the file: a test beside this one may start a child at any
/// moment, which would hold a file that this process writes open, and the kernel refuses to start a
/// program that is open for writing.
pub(crate) fn install(program: &Path, script: &str) {
    let mut install = Command::new("install");
    let install = install.args(["-m", "755", "/dev/stdin"]).arg(program).stdin(Stdio::piped());
    let mut install = install.spawn().expect("coreutils are there");
    let mut input = install.stdin.take().expect("it is piped");
    input.write_all(script.as_bytes()).expect("it reads its input");
    drop(input);
    assert!(install.wait().expect("it is a child").success(), "{} is written", program.display());
}
