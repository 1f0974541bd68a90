//! Every scenario, played: what happens must be what its file says, line by line.
//!
//! `BULLPEN_BLESS=1 cargo test -p bullpen-sim --test scenarios` writes the transcripts anew; the
//! differences are read in review. An expectation that does not hold, or an invariant that is
//! violated, fails all the same.
//!
//! Not here: the language (`docs/scenarios.md`), worlds drawn from seeds (`kept_seeds`).

use std::path::{Path, PathBuf};

use bullpen_sim::scenario::{Script, difference, run};

#[expect(clippy::disallowed_methods, reason = "a developer's wish reaches a test no other way")]
fn blessing() -> bool {
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

/// What is wrong with one file, if anything is.
fn play(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).expect("a readable file");
    let script = match Script::parse(&text) {
        Ok(script) => script,
        Err(error) => return Some(error.to_string()),
    };
    if !script.expects_something() {
        return Some(String::from("it expects nothing, so it cannot fail"));
    }
    let played = run(&script, false);
    if let Some(broken) = played.broken {
        return Some(format!("{}{broken}", played.transcript));
    }
    if blessing() {
        std::fs::write(path, &played.transcript).expect("a writable file");
        return None;
    }
    difference(&text, &played.transcript)
}

#[test]
fn every_scenario_happens_as_its_file_says() {
    let files = files();
    assert!(files.len() >= 5, "the files have gone");
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

/// `docs/scenarios.md` names every story, and its example is one that happens.
#[test]
fn the_page_tells_the_truth() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/scenarios.md");
    let page = std::fs::read_to_string(page).expect("the page is checked in");
    for path in files() {
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name that is text");
        assert!(page.contains(&format!("| `{name}` |")), "the page does not name {name}");
    }
    let rows = page.lines().filter(|line| line.ends_with('|') && line.contains('_')).count();
    assert_eq!(rows, files().len(), "the page names what is not there");
    let (_, example) = page.split_once("```text\n").expect("there is an example");
    let (example, _) = example.split_once("```").expect("it ends");
    let played = run(&Script::parse(example).expect("it can be read"), false);
    assert_eq!(difference(example, &played.transcript), None);
    assert!(played.broken.is_none());
}

fn broken(script: &str) -> String {
    let played = run(&Script::parse(script).expect("it can be read"), false);
    played.broken.expect("it cannot be so").to_string()
}

#[test]
fn what_does_not_hold_is_told_with_its_line() {
    for (script, says) in [
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
        let told = broken(script);
        assert!(told.contains(says), "{script:?}: {told}");
    }
}

/// A story without upkeep leaves an orphan behind; the checker names the machine and its history.
#[test]
fn a_violated_invariant_is_named_with_the_history_of_its_machine() {
    let told = broken("provision 7.1.a dies-at=fleet#1\npass 2h\nexpect machines alive=1");
    assert!(told.starts_with("line 2, "), "{told}");
    assert!(told.contains("invariant 2 (Conservation) on i-"), "{told}");
    assert!(told.contains(" launched i-"), "{told}");
}
