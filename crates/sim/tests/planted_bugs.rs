//! Every planted bug is found, by the checker that should find it, within a bounded number of seeds.
//!
//! Built with `--cfg sabotage` the bugs are there to be found; built without, the same seeds must be
//! clean, which the gate's seeds show. Bugs are looked for side by side: which one is active is a
//! matter of the thread.

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
#[expect(clippy::print_stdout, reason = "how soon each bug is found is worth seeing")]
mod with_bugs {
    use std::fs;
    use std::panic;
    use std::path::Path;
    use std::sync::Mutex;

    use bullpen_core::sabotage;
    use bullpen_sim::kernel;
    use bullpen_sim::scenario::{self, Script};

    use super::pools::side_by_side::side_by_side;
    use super::table::jobs::{self, TOLD, Told};
    use super::table::pools::BROKEN;
    use super::table::strangers;
    use super::table::{BUGS, Bug};

    /// A checker that needs more seeds than this finds too little.
    const SEEDS_MAX: u64 = 300;

    /// The first seed that finds it, in a line; or what is wrong.
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

    /// What the scenario says is wrong.
    fn play(told: &Told) -> Result<String, String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
        let path = folder.join(told.scenario).with_extension("txt");
        let text = fs::read_to_string(path).expect("the scenario is checked in");
        let script = Script::parse(&text).expect("it can be read");
        let played = sabotage::with(told.name, || scenario::run(&script, false));
        match played.broken {
            Some(broken) => Ok(format!("{}: {}, {broken}", told.name, told.scenario)),
            None => Err(format!("{}: {} holds all the same", told.name, told.scenario)),
        }
    }

    #[test]
    fn every_bug_that_a_scenario_tells_of_is_found_by_it() {
        let mut wrong = Vec::new();
        for told in TOLD {
            match play(told) {
                Ok(line) => println!("{line}"),
                Err(line) => wrong.push(line),
            }
            assert!(!told.mistake.is_empty());
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn every_bug_that_a_test_finds_breaks_it() {
        let mut wrong = Vec::new();
        for broken in BROKEN.iter().chain(strangers::BROKEN) {
            let breaks = sabotage::with(broken.name, || panic::catch_unwind(broken.test).is_err());
            if breaks {
                println!("{}: its test fails", broken.name);
            } else {
                wrong.push(format!("{}: its test holds all the same", broken.name));
            }
            assert!(!broken.mistake.is_empty());
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// All that seeds find.
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
