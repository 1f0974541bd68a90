//! The built command `bullpen sim run`: its output on both streams, and its exit codes.
//!
//! Not here: the scenarios (the simulator's `scenarios`).

use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// Plays a scenario of this text, with more arguments.
fn play(text: &str, arguments: &[&str]) -> Output {
    let folder = TempDir::new().expect("a directory");
    let file = folder.path().join("story.txt");
    std::fs::write(&file, text).expect("a file");
    let file = file.to_str().expect("a path that is text");
    run(&[&["--scenario", file], arguments].concat())
}

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bullpen"));
    command.args(["sim", "run"]).args(arguments).output().expect("the built command")
}

fn text(stream: &[u8]) -> &str {
    std::str::from_utf8(stream).expect("text")
}

#[test]
fn a_story_that_holds_is_printed_with_what_happened() {
    let story = "idle 1\nprovision 7.1.build count=1\nexpect reused=1\n";
    let output = play(story, &[]);
    let told =
        "idle 1\n> m1\nprovision 7.1.build count=1\n> fulfilled: 1 reused\nexpect reused=1\n";
    assert_eq!((text(&output.stdout), text(&output.stderr)), (told, ""));
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(play(told, &[]).status.code(), Some(0), "its own transcript is what happens");
}

#[test]
fn an_expectation_that_does_not_hold_fails_and_names_its_line() {
    let output = play("idle 1\nprovision 7.1.build\nexpect created=1\n", &[]);
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output.stderr);
    assert!(told.contains("line 3, "), "{told}");
    assert!(told.contains("expected created=1, found created=0"), "{told}");
}

#[test]
fn a_violated_invariant_is_named_with_its_history() {
    let output = play("provision 7.1.build dies-at=fleet#1\npass 2h\n", &["--json"]);
    assert_eq!(output.status.code(), Some(1));
    let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(told["held"], false);
    assert_eq!(told["broken"]["line"], 2);
    let violation = told["broken"]["violation"].as_str().expect("a text");
    assert!(violation.starts_with("invariant 2 (Conservation)"), "{violation}");
    assert!(!told["broken"]["history"].as_array().expect("a list").is_empty());
}

#[test]
fn a_transcript_that_is_no_longer_true_fails_with_the_difference() {
    let output = play("idle 1\n> m7\n", &[]);
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output.stderr);
    assert!(told.contains("not what the file says:\n-   2 > m7\n+   2 > m1"), "{told}");
}

#[test]
fn a_file_that_is_no_story_is_wrong_usage() {
    let output = play("idle 1\nprovison 7.1.build\n", &[]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(64), ""));
    let told = text(&output.stderr);
    assert!(told.contains("line 2, column 1: \"provison\" is no verb; did you mean"), "{told}");
    assert!(told.contains("\nhint: "), "{told}");
    assert_eq!(run(&["--scenario", "/nowhere/at/all.txt"]).status.code(), Some(64));
}

#[test]
fn exactly_one_of_seeds_and_a_scenario_is_given() {
    for arguments in [
        &[][..],
        &["--seeds", "0..1", "--scenario", "story.txt"],
        &["--scenario", "story.txt", "--jobs", "2"],
    ] {
        assert_eq!(run(arguments).status.code(), Some(64), "{arguments:?}");
    }
}

#[test]
fn seeds_are_counted_and_told_in_text_and_as_json() {
    let output = run(&["--seeds", "0..2", "--jobs", "2"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let told = text(&output.stdout);
    assert!(told.starts_with("2 clean, 0 failed in "), "{told}");
    let output = run(&["--seeds", "0..1", "--json"]);
    let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&told["clean"], &told["failed"]), (&1.into(), &Value::Array(Vec::new())));
    assert!(told["calls"].as_u64().expect("a number") > 0, "{told}");
}

#[test]
fn a_trace_shows_every_write() {
    let output = play("idle 1\n", &["--trace"]);
    assert!(text(&output.stdout).contains(" launched i-"), "{}", text(&output.stdout));
}
