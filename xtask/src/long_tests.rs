//! The tests that take long, and so belong to the deep part of the gate.
//!
//! An entry names a test program, as in `bullpen/service`, and how the names of its long tests begin.
//! A test is listed when it kills processes again and again, when it runs many jobs at once, or when it is
//! among the slowest. What only the build with AWS has need not be listed.
//!
//! Not here: running them (`programs`).

/// The long tests: their program, and what their names begin with.
const LONG: &[(&str, &[&str])] = &[
    ("bullpen/demo", &["an_interrupted_one_leaves_nothing"]),
    ("bullpen/pools", &["killed::"]),
    ("bullpen/reuse", &["killed::", "cancelled::a_provision_that_is_cancelled_at_any_moment"]),
    ("bullpen/service", &["many_jobs::", "flood::", "killed::", "upgrade::"]),
    ("sim/crash_anywhere", &["a_provision_that_dies_at_any_await"]),
    ("sim/five_hundred_jobs", &["five_hundred_jobs_stay_within_githubs_limits"]),
    ("sim/githubs_hour", &["no_mint_waits_for_looking"]),
    ("sim/pools", &["rounds::"]),
];

/// Whether a test is a long one.
pub(crate) fn is_long(program: &str, test: &str) -> bool {
    let of_program = LONG.iter().filter(|(name, _)| *name == program);
    of_program.flat_map(|(_, prefixes)| *prefixes).any(|prefix| test.starts_with(prefix))
}

/// The entries that are the beginning of none of these tests, each as `program/test`.
pub(crate) fn unused(tests: &[String]) -> Vec<String> {
    let entries = LONG.iter().flat_map(|(program, prefixes)| {
        prefixes.iter().map(move |prefix| format!("{program}/{prefix}"))
    });
    entries.filter(|entry| !tests.iter().any(|test| test.starts_with(entry.as_str()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_long_by_its_program_and_how_its_name_begins() {
        assert!(is_long("bullpen/service", "killed::twenty_kills"));
        assert!(!is_long("bullpen/service", "jobs::a_job_that_was_killed::by_hand"));
        assert!(!is_long("core/bullpen_core", "killed::twenty_kills"));
    }

    #[test]
    fn an_entry_without_a_test_is_unused() {
        let all: Vec<String> = LONG
            .iter()
            .flat_map(|(program, prefixes)| {
                prefixes.iter().map(move |it| format!("{program}/{it}x"))
            })
            .collect();
        assert!(unused(&all).is_empty());
        assert_eq!(unused(&all[1..]), ["bullpen/demo/an_interrupted_one_leaves_nothing"]);
    }
}
