//! Fuzz tests of configuration files: arbitrary bytes, damaged examples, and texts made of YAML's
//! marks.
//!
//! For any bytes, reading must end and report why there is no value, and every finding must have a
//! place in the text.
//!
//! Not here: the pools beside a broken pool (`broken_pools`), or findings in files that people
//! write (`tests/lint`).

use std::collections::BTreeMap;

use bullpen_core::config::{
    Config, ConfigRead, RUNS_ON_BYTES_MAX, STACK_BYTES_MAX, Stack, runs_on, stack,
};
use bullpen_core::severity::Severity;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::damage::damaged;
use super::{factor, fuzz};

const RUNS_ON: &[&str] = &[
    include_str!("../lint/good-example.yml"),
    include_str!("../lint/good-everything.yml"),
    include_str!("../lint/misspelt-x-bullpen.yml"),
    include_str!("../lint/days-and-times.yml"),
    include_str!("../lint/merge.yml"),
];
const STACK: &[&str] = &[stack::DEFAULTS, include_str!("../lint/good-stack.toml")];

/// Parts of YAML texts, ordinary and hostile, separated by spaces.
const TOKENS: &str = r#"runners: pools: x-bullpen: schedule: match: hot: cpu:2+4 a: b [ ] { } , :
    - ? --- ... " ' | >- &a *a <<: ! !!str !!map # %YAML %TAG \x \u00 é ~ @ ` 0 1.5 true"#;
const BLANKS: &[&str] =
    &[" ", "\n", "  ", "\n  ", "\n    - ", "\t", "\u{feff}", "\0", "\r", "\u{85}"];

fn errors<T>(read: &ConfigRead<T>) -> usize {
    read.findings().iter().filter(|finding| finding.severity == Severity::Error).count()
}

/// An error must either refuse the file or mark its pool as broken.
fn is_sound_config(read: &ConfigRead<Config>, text: &[u8]) {
    let findings = read.findings();
    if let Some(config) = read.value() {
        assert_eq!(config.broken.is_empty(), errors(read) == 0, "{findings:?}");
        assert!(config.pools.keys().all(|pool| !config.broken.contains(pool)), "{config:?}");
    } else {
        assert!(errors(read) > 0, "no finding explains why there is no value");
    }
    places_are_sound(read, text);
}

fn is_sound_stack(read: &ConfigRead<Stack>, text: &[u8]) {
    assert_eq!(read.value().is_some(), errors(read) == 0, "{:?}", read.findings());
    places_are_sound(read, text);
}

fn places_are_sound<T>(read: &ConfigRead<T>, text: &[u8]) {
    let findings = read.findings();
    let lines = 2 + text.iter().filter(|byte| [b'\n', b'\r'].contains(byte)).count();
    for finding in findings {
        assert!(finding.mark.line >= 1 && finding.mark.column >= 1, "{finding}");
        assert!(usize::try_from(finding.mark.line).is_ok_and(|line| line <= lines), "{finding}");
        assert!(!finding.message.is_empty() && !finding.to_string().contains('\n'), "{finding:?}");
    }
}

fn read_both(bytes: &[u8]) {
    is_sound_config(&runs_on::read(bytes), bytes);
    is_sound_stack(&stack::read(bytes, &BTreeMap::new()), bytes);
}

#[test]
fn arbitrary_bytes_are_no_configuration() {
    fuzz(&vec(any::<u8>(), 0..256), |bytes| {
        read_both(&bytes);
        Ok(())
    });
}

#[test]
fn damaged_files_are_read_or_refused() {
    fuzz(&damaged(RUNS_ON), |bytes| {
        is_sound_config(&runs_on::read(&bytes), &bytes);
        Ok(())
    });
    fuzz(&damaged(STACK), |bytes| {
        is_sound_stack(&stack::read(&bytes, &BTreeMap::new()), &bytes);
        Ok(())
    });
}

#[test]
fn texts_made_of_yamls_own_marks_are_read_or_refused() {
    let words: Vec<&str> = TOKENS.split_whitespace().collect();
    let token = prop_oneof![2 => select(words), 1 => select(BLANKS)];
    fuzz(&vec(token, 0..32).prop_map(|tokens| tokens.concat()), |text| {
        read_both(text.as_bytes());
        Ok(())
    });
}

#[test]
fn variables_of_any_content_are_read_or_refused() {
    let variables = select(vec![
        "BULLPEN_STACK_NAME",
        "BULLPEN_AWS_SUBNETS",
        "BULLPEN_GITHUB_TOKEN",
        "BULLPEN_LISTENERS_ADMIN",
        "BULLPEN_LIMITS_HEARTBEAT",
        "BULLPEN_LIMITS_",
        "BULLPEN_CEILINGS_POOLS",
    ]);
    fuzz(&(variables, ".{0,24}"), |(name, text)| {
        let environment = BTreeMap::from([(name.to_owned(), text)]);
        let read = stack::read(b"[stack]\n", &environment);
        for finding in read.findings() {
            let named = finding.mark.line > 0 || finding.message.starts_with(name);
            prop_assert!(named, "{finding}");
        }
        Ok(())
    });
}

/// A part of the maximum size, because in a debug build the whole would take half a minute. A run
/// with a larger factor takes all of it.
fn part_of(bytes_max: usize) -> usize {
    if factor() > 1 { bytes_max } else { bytes_max / 16 }
}

#[test]
fn long_texts_of_one_hostile_unit_end() {
    let units = "[ { -_ ?_ a:_ &a_ {--- [a, {a:_ *a_ \" ' |/ -_-_a/ a:/ a:_b/ ---/ [[a]:_ :/ ?/ -/ \
                 &a_[*a, <<:_{}/ !<a";
    for unit in units.split(' ') {
        let unit = unit.replace('_', " ").replace('/', "\n");
        let text = unit.repeat(part_of(RUNS_ON_BYTES_MAX) / unit.len());
        is_sound_config(&runs_on::read(text.as_bytes()), text.as_bytes());
    }
    for unit in "[ { a=[ [a]/ [[a]]/ a. a=1/ \" ' a={ [a. 'ü'=1/".split(' ') {
        let unit = unit.replace('/', "\n");
        let text = unit.repeat(part_of(STACK_BYTES_MAX) / unit.len());
        is_sound_stack(&stack::read(text.as_bytes(), &BTreeMap::new()), text.as_bytes());
    }
}

/// Each unknown name could be compared with each known name; without a bound this took minutes.
#[test]
fn many_names_that_are_nearly_known_end() {
    let count = part_of(RUNS_ON_BYTES_MAX) / 64;
    let lines = |line: &dyn Fn(usize) -> String| (0..count).map(line).collect::<String>();
    let runners = lines(&|number| format!("  runner{number}: {{}}\n"));
    let pools =
        lines(&|number| format!("  p{number}: {{runner: runnr{number}, timezone: Pari}}\n"));
    let keys = lines(&|number| format!("    cpu{number}: 1\n"));
    for text in [
        format!("runners:\n{runners}pools:\n{pools}"),
        format!("runners:\n  a:\n{keys}"),
        format!("pools:\n  a:\n{keys}"),
    ] {
        let read = runs_on::read(text.as_bytes());
        assert!(errors(&read) > 0 && read.findings().len() <= 1_001);
        is_sound_config(&read, text.as_bytes());
    }
}
