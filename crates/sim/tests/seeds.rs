//! Seeds that must be clean: those that `BULLPEN_SEEDS` names, as the gate's `seeds` step does, or a few.
//!
//! Not here: seeds that failed once (`kept_seeds`); `bullpen sim run`, which runs any of them again.

#![expect(clippy::print_stdout, reason = "the gate compares what two builds print")]

mod side_by_side;

use std::sync::Mutex;

use bullpen_sim::kernel;

use side_by_side::side_by_side;

/// How many clean seeds pass between two lines of progress.
const PROGRESS: usize = 100;

/// As in `0..100`.
#[expect(clippy::disallowed_methods, reason = "which seeds is the gate's to say")]
fn asked_for() -> Vec<u64> {
    let text = std::env::var("BULLPEN_SEEDS").unwrap_or_else(|_| "0..4".to_owned());
    let number = |part: &str| part.parse::<u64>().ok();
    let range = text.split_once("..").and_then(|(a, b)| Some(number(a)?..number(b)?));
    range.expect("BULLPEN_SEEDS is FIRST..END").collect()
}

#[test]
fn every_seed_is_clean() {
    let seeds = asked_for();
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
