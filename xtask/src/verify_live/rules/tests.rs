//! The rules on made-up scripts, and checks of the real scripts by bash and shellcheck.

use std::path::PathBuf;
use std::process::Command;

use super::*;
use crate::place::{Place, variable};
use crate::shellcheck;

const SCRIPT: &str = "#!/usr/bin/env bash\n\
    # Entry: 1. One\n\
    # Does: This.\n\
    # Tools: aws\n\
    # Variables: AWS_REGION\n\
    # Touches: Nothing.\n\
    # Costs: Nothing.\n\
    set -euo pipefail\n\
    trap finish EXIT\n";
const PATH: &str = "scripts/verify-live/01-one.sh";
const LIST: &str =
    "# Unverified\n\n## 1. One\n\nText.\n\n*Script:* scripts/verify-live/01-one.sh\n";

fn file(path: &str, text: &str) -> File {
    File { path: path.to_owned(), text: text.to_owned() }
}

/// The findings on a list, a script and its explanation.
fn said(list: &str, path: &str, script: &str) -> Vec<String> {
    let readme = file(README, "| `AWS_REGION` | where |\n");
    let files = [file(DOCUMENT, list), readme, file(path, script)];
    check(&files).into_iter().map(|finding| finding.text).collect()
}

/// Asserts that there is one finding, with this text.
fn one(list: &str, path: &str, script: &str, part: &str) {
    let said = said(list, path, script);
    assert!(said.len() == 1 && said[0].contains(part), "{said:?}");
}

#[test]
fn an_entry_with_its_script_is_fine() {
    assert_eq!(said(LIST, PATH, SCRIPT), [""; 0]);
}

#[test]
fn every_entry_has_one_script_and_every_script_one_entry() {
    let two = format!("{LIST}\n## 2. Two\n\nText.\n\n*Script:* none\n");
    one(&two, PATH, SCRIPT, "`2. Two` has no script");
    let renamed = LIST.replace("1. One", "1. Eins");
    assert_eq!(said(&renamed, PATH, SCRIPT).len(), 2);
    one(&LIST.replace("01-one", "01-other"), PATH, SCRIPT, "does not end with");
    one(&format!("{LIST}\nMore.\n"), PATH, SCRIPT, "does not end with");
    let other = "scripts/verify-live/02-one.sh";
    one(&LIST.replace("01-one", "02-one"), other, SCRIPT, "its number");
}

#[test]
fn a_script_fails_early_and_cleans_up() {
    one(LIST, PATH, &SCRIPT.replace("set -euo pipefail\n", "set -e\n"), "set -euo pipefail");
    one(LIST, PATH, &SCRIPT.replace("trap finish EXIT\n", ""), "trap");
}

#[test]
fn a_script_says_what_it_does_and_needs() {
    one(LIST, PATH, &SCRIPT.replace("# Costs: Nothing.\n", ""), "`# Costs:`");
    let more = SCRIPT.replace("AWS_REGION\n", "AWS_REGION\n# Optional: OTHER\n");
    one(LIST, PATH, &more, "does not explain `OTHER`");
}

#[test]
fn a_script_talks_to_github_and_aws_alone() {
    let with = |line: &str| format!("{SCRIPT}{line}\n");
    for fine in [
        "curl https://api.github.com/repos",
        "curl \"https://s3.$region.$domain/x\"",
        "curl http://169.254.169.254/latest",
        "https://ec2.us-east-1.amazonaws.com/",
        "a scheme://of-its-own",
    ] {
        assert_eq!(said(LIST, PATH, &with(fine)), [""; 0], "{fine}");
    }
    one(LIST, PATH, &with("curl https://example.org/x"), "example.org");
    one(LIST, PATH, &with("curl https://api.github.com.example.org/x"), "example.org");
}

/// The repository's own scripts and their libraries.
fn ours(place: &Place) -> Vec<PathBuf> {
    let root = place.root.join(SCRIPTS);
    let mut paths = Vec::new();
    for directory in [root.clone(), root.join("lib")] {
        let entries = std::fs::read_dir(directory).unwrap();
        paths.extend(entries.map(|entry| entry.unwrap().path()));
    }
    paths.retain(|path| path.to_str().is_some_and(is_shell));
    paths.sort();
    assert!(paths.len() > 1, "no scripts were found in {}", root.display());
    paths
}

#[test]
fn bash_takes_every_script() {
    for path in ours(&Place::find().unwrap()) {
        let output = Command::new("bash").arg("-n").arg(&path).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{}: {said}", path.display());
    }
}

#[test]
fn shellcheck_has_nothing_against_the_scripts() {
    let place = Place::find().unwrap();
    let named = variable(shellcheck::VARIABLE).map(PathBuf::from);
    let program = named.unwrap_or_else(|| shellcheck::TOOL.program(&place).unwrap());
    let output = Command::new(program).args(ours(&place)).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
