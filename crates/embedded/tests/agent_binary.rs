//! `bullpen-agent`, the agent as a small binary of its own: its arguments and exit codes.
//!
//! Not here: what it does on a machine; `bullpen agent` is the same, and its tests are with it.

use std::process::{Command, Output};

fn agent(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bullpen-agent")).args(arguments).output().expect("it runs")
}

#[test]
fn wrong_arguments_are_told_apart_from_a_machine_that_cannot_be_used() {
    for arguments in [&[][..], &["--machine", "/"], &["--boot", "b", "--machine", "/"]] {
        assert_eq!(agent(arguments).status.code(), Some(64), "{arguments:?}");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let machine = directory.path().to_str().expect("it is text");
    let output = agent(&["--machine", machine, "--boot", "b"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("user-data") && said.contains("No such file"), "{said}");
}
