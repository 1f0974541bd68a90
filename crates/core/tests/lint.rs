//! Tests of the linter's findings about wrong files and about correct ones.
//!
//! Beside each file in `tests/lint` is a `.txt` file with exactly its findings; reviewers read the
//! differences. `BULLPEN_BLESS=1 cargo test -p bullpen-core --test lint` writes these files again.
//!
//! Not here: random files (`fuzz`).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use bullpen_core::config::{Finding, MappingShape, runs_on, stack};
use bullpen_core::severity::Severity;

#[expect(clippy::disallowed_methods, reason = "only a variable can pass an option to a test")]
fn blessing() -> bool {
    std::env::var("BULLPEN_BLESS").is_ok_and(|value| value == "1")
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lint")
}

fn lint(path: &Path) -> Vec<Finding> {
    let bytes = std::fs::read(path).expect("a readable file");
    if path.extension().is_some_and(|extension| extension == "toml") {
        return stack::read(&bytes, &BTreeMap::new()).into_parts().1;
    }
    runs_on::read(&bytes).into_parts().1
}

fn listed(findings: &[Finding]) -> String {
    let mut listed = String::new();
    for finding in findings {
        writeln!(listed, "{finding}").expect("writing to a string");
    }
    listed
}

#[test]
fn every_file_gets_exactly_the_findings_beside_it() {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension != "txt"));
    files.sort();
    assert!(files.len() > 20, "the test's files are missing");
    let mut differ = Vec::new();
    for path in files {
        let listed = listed(&lint(&path));
        let beside = path.with_extension("txt");
        if blessing() {
            std::fs::write(&beside, &listed).unwrap();
        }
        let expected = std::fs::read_to_string(&beside).unwrap_or_default();
        if listed != expected {
            differ.push(format!("{}:\n{listed}instead of\n{expected}", path.display()));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

#[test]
fn every_bad_file_is_refused_or_warned_of() {
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.extension().is_some_and(|extension| extension == "txt") || name.starts_with("good-")
        {
            continue;
        }
        assert!(!lint(&path).is_empty(), "the linter finds nothing in {name}");
    }
}

#[test]
fn the_seeds_example_has_one_warning_and_no_error() {
    let bytes = std::fs::read(folder().join("good-example.yml")).unwrap();
    let read = runs_on::read(&bytes);
    let graver: Vec<&Finding> =
        read.findings().iter().filter(|finding| finding.severity > Severity::Note).collect();
    assert_eq!(graver.len(), 1, "{graver:?}");
    assert_eq!((graver[0].code, graver[0].severity), ("deprecated-key", Severity::Warning));
    let config = read.value().expect("no error");
    let (name, pool) = config.pools.first_key_value().unwrap();
    assert_eq!((name.as_str(), pool.env.as_str()), ("small-x64", "dev"));
    assert_eq!((pool.schedule.zone.as_str(), pool.schedule.entries.len()), ("Europe/Paris", 3));
    let runner = &config.runners[&pool.runner];
    assert_eq!(runner.ram.unwrap().min_mib, 1_024);
    assert_eq!(runner.family[0].as_str(), "t3*");
    assert_eq!(runner.volume.as_ref().unwrap().size_gb, Some(30));
}

/// A file with the line `KEY: 1` in a mapping of this shape.
fn around(shape: &MappingShape) -> &'static str {
    match shape.name {
        "the file" => "KEY: 1\n",
        "a runner" => "runners:\n  a:\n    KEY: 1\n",
        "an image" => "images:\n  a:\n    KEY: 1\n",
        "a pool" => "pools:\n  a:\n    KEY: 1\n",
        "an entry of `schedule`" => "pools:\n  a:\n    schedule:\n      - KEY: 1\n",
        "`match`" => "pools:\n  a:\n    schedule:\n      - match:\n          KEY: 1\n",
        "`x-bullpen`" => "x-bullpen:\n  KEY: 1\n",
        "`x-bullpen.runners.<name>`" => "x-bullpen:\n  runners:\n    a:\n      KEY: 1\n",
        "`reuse`" => "x-bullpen:\n  runners:\n    a:\n      reuse:\n        KEY: 1\n",
        "`x-bullpen.pools.<name>`" => "x-bullpen:\n  pools:\n    a:\n      KEY: 1\n",
        "`labels`" => "x-bullpen:\n  labels:\n    KEY: 1\n",
        "a repository's `labels`" => {
            "x-bullpen:\n  labels:\n    repositories:\n      o/r:\n        KEY: 1\n"
        }
        "a list of `labels.plain`" => "x-bullpen:\n  labels:\n    plain:\n      - KEY: 1\n",
        "`labels.max`" => "x-bullpen:\n  labels:\n    max:\n      KEY: 1\n",
        other => panic!("the test has no file for {other}"),
    }
}

/// The key with one letter doubled, dropped, or swapped with its neighbour.
fn misspelt(key: &str) -> Vec<String> {
    let letters: Vec<char> = key.chars().collect();
    let mut wrong = Vec::new();
    for at in 0..letters.len() {
        let mut doubled = letters.clone();
        doubled.insert(at, letters[at]);
        let mut dropped = letters.clone();
        dropped.remove(at);
        let mut swapped = letters.clone();
        swapped.swap(at, (at + 1).min(letters.len() - 1));
        wrong.extend([doubled, dropped, swapped].map(String::from_iter));
    }
    wrong
}

#[test]
fn every_misspelt_key_in_every_mapping_is_found_at_its_place() {
    let mut tried = 0;
    for shape in runs_on::SHAPES {
        for key in shape.keys {
            for wrong in misspelt(key.name) {
                // A misspelling may be another key, or empty.
                if wrong.is_empty() || shape.keys.iter().any(|key| key.name == wrong) {
                    continue;
                }
                if shape.name == "the file" && wrong.starts_with("x-") && key.name != "x-bullpen" {
                    continue;
                }
                tried += 1;
                check_slip(shape, key.name, &wrong);
            }
        }
    }
    assert!(tried > 800, "{tried}");
}

/// The column of the key in the last line.
fn column_of_quote(file: &str) -> u32 {
    let quote = file.lines().last().and_then(|line| line.find('"')).expect("a quoted key");
    u32::try_from(quote + 1).expect("a short line")
}

fn check_slip(shape: &MappingShape, right: &str, wrong: &str) {
    let file = around(shape).replace("KEY", &format!("{wrong:?}"));
    let line = u32::try_from(file.lines().count()).expect("a short file");
    let findings = runs_on::read(file.as_bytes()).into_parts().1;
    let place = (line, "unknown-key");
    let found = findings.iter().find(|finding| (finding.mark.line, finding.code) == place);
    let found =
        found.unwrap_or_else(|| panic!("{wrong} for {right} in {}: {findings:?}", shape.name));
    let is_top = shape.name == "the file";
    let (grave, column) =
        if is_top { (Severity::Warning, 1) } else { (Severity::Error, column_of_quote(&file)) };
    assert_eq!(found.severity, grave, "{found}");
    assert_eq!(found.mark.column, column, "{found}");
    let instead = found.instead.as_deref().unwrap_or_default();
    // A short key may get no suggestion: one change is too much of it.
    assert!(
        instead.starts_with("did you mean") || right.len() <= 4 || instead.contains("belongs"),
        "{found}"
    );
}

#[test]
fn a_secret_that_was_written_down_is_not_repeated() {
    for name in ["stack-secrets.toml", "stack-misspelt.toml"] {
        let path = folder().join(name);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("this_must_not_be_shown"), "{name}");
        assert!(!listed(&lint(&path)).contains("must_not_be_shown"), "{name}");
    }
}
