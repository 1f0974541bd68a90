//! Commands that cannot do their work say so before they begin: no file, no program, not a file.
//!
//! Not here: what is wrong in a file (`lint`), or refused while the service runs (`service`).

use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

const GOOD: &str = "runners:\n  small: {cpu: 2, ram: 4}\n";

fn place() -> TempDir {
    let place = TempDir::new().expect("a directory");
    std::fs::write(place.path().join("good.yml"), GOOD).expect("a file");
    std::fs::write(place.path().join("token"), "ghp_of_a_person").expect("a file");
    let pipe = Command::new("mkfifo").arg(place.path().join("pipe.yml")).status();
    assert!(pipe.expect("coreutils are there").success());
    place
}

/// Runs a command that must end by itself; `timeout` answers 124 for it otherwise.
fn bullpen(place: &Path, line: &str) -> Output {
    Command::new("timeout")
        .args(["30", env!("CARGO_BIN_EXE_bullpen")])
        .args(line.split_whitespace())
        .current_dir(place)
        .env("BULLPEN_STATE", "state")
        .env("BULLPEN_WEBHOOK_SECRET", "a-secret-of-this-test")
        .output()
        .expect("it runs")
}

fn refused(place: &Path, line: &str) -> String {
    let output = bullpen(place, line);
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(64), "{line}: {talk}");
    assert!(!place.join("state").exists(), "{line}: nothing has begun");
    talk
}

const SERVE: &str = "serve --webhook 127.0.0.1:0 --admin 127.0.0.1:0 --repository acme/app \
                     --github-token-file token";

#[test]
fn serving_on_this_host_needs_a_runner_program() {
    let place = place();
    let talk = refused(place.path(), &format!("{SERVE} --config good.yml"));
    assert!(talk.contains("--runner-dir: not given"), "{talk}");
}

/// An address of the stand-in brings its own runner program.
#[test]
fn serving_needs_the_configuration_that_is_named() {
    let place = place();
    let serve = format!("{SERVE} --api-url http://127.0.0.1:1 --config");
    let talk = refused(place.path(), &format!("{serve} nope.yml"));
    assert!(talk.contains("could not read nope.yml: No such file"), "{talk}");
    let talk = refused(place.path(), &format!("{serve} pipe.yml"));
    assert!(talk.contains("pipe.yml: it is a pipe or a device, not a file"), "{talk}");
    let talk = refused(place.path(), &format!("{serve} ."));
    assert!(talk.contains("it is a directory, not a file"), "{talk}");
}

#[test]
fn no_command_waits_for_a_pipe() {
    let place = place();
    for line in [
        "lint pipe.yml",
        "pools preview --config pipe.yml --at 2026-11-14T22:30:00Z",
        "labels parse --config pipe.yml runs-on/runner=small",
        "refresh --stack pipe.yml --repository acme/app",
    ] {
        let output = bullpen(place.path(), line);
        let talk = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(talk.contains("it is a pipe or a device, not a file"), "{line}: {talk}");
        assert_ne!(output.status.code(), Some(0), "{line}");
    }
}

/// Data that cannot be written is a failure; a reader that stops early is none.
#[test]
fn lost_output_is_a_failure() {
    let place = place();
    for line in [
        "labels parse --config good.yml runs-on=1/runner=small",
        "--version",
        "lint --format json good.yml",
    ] {
        let shell = |to: &str| {
            let script = format!("{} {line} {to}; exit $?", env!("CARGO_BIN_EXE_bullpen"));
            let shell = Command::new("sh").args(["-c", &script]).current_dir(place.path()).output();
            shell.expect("it runs")
        };
        let full = shell(">/dev/full");
        assert_eq!(full.status.code(), Some(1), "{line}: {full:?}");
        assert_eq!(shell(">/dev/null").status.code(), Some(0), "{line}");
        assert_eq!(shell("| true").status.code(), Some(0), "{line}");
    }
}

#[test]
fn a_state_belongs_to_its_stack() {
    let place = place();
    for name in ["one", "other"] {
        let text = format!("[stack]\nname = \"{name}\"\n[process-fleet]\ncapacity = 2\n");
        std::fs::write(place.path().join(format!("{name}.toml")), text).expect("a file");
    }
    let with = |command: &str, name: &str| {
        let output = bullpen(place.path(), &format!("{command} --stack {name}.toml"));
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let begin =
        "refresh --repository acme/app --github-token-file token --api-url http://127.0.0.1:1";
    with(begin, "one");
    assert_eq!(with("status", "one").0, Some(0));
    for command in ["status", "destroy --yes", begin] {
        let (code, talk) = with(command, "other");
        assert_eq!(code, Some(64), "{command}: {talk}");
        assert!(talk.contains("belongs to the stack one, not to other"), "{command}: {talk}");
    }
    assert_eq!(with("destroy --yes", "one").0, Some(0));
    assert!(!place.path().join("state").exists());
}
