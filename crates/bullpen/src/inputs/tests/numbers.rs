//! Tests of every number and duration with every kind of wrong value.
//!
//! Not here: the meaning of legal values (`provision`, `refresh`).

use super::*;

/// Values that are not whole numbers (instance-count: 2.5, -1 and Infinity used to be an
/// `Invalid array length`; D34: a stored 0 used to read as nothing).
const WRONG: &[&str] = &[
    "0",
    "-1",
    "-0",
    "+1",
    "2.5",
    "1.0",
    "1e3",
    "0x10",
    "NaN",
    "Infinity",
    "-Infinity",
    " ",
    "\t\n",
    "",
    "1 2",
    "1,000",
    "ten",
    "4294967296",
    "99999999999999999999999",
    "١",
    "½",
    "--json",
];

/// The command, the input, and its largest value.
type Read = fn(&[&str], &[(&str, &str)]) -> Result<(), String>;
const NUMBERS: &[(Read, &str, u32)] = &[
    (|flags, pairs| provision(flags, pairs).map(drop), "instance-count", 1_000),
    (|flags, pairs| provision(flags, pairs).map(drop), "count", 1_000),
    (|flags, pairs| provision(flags, pairs).map(drop), "max-runtime-min", 50_400),
    (|flags, pairs| refresh(flags, pairs).map(drop), "idle-time-sec", 604_800),
    (|flags, pairs| refresh(flags, pairs).map(drop), "max-runtime-min", 50_400),
    (|flags, pairs| refresh(flags, pairs).map(drop), "github-reg-token-refresh-min", 59),
];

#[test]
fn a_wrong_number_is_refused_with_its_place_its_value_and_the_legal_range() {
    for (read, name, most) in NUMBERS {
        let beyond = (most + 1).to_string();
        for wrong in WRONG.iter().copied().chain([beyond.as_str()]) {
            let flag = format!("--{name}");
            let error = read(&[&flag, wrong], &[]).unwrap_err();
            let legal = format!("is not a whole number from 1 to {most}");
            assert_eq!(error, format!("{flag}: {wrong:?} {legal}"));
            let hyphens = format!("INPUT_{}", name.to_uppercase());
            let underscores = hyphens.replace('-', "_");
            for variable in [&hyphens, &underscores] {
                let answer = read(&[], &[(variable, wrong)]);
                let expected = if wrong.is_empty() {
                    Ok(())
                } else {
                    Err(format!("{variable}: {wrong:?} {legal}"))
                };
                assert_eq!(answer, expected);
            }
        }
    }
}

#[test]
fn the_ends_of_each_range_are_legal_with_white_space_around() {
    for (read, name, most) in NUMBERS {
        let flag = format!("--{name}");
        for right in ["1", " 1\n", &most.to_string()] {
            assert_eq!(read(&[&flag, right], &[]), Ok(()), "{flag} {right}");
        }
    }
}

#[test]
fn a_wrong_duration_is_refused_the_same_way() {
    for wrong in [
        "0s",
        "0m0s",
        "-5m",
        "5",
        "5 m",
        "1.5h",
        "5M",
        "25h",
        "NaN",
        "",
        " ",
        "999999999999999999d",
    ] {
        let error = provision(&["--deadline", wrong], &[]).unwrap_err();
        let legal = "a positive duration such as 90s, 10m or 1h30m, up to 1d";
        assert_eq!(error, format!("--deadline: {wrong:?} is not {legal}"));
    }
    let long = provision(&["--deadline", &"9".repeat(1_000)], &[]).unwrap_err();
    assert!(long.len() < 200, "{long}");
}

#[test]
fn a_wrong_answer_to_yes_or_no_is_refused() {
    for (name, read) in [("on-demand-fallback", NUMBERS[0].0), ("dry-run", NUMBERS[3].0)] {
        for wrong in ["yes", "1", "", " ", "tru"] {
            let flag = format!("--{name}={wrong}");
            let error = read(&[&flag], &[]).unwrap_err();
            assert_eq!(error, format!("--{name}: {wrong:?} is not true or false"));
        }
    }
}
