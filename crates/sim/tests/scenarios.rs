//! Plays every scenario: its transcript must equal its file, line by line.
//!
//! `BULLPEN_BLESS=1 cargo test -p bullpen-sim --test scenarios` rewrites the transcripts; reviewers
//! read the differences. A failed expectation or a violated invariant still fails the test.
//!
//! Not here: the language (`docs/scenarios.md`), worlds drawn from seeds (`kept_seeds`).

use std::path::{Path, PathBuf};

use bullpen_sim::scenario::{Script, difference, run};

#[expect(clippy::disallowed_methods, reason = "a developer asks for it with a variable")]
fn rewrites_transcripts() -> bool {
    std::env::var("BULLPEN_BLESS").is_ok_and(|value| value == "1")
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let entries = std::fs::read_dir(folder).expect("the folder is checked in");
    let mut files: Vec<PathBuf> =
        entries.map(|entry| entry.expect("a readable folder").path()).collect();
    files.sort();
    files
}

/// The problem of one file, if it has any.
fn play(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).expect("a readable file");
    let script = match Script::parse(&text) {
        Ok(script) => script,
        Err(error) => return Some(error.to_string()),
    };
    if !script.expects_something() {
        return Some(String::from("the scenario expects nothing, so it cannot fail"));
    }
    let played = run(&script, false);
    if let Some(broken) = played.broken {
        return Some(format!("{}{broken}", played.transcript));
    }
    if rewrites_transcripts() {
        std::fs::write(path, &played.transcript).expect("a writable file");
        return None;
    }
    difference(&text, &played.transcript)
}

#[test]
fn every_scenario_happens_as_its_file_says() {
    let files = files();
    assert!(files.len() >= 5, "the scenario files are missing");
    let wrong: Vec<String> = files
        .iter()
        .filter_map(|path| Some(format!("{}:\n{}", path.display(), play(path)?)))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn the_same_scenario_is_always_played_alike() {
    for path in files().into_iter().take(4) {
        let script = Script::parse(&std::fs::read_to_string(path).unwrap()).unwrap();
        let (first, second) = (run(&script, true), run(&script, true));
        assert_eq!(first.transcript, second.transcript);
        assert_eq!(first.trace, second.trace);
        assert!(!first.trace.is_empty());
    }
}

/// `docs/scenarios.md` names every scenario, and its example plays as shown.
#[test]
fn the_page_matches_the_scenarios() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/scenarios.md");
    let page = std::fs::read_to_string(page).expect("the page is checked in");
    for path in files() {
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name that is text");
        assert!(page.contains(&format!("| `{name}` |")), "the page does not name {name}");
    }
    let rows = page.lines().filter(|line| line.ends_with('|') && line.contains('_')).count();
    assert_eq!(rows, files().len(), "the page names a missing scenario");
    let (_, example) = page.split_once("```text\n").expect("there is an example");
    let (example, _) = example.split_once("```").expect("it ends");
    let played = run(&Script::parse(example).expect("it can be read"), false);
    assert_eq!(difference(example, &played.transcript), None);
    assert!(played.broken.is_none());
}

fn broken(script: &str) -> String {
    let played = run(&Script::parse(script).expect("it can be read"), false);
    played.broken.expect("the scenario must fail").to_string()
}

#[test]
fn a_failed_expectation_is_reported_with_its_line() {
    for (script, message) in [
        ("idle 2\nprovision 7.1.a count=2\nexpect reused=1", "line 3, "),
        ("idle 2\nprovision 7.1.a count=2\nexpect reused=1", "expected reused=1, found reused=2"),
        (
            "provision 7.1.a\nexpect unfulfilled",
            "expected it to be unfulfilled, and it is fulfilled",
        ),
        ("provision 7.1.a\nexpect within=1s", "expected it to take 1s at most"),
        ("idle 1\nexpect m1 running", "expected m1 to be running, and it is idle"),
        ("expect m1 idle", "there is no m1 yet"),
        ("expect reused=1", "nothing has ended yet"),
        ("await 7.1.a", "nothing was begun for 7.1.a"),
        ("provision 7.1.a class=tiny", "there is no such class (one of: large, xlarge)"),
        ("meanwhile provision 7.1.a\nquiet", "7.1.a is still under way; await it first"),
        ("ceiling 2\nidle 3", "the ledger granted no capacity"),
        ("jobs 1 of=7.1.a lasts=5s\nawait jobs of=7.1.a within=1m", "still wait or run"),
    ] {
        let failure = broken(script);
        assert!(failure.contains(message), "{script:?}: {failure}");
    }
}

/// A scenario without upkeep leaves an orphan; the checker names the machine and its history.
#[test]
fn a_violated_invariant_is_named_with_the_history_of_its_machine() {
    let failure = broken("provision 7.1.a dies-at=fleet#1\npass 2h\nexpect machines alive=1");
    assert!(failure.starts_with("line 2, "), "{failure}");
    assert!(failure.contains("invariant 2 (Conservation) on i-"), "{failure}");
    assert!(failure.contains(" launched i-"), "{failure}");
}
