//! The built workflow commands: the inputs that they refuse, and their exit codes.
//!
//! Not here: every input's own rules (the tests beside the reader).

use std::os::unix::ffi::OsStrExt as _;
use std::process::{Command, Output};

fn bullpen(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bullpen"))
        .args(arguments)
        .env_clear()
        .env("HOME", "/nonexistent")
        .envs(variables.iter().copied())
        .output()
        .expect("it runs")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

/// The embedded engine's error for machines in EC2.
#[cfg(feature = "aws")]
const NO_EC2: &str = "error: --fleet: \"ec2\" needs --engine aws: instances cannot reach the files of this machine\n";
#[cfg(not(feature = "aws"))]
const NO_EC2: &str = "error: --fleet: \"ec2\" is not in this build; use process\n";

#[test]
fn a_wrong_input_ends_with_64_and_one_line() {
    for (arguments, variables, line) in [
        (
            &["provision", "--count", "-1"][..],
            &[][..],
            "error: --count: \"-1\" is not a whole number from 1 to 1000\n",
        ),
        (
            &["provision"],
            &[("INPUT_INSTANCE-COUNT", "2.5")],
            "error: INPUT_INSTANCE-COUNT: \"2.5\" is not a whole number from 1 to 1000\n",
        ),
        (
            &["refresh"],
            &[("INPUT_IDLE_TIME_SEC", "0")],
            "error: INPUT_IDLE_TIME_SEC: \"0\" is not a whole number from 1 to 604800\n",
        ),
        (&["status", "--fleet", "ec2"], &[], NO_EC2),
        (&["ledger", "verify", "--fleet", "ec2"], &[], NO_EC2),
        (
            &["destroy", "--app-id", "7"],
            &[],
            "error: --app-id: an App needs its key too; give --app-key\n",
        ),
    ] {
        let output = bullpen(arguments, variables);
        assert_eq!(output.status.code(), Some(64), "{arguments:?}");
        assert_eq!(stderr(&output), line);
        assert_eq!(output.stdout, b"");
    }
}

#[test]
fn a_file_that_is_named_is_read_and_its_classes_count() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = directory.path().join("runs-on.yml");
    std::fs::write(&config, "runners:\n  small:\n    cpu: 2\n").expect("written");
    let config = config.to_str().expect("text");
    let place = directory.path().join("state");
    let state = [("BULLPEN_STATE", place.to_str().expect("text"))];
    let output = bullpen(&["provision", "--config", config, "--resource-class", "smal"], &state);
    assert_eq!(output.status.code(), Some(64));
    let told = stderr(&output);
    assert!(told.contains("did you mean \"small\"?") && told.contains("known: small"), "{told}");
    let missing = bullpen(&["refresh", "--stack", "/no/such.toml"], &[]);
    assert_eq!(missing.status.code(), Some(64));
    assert!(stderr(&missing).contains("/no/such.toml"));
}

#[test]
fn a_secret_is_masked_and_is_nowhere_else() {
    let directory = tempfile::tempdir().expect("a directory");
    let state = ("BULLPEN_STATE", directory.path().to_str().expect("text"));
    let variables = [("INPUT_GITHUB-TOKEN", "s3cr3t"), state, ("GITHUB_ACTIONS", "true")];
    let output = bullpen(&["refresh"], &variables);
    let told = stderr(&output);
    assert_eq!(told.matches("s3cr3t").count(), 1, "{told}");
    assert!(told.starts_with("::add-mask::s3cr3t\n"), "{told}");
    assert!(!String::from_utf8_lossy(&output.stdout).contains("s3cr3t"));
    let outside = bullpen(&["refresh"], &variables[..2]);
    assert!(!stderr(&outside).contains("s3cr3t"));
}

#[test]
fn a_token_as_an_argument_is_refused_by_every_command_and_not_repeated() {
    for arguments in [
        &["provision", "--github-token", "s3cr3t"][..],
        &["refresh", "--github-token=s3cr3t"],
        &["serve", "--github-token", "s3cr3t"],
        &["status", "--github-token", "s3cr3t"],
        &["explain", "1", "--github-token=s3cr3t"],
    ] {
        let output = bullpen(arguments, &[]);
        assert_eq!(output.status.code(), Some(64), "{arguments:?}");
        let told = stderr(&output);
        assert!(told.starts_with("error: --github-token: other users"), "{told}");
        assert!(told.contains("INPUT_GITHUB_TOKEN") && told.contains("--github-token-file"));
        assert!(!told.contains("s3cr3t"), "{told}");
        assert_eq!(output.stdout, b"");
    }
}

#[test]
fn help_says_how_secrets_are_better_given() {
    let help = bullpen(&["provision", "--help"], &[]);
    assert_eq!(help.status.code(), Some(0));
    let text = String::from_utf8(help.stdout).expect("UTF-8");
    assert!(text.contains("INPUT_GITHUB-TOKEN") && text.contains("INPUT_APP-KEY"), "{text}");
}

#[test]
fn a_variable_that_is_not_utf8_is_refused_like_any_other() {
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9");
    let output = Command::new(env!("CARGO_BIN_EXE_bullpen"))
        .arg("provision")
        .env_clear()
        .envs([("HOME", "/nonexistent".as_ref()), ("INPUT_NAME", name), ("OTHER", name)])
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(64));
    assert!(stderr(&output).starts_with("error: INPUT_NAME: "), "{}", stderr(&output));
}
