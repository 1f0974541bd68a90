//! Checks that seeds, scenarios and tests find every planted bug, and seeds within a bounded
//! number.
//!
//! A build with `--cfg sabotage` contains the bugs; in a build without it the gate's seeds must be
//! clean. Threads search in parallel: the active bug is a property of the thread.
//!
//! Not here: the list of bugs (`table`).

#[cfg(sabotage)]
#[path = "incarnation.rs"]
mod incarnation;
#[cfg(sabotage)]
#[path = "jobs/main.rs"]
mod jobs;
#[cfg(sabotage)]
#[path = "pools/main.rs"]
mod pools;
#[cfg(sabotage)]
#[path = "strangers.rs"]
mod strangers;
#[cfg(sabotage)]
mod table;

#[cfg(sabotage)]
#[expect(clippy::print_stdout, reason = "a developer wants to see how soon each bug is found")]
mod with_bugs {
    use std::fs;
    use std::panic;
    use std::path::Path;
    use std::sync::Mutex;

    use bullpen_core::sabotage;
    use bullpen_sim::kernel;
    use bullpen_sim::scenario::{self, Script};

    use super::pools::side_by_side::side_by_side;
    use super::table::jobs::{self, SCENARIO_BUGS, ScenarioBug};
    use super::table::{BUGS, Bug};
    use super::table::{githubs_hour, pools, strangers};

    /// A checker that needs more seeds than this is too weak.
    const SEEDS_MAX: u64 = 300;

    /// Returns a line with the first seed that finds the bug; the error says what is wrong.
    fn find(bug: &Bug) -> Result<String, String> {
        let found = (0..SEEDS_MAX)
            .find_map(|seed| sabotage::with(bug.name, || kernel::run(seed, false)).err());
        let Some(failure) = found else {
            return Err(format!("{}: not found in {SEEDS_MAX} seeds", bug.name));
        };
        if !bug.found_as.contains(&failure.violation.invariant) {
            return Err(format!("{}: found, but as {failure}", bug.name));
        }
        Ok(format!("{}: seed {}, {}", bug.name, failure.seed, failure.violation))
    }

    /// Plays the bug's scenario, which must fail; returns a line with its failure.
    fn play(bug: &ScenarioBug) -> Result<String, String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
        let path = folder.join(bug.scenario).with_extension("txt");
        let text = fs::read_to_string(path).expect("the scenario is checked in");
        let script = Script::parse(&text).expect("it can be read");
        let played = sabotage::with(bug.name, || scenario::run(&script, false));
        match played.broken {
            Some(broken) => Ok(format!("{}: {}, {broken}", bug.name, bug.scenario)),
            None => Err(format!("{}: {} still passes", bug.name, bug.scenario)),
        }
    }

    #[test]
    fn every_bug_of_a_scenario_is_found_by_it() {
        let mut wrong = Vec::new();
        for bug in SCENARIO_BUGS {
            match play(bug) {
                Ok(line) => println!("{line}"),
                Err(line) => wrong.push(line),
            }
            assert!(!bug.mistake.is_empty());
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn every_bug_of_a_test_makes_it_fail() {
        let mut wrong = Vec::new();
        let bugs = pools::BUGS.iter().chain(strangers::BUGS).chain(githubs_hour::BUGS);
        for bug in bugs.chain(jobs::TEST_BUGS) {
            let fails = sabotage::with(bug.name, || panic::catch_unwind(bug.test).is_err());
            if fails {
                println!("{}: its test fails", bug.name);
            } else {
                wrong.push(format!("{}: its test still passes", bug.name));
            }
            assert!(!bug.mistake.is_empty());
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// All bugs that seeds find.
    fn bugs() -> Vec<&'static Bug> {
        BUGS.iter().chain(jobs::BUGS).collect()
    }

    #[test]
    fn every_planted_bug_is_found() {
        let bugs = bugs();
        let wrong = Mutex::new(Vec::new());
        side_by_side(&bugs, |bug| match find(bug) {
            Ok(line) => println!("{line}"),
            Err(line) => wrong.lock().unwrap().push(line),
        });
        let wrong = wrong.into_inner().unwrap();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn every_bug_is_planted_once() {
        let bugs = bugs();
        for (index, bug) in bugs.iter().enumerate() {
            let twins = bugs[..index].iter().filter(|other| other.name == bug.name);
            assert_eq!(twins.count(), 0, "{} is in the table twice", bug.name);
            assert!(!bug.mistake.is_empty());
        }
    }
}
