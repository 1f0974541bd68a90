//! Runs seeds that must be clean: the range in `BULLPEN_SEEDS`, which the gate's `seeds` step sets,
//! or a few.
//!
//! Not here: seeds that failed once (`kept_seeds`), or `bullpen sim run`, which repeats any seed.

#![expect(clippy::print_stdout, reason = "the gate compares what two builds print")]

mod side_by_side;

use std::sync::Mutex;

use bullpen_sim::kernel;

use side_by_side::side_by_side;

/// The number of clean seeds between two lines of progress.
const PROGRESS: usize = 100;

/// The seeds of `BULLPEN_SEEDS`, a range like `0..100`.
#[expect(clippy::disallowed_methods, reason = "the gate names the seeds in a variable")]
fn chosen_seeds() -> Vec<u64> {
    let text = std::env::var("BULLPEN_SEEDS").unwrap_or_else(|_| "0..4".to_owned());
    let number = |part: &str| part.parse::<u64>().ok();
    let range = text.split_once("..").and_then(|(a, b)| Some(number(a)?..number(b)?));
    range.expect("BULLPEN_SEEDS is FIRST..END").collect()
}

#[test]
fn every_seed_is_clean() {
    let seeds = chosen_seeds();
    let (failures, digests) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    side_by_side(&seeds, |seed| match kernel::run(*seed, false) {
        Ok(run) => {
            let mut digests = digests.lock().unwrap();
            digests.push((run.seed, run.digest));
            if digests.len().is_multiple_of(PROGRESS) {
                println!("{} of {} seeds clean", digests.len(), seeds.len());
            }
        }
        Err(failure) => failures.lock().unwrap().push(failure.to_string()),
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let mut digests = digests.into_inner().unwrap();
    assert_eq!(digests.len(), seeds.len());
    digests.sort_unstable();
    let all = digests.iter().fold(0, |all: u64, (_, digest)| all.rotate_left(1) ^ digest);
    println!("{} seeds clean, digest {all:016x}", seeds.len());
}
