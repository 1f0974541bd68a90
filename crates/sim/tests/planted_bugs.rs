//! Every planted bug is found, by the checker that should find it, within a bounded number of seeds.
//!
//! Built with `--cfg sabotage` the bugs are there to be found; built without, the same seeds must be
//! clean, which the gate's seeds show. Bugs are looked for side by side: which one is active is a
//! matter of the thread.

#[cfg(sabotage)]
mod table;

#[cfg(sabotage)]
#[expect(clippy::print_stdout, reason = "how soon each bug is found is worth seeing")]
mod with_bugs {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use bullpen_core::sabotage;
    use bullpen_sim::kernel;

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

    #[test]
    fn every_planted_bug_is_found() {
        let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let look = || {
            while let Some(bug) = BUGS.get(next.fetch_add(1, Ordering::Relaxed)) {
                match find(bug) {
                    Ok(line) => println!("{line}"),
                    Err(line) => wrong.lock().unwrap().push(line),
                }
            }
        };
        let threads = thread::available_parallelism().map_or(2, usize::from);
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(look);
            }
        });
        let wrong = wrong.into_inner().unwrap();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn every_bug_is_planted_once() {
        for (index, bug) in BUGS.iter().enumerate() {
            let twins = BUGS[..index].iter().filter(|other| other.name == bug.name);
            assert_eq!(twins.count(), 0, "{} is in the table twice", bug.name);
            assert!(!bug.mistake.is_empty());
        }
    }
}
