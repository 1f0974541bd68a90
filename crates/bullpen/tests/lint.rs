//! The built command `bullpen lint`: its output on both streams, and its exit codes.
//!
//! Not here: the findings of each file (the core's `tests/lint`).

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

const GOOD: &str = "\
runners:
  small: {cpu: 2}
pools:
  small: {runner: small, schedule: [{name: default, hot: 1, stopped: 0}]}
";
const WARNED: &str = "\
runners:
  small: {cpu: 2}
pools:
  small: {runner: small, environment: dev, schedule: [{name: default, hot: 1, stopped: 0}]}
";
const BAD: &str = "\
runners:
  small: {cpu: 2}
pools:
  small: {runner: smal, schedule: [{name: default, hot: 1, stopped: 0}]}
";

fn tree(files: &[(&str, &str)]) -> TempDir {
    let tree = TempDir::new().expect("a directory");
    for (path, text) in files {
        let path = tree.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(path, text).expect("a file");
    }
    tree
}

fn lint(directory: &Path, arguments: &[&str]) -> Output {
    lint_with(directory, arguments, "")
}

fn lint_with(directory: &Path, arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_bullpen"))
        .arg("lint")
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the built command");
    let mut stdin = child.stdin.take().expect("a pipe");
    // A command that does not read its input may close the pipe early.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().expect("an end")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn a_clean_file_ends_with_0_and_prints_nothing() {
    let tree = tree(&[("runs-on.yml", GOOD)]);
    let output = lint(tree.path(), &["runs-on.yml"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(stdout(&output), "");
    assert_eq!(stderr(&output), "1 file: 0 errors, 0 warnings, 0 notes\n");
}

#[test]
fn an_error_ends_with_1_and_is_one_line_with_its_place() {
    let tree = tree(&[("a/runs-on.yml", BAD)]);
    let output = lint(tree.path(), &["a/runs-on.yml"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        stdout(&output),
        "a/runs-on.yml:4:19: error: there is no runner `smal`; did you mean `small`? [unknown-runner]\n"
    );
    assert_eq!(stderr(&output), "1 file: 1 error, 0 warnings, 0 notes\n");
}

#[test]
fn beside_a_stack_pools_are_held_against_its_ceilings() {
    let tree = tree(&[("runs-on.yml", GOOD), ("bullpen.toml", "[ceilings]\nstack = 0\n")]);
    assert_eq!(stdout(&lint(tree.path(), &["runs-on.yml"])), "");
    for files in [&["runs-on.yml", "bullpen.toml"][..], &["bullpen.toml", "runs-on.yml"]] {
        let output = lint(tree.path(), files);
        assert_eq!(output.status.code(), Some(0), "a ceiling may be lowered at any time");
        assert_eq!(
            stdout(&output),
            "runs-on.yml:4:58: warning: 1 hot and 0 stopped are more than the ceiling of the stack, 0, \
             and are never kept; lower them, or raise it in `[ceilings]` of `bullpen.toml` \
             [above-ceiling]\n"
        );
    }
}

#[test]
fn a_warning_fails_only_a_strict_run() {
    let tree = tree(&[("runs-on.yml", WARNED)]);
    assert_eq!(lint(tree.path(), &["runs-on.yml"]).status.code(), Some(0));
    let strict = lint(tree.path(), &["--strict", "runs-on.yml"]);
    assert_eq!(strict.status.code(), Some(1));
    assert!(stdout(&strict).starts_with("runs-on.yml:4:26: warning: `environment`"));
}

#[test]
fn standard_input_is_a_runs_on_file() {
    let tree = tree(&[]);
    let output = lint_with(tree.path(), &["--stdin"], BAD);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).starts_with("<stdin>:4:19: error: "));
    assert_eq!(lint_with(tree.path(), &["--stdin"], GOOD).status.code(), Some(0));
}

#[test]
fn without_arguments_the_files_are_found_up_to_the_root() {
    let tree = tree(&[
        (".git/HEAD", ""),
        (".github/runs-on.yml", WARNED),
        ("deep/er/bullpen.toml", "[stack]\nnam = \"a\"\n"),
        ("deep/runs-on.yml", GOOD),
    ]);
    let output = lint(&tree.path().join("deep/er"), &[]);
    assert_eq!(output.status.code(), Some(1));
    let told = stdout(&output);
    let lines: Vec<&str> = told.lines().collect();
    assert!(lines[0].starts_with("bullpen.toml:2:1: error: "), "{told}");
    assert!(lines[1].starts_with("../../.github/runs-on.yml:4:26: warning: "), "{told}");
    assert_eq!(stderr(&output), "3 files: 1 error, 1 warning, 0 notes\n");
}

#[test]
fn looking_ends_at_the_root() {
    let tree = tree(&[("runs-on.yml", BAD), ("inner/.git/HEAD", ""), ("inner/a/b", "")]);
    let output = lint(&tree.path().join("inner/a"), &[]);
    assert_eq!(output.status.code(), Some(64));
    assert!(stderr(&output).contains("\n\nhint: name a FILE"), "{}", stderr(&output));
    assert_eq!(stdout(&output), "");
}

#[test]
fn what_cannot_be_checked_ends_with_64_and_a_hint() {
    let tree = tree(&[("runs-on.txt", GOOD), ("runs-on.yml/a", ""), ("b.yml", GOOD)]);
    for arguments in
        [&["missing.yml"][..], &["b.yml", "missing.toml"], &["runs-on.txt"], &["runs-on.yml"]]
    {
        let output = lint(tree.path(), arguments);
        assert_eq!(output.status.code(), Some(64), "{arguments:?}");
        assert_eq!(stdout(&output), "", "{arguments:?}");
        let told = stderr(&output);
        assert!(told.starts_with("error: ") && told.contains("\n\nhint: "), "{told}");
    }
    for arguments in [&["--stdin", "b.yml"][..], &["--format", "xml"], &["--unknown"]] {
        assert_eq!(lint(tree.path(), arguments).status.code(), Some(64), "{arguments:?}");
    }
}

#[test]
fn a_file_that_is_too_long_is_refused_as_such() {
    let long = format!("# {}\n{GOOD}", "x".repeat(2 * 1024 * 1024));
    let tree = tree(&[("runs-on.yml", &long)]);
    let output = lint(tree.path(), &["runs-on.yml"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("[too-large]"), "{}", stdout(&output));
}

#[test]
fn json_is_one_object_with_every_finding() {
    let tree = tree(&[("bad.yml", BAD), ("good.yml", GOOD)]);
    let output = lint(tree.path(), &["--format", "json", "bad.yml", "good.yml"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        json(&output),
        serde_json::json!({
            "files": ["bad.yml", "good.yml"],
            "errors": 1,
            "warnings": 0,
            "notes": 0,
            "findings": [{
                "path": "bad.yml",
                "line": 4,
                "column": 19,
                "severity": "error",
                "code": "unknown-runner",
                "message": "there is no runner `smal`",
                "instead": "did you mean `small`?",
            }],
        })
    );
}

#[test]
fn sarif_has_the_shape_that_code_scanning_reads() {
    let tree = tree(&[("my file.yml", BAD), ("warned.yml", WARNED)]);
    let output = lint(tree.path(), &["--format", "sarif", "my file.yml", "warned.yml"]);
    let sarif = json(&output);
    assert_eq!(sarif["version"], "2.1.0");
    let run = &sarif["runs"][0];
    assert_eq!(run["tool"]["driver"]["name"], "bullpen");
    let rules = run["tool"]["driver"]["rules"].as_array().expect("rules");
    let results = run["results"].as_array().expect("results");
    assert_eq!(results.len(), 2);
    for result in results {
        let index = result["ruleIndex"].as_u64().and_then(|index| usize::try_from(index).ok());
        assert_eq!(rules[index.expect("an index")]["id"], result["ruleId"]);
        assert!(["error", "warning", "note"].contains(&result["level"].as_str().expect("a level")));
        let region = &result["locations"][0]["physicalLocation"]["region"];
        assert!(
            region["startLine"].as_u64() >= Some(1) && region["startColumn"].as_u64() >= Some(1)
        );
    }
    let location = &results[0]["locations"][0]["physicalLocation"];
    assert_eq!(location["artifactLocation"]["uri"], "my%20file.yml");
    assert_eq!(location["region"], serde_json::json!({"startLine": 4, "startColumn": 19}));
}

#[test]
fn an_empty_result_is_still_json_and_sarif() {
    let tree = tree(&[("a.yml", GOOD)]);
    let output = lint(tree.path(), &["--format", "json", "a.yml"]);
    assert_eq!(json(&output)["findings"], serde_json::json!([]));
    let output = lint(tree.path(), &["--format", "sarif", "a.yml"]);
    assert_eq!(json(&output)["runs"][0]["results"], serde_json::json!([]));
}
