//! The built commands `bullpen pools preview` and `bullpen labels parse`, on a real file.
//!
//! Not here: `bullpen lint` (`lint`), or the meaning of schedules and labels (the core's tests).

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Value, json};

fn example() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../core/tests/lint/good-example.yml")
}

fn bullpen(arguments: &[&str]) -> Output {
    let example = example();
    let example = example.to_str().expect("the path is text");
    let arguments: Vec<_> =
        arguments.iter().map(|a| if *a == "EXAMPLE" { example } else { *a }).collect();
    Command::new(env!("CARGO_BIN_EXE_bullpen")).args(arguments).output().expect("it runs")
}

fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("stdout is JSON")
}

#[test]
fn the_example_keeps_what_its_schedule_says() {
    for (at, entry, hot, stopped) in [
        // A Saturday at 23:30 in Paris; a Tuesday at 05:59 and at 06:00.
        ("2026-11-14T22:30:00Z", "weekends", 0, 1),
        ("2026-11-17T04:59:00Z", "nights", 0, 2),
        ("2026-11-17T05:00:00Z", "default", 1, 2),
    ] {
        let output = bullpen(&["pools", "preview", "--config", "EXAMPLE", "--at", at, "--json"]);
        assert_eq!(output.status.code(), Some(0));
        let expected = json!([
            { "pool": "small-x64", "at": at, "entry": entry, "hot": hot, "stopped": stopped }
        ]);
        assert_eq!(json_of(&output), expected);
    }
}

#[test]
fn a_range_shows_every_change_in_both_dst_nights() {
    for (from, until, changes) in [
        // Clocks go forward on the last Sunday of March, back on the last of October; the weekend
        // entry holds all day, and Monday begins an hour earlier or later in UTC.
        (
            "2026-03-28T12:00:00Z",
            "2026-03-30T12:00:00Z",
            ["2026-03-29T22:00:00Z", "2026-03-30T04:00:00Z"],
        ),
        (
            "2026-10-24T12:00:00Z",
            "2026-10-26T12:00:00Z",
            ["2026-10-25T23:00:00Z", "2026-10-26T05:00:00Z"],
        ),
    ] {
        let range = ["--from", from, "--until", until, "--json"];
        let output = bullpen(&[&["pools", "preview", "--config", "EXAMPLE"], &range[..]].concat());
        let seen = json_of(&output);
        let at: Vec<_> =
            seen.as_array().expect("a list").iter().filter_map(|c| c["at"].as_str()).collect();
        assert_eq!(at, changes);
    }
}

#[test]
fn a_pool_that_is_not_there_is_named_with_those_that_are() {
    let output = bullpen(&[
        "pools",
        "preview",
        "--config",
        "EXAMPLE",
        "--pool",
        "small-x46",
        "--at",
        "2026-11-17T05:00:00Z",
    ]);
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("small-x46") && told.contains("small-x64"), "{told}");
}

#[test]
fn a_label_finds_the_runner_that_the_file_names() {
    let output = bullpen(&[
        "labels",
        "parse",
        "runs-on=1/runner=small-x64",
        "--config",
        "EXAMPLE",
        "--json",
    ]);
    assert_eq!(output.status.code(), Some(0));
    let answer = json_of(&output);
    assert_eq!(
        (&answer["class"]["name"], &answer["class"]["named"]),
        (&json!("small-x64"), &json!(true))
    );
}

#[test]
fn a_file_with_errors_is_refused_with_the_first_and_the_way_to_all() {
    let bad =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../core/tests/lint/misspelt-runner.yml");
    let bad = bad.to_str().expect("the path is text");
    let output = bullpen(&["labels", "parse", "runs-on/cpu=2", "--config", bad]);
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("misspelt-runner.yml:") && told.contains("bullpen lint"), "{told}");
}

#[test]
fn a_broken_pool_is_not_shown_and_does_not_hide_the_others() {
    let text = std::fs::read_to_string(example()).expect("the example");
    let folder = tempfile::TempDir::new().expect("a directory");
    let path = folder.path().join("runs-on.yml");
    let more = format!("{text}\n  odd: {{runner: none, schedule: []}}\n");
    std::fs::write(&path, more).expect("a file");
    let path = path.to_str().expect("the path is text");
    let preview = |more: &[&str]| {
        let all = ["pools", "preview", "--config", path, "--at", "2026-11-17T05:00:00Z", "--json"];
        bullpen(&[&all[..], more].concat())
    };
    let output = preview(&[]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(json_of(&output)[0]["pool"], "small-x64");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("the pool odd is broken and not shown"), "{told}");
    let output = preview(&["--pool", "odd"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("the pool odd is broken"));
}
