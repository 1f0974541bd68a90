//! Tests of the binary `bullpen-agent`: its arguments and exit codes.
//!
//! Not here: its work on a machine, which the tests of `bullpen agent` cover: it is the same agent.

use std::process::{Command, Output};

fn agent(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bullpen-agent"));
    command.args(arguments).output().expect("the binary starts")
}

#[test]
fn wrong_arguments_and_an_unusable_machine_have_different_exit_codes() {
    for arguments in [&[][..], &["--machine", "/"], &["--boot", "b", "--machine", "/"]] {
        assert_eq!(agent(arguments).status.code(), Some(64), "{arguments:?}");
    }
    let directory = tempfile::tempdir().expect("a directory can be made");
    let machine = directory.path().to_str().expect("the path is text");
    let output = agent(&["--machine", machine, "--boot", "b"]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("user-data") && stderr.contains("No such file"), "{stderr}");
}
