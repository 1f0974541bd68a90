//! Tests of the written files, byte by byte; no value can end its own block.
//!
//! Not here: the runner that reads them (`tests/action.rs`).

use proptest::prelude::*;

use super::*;

fn provisioned() -> Provisioned {
    Provisioned {
        request: RequestId::new("7.1.a"),
        label: "warm-7.1.a".to_owned(),
        requested: 3,
        reused: 1,
        started: 0,
        created: 2,
        instances: ["i-1", "i-2", "i-3"].map(InstanceId::new).into(),
        timings: vec![("select".to_owned(), Duration::from_millis(1_500))],
    }
}

/// Parses the file as the runner does: a block ends at the first line that is its delimiter.
fn read(text: &str) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    let mut rest = text;
    while let Some((head, tail)) = rest.split_once('\n') {
        let (name, delimiter) = head.split_once("<<").expect("a head");
        let end = format!("\n{delimiter}\n");
        // The value of a block may be empty, so its own line break may be the head's.
        let whole = format!("\n{tail}");
        let (value, after) = whole.split_once(&end).expect("an end");
        pairs.push((name.to_owned(), value.strip_prefix('\n').unwrap_or(value).to_owned()));
        rest = &tail[tail.len() - after.len()..];
    }
    pairs
}

#[test]
fn outputs_and_the_summary_are_appended() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let environment = Environment::from([
        ("GITHUB_OUTPUT".to_owned(), path("output")),
        ("GITHUB_STEP_SUMMARY".to_owned(), path("summary")),
    ]);
    std::fs::write(path("output"), "before=1\n").unwrap();
    let files = OutputFiles::of(&environment);
    files.begin(&RequestId::new("7.1.a")).unwrap();
    files.begun("warm-7.1.a").unwrap();
    let begun = "before=1\nrequest<<BULLPEN\n7.1.a\nBULLPEN\nlabel<<BULLPEN\nwarm-7.1.a\nBULLPEN\n";
    assert_eq!(std::fs::read_to_string(path("output")).unwrap(), begun);
    files.finish(&provisioned()).unwrap();
    let output = std::fs::read_to_string(path("output")).unwrap();
    let expected = [
        ("label", "warm-7.1.a"),
        ("request", "7.1.a"),
        ("requested", "3"),
        ("reused", "1"),
        ("started", "0"),
        ("created", "2"),
        ("instances", "[\"i-1\",\"i-2\",\"i-3\"]"),
        ("timings", "{\"select_ms\":1500}"),
    ];
    let expected: Vec<_> = expected.map(|(n, v)| (n.to_owned(), v.to_owned())).into();
    assert_eq!(read(output.strip_prefix(begun).unwrap()), expected);
    let summary = std::fs::read_to_string(path("summary")).unwrap();
    assert!(!summary.contains("warm-7.1.a"), "all who read the repository see it: {summary}");
}

#[test]
fn outside_of_a_workflow_nothing_is_written() {
    let empty = Environment::from([("GITHUB_OUTPUT".to_owned(), String::new())]);
    let nowhere = OutputFiles { output: None, summary: None };
    assert_eq!(OutputFiles::of(&empty), nowhere);
    nowhere.finish(&provisioned()).unwrap();
}

#[test]
fn secrets_are_masked_in_github_actions_and_nowhere_else() {
    let secret = Secret::new("100%\nsecret");
    let actions = Environment::from([("GITHUB_ACTIONS".to_owned(), "true".to_owned())]);
    assert_eq!(masks(&[&secret], &actions), ["::add-mask::100%25%0Asecret"]);
    assert_eq!(masks(&[&secret], &Environment::new()), [""; 0]);
}

proptest! {
    #[test]
    fn a_value_cannot_end_its_own_block(value in "(BULLPEN_{0,3}|\n|x|<<|name){0,8}") {
        let pairs = [("a", value), ("b", "after".to_owned())];
        let expected = pairs.clone().map(|(name, value)| (name.to_owned(), value));
        prop_assert_eq!(read(&blocks(&pairs)), expected);
    }
}
