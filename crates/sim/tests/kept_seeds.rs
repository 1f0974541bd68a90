//! Runs every seed that ever failed, listed with its finding. A seed may draw another world today,
//! but running it costs little.
//!
//! Not here: the gate's seeds (`seeds`).

mod side_by_side;

use std::sync::Mutex;

use bullpen_sim::kernel;

use side_by_side::side_by_side;

/// Each seed and its finding.
const KEPT: [(u64, &str); 27] = [
    (6, "an agent reported a listener as listening while it ended it for being late"),
    (13, "a superseded process failed and took back machines that its successor had running"),
    (34, "a cancelled request ended a created machine that ran a job"),
    (48, "two launches got one turn after the share of the cloud's buckets recovered"),
    (54, "a release ended a machine during its assignment, with its listener connected"),
    (72, "a created machine that a process had decided to end registered first, and took a job"),
    (
        113,
        "a release asked GitHub for the wrong runner and ended a machine under a new owner's job",
    ),
    (138, "as 48"),
    (154, "one of two processes of a request ended a machine that the other had marked running"),
    (169, "a job whose runner was taken forgot its machine, and no process took it back"),
    (180, "a reservation that landed late made a launch larger than the missing count"),
    (194, "as 113"),
    (228, "as 6"),
    (323, "a record was buried while its machine ran: the cloud neither ended nor showed it"),
    (330, "as 6"),
    (601, "as 72, by a release"),
    (619, "an agent stopped a listener under a job that had started since its last heartbeat"),
    (926, "as 13"),
    (934, "as 180"),
    (1127, "the checker wrongly blamed the engine for a machine that hung past its deadline"),
    (1428, "as 1127"),
    (4891, "the checker wrongly took one process's answer for the whole request's"),
    (5205, "as 1127"),
    (5392, "the checker wrongly blamed the engine for machines that a dead process left"),
    (5649, "as 1127"),
    (7880, "as 4891"),
    (1_524_337_344, "the checker wrongly blamed a pool for a spot machine that had notice"),
];

#[test]
fn every_seed_that_ever_failed_is_clean() {
    let failures = Mutex::new(Vec::new());
    side_by_side(&KEPT, |(seed, finding)| {
        if let Err(failure) = kernel::run(*seed, false) {
            failures.lock().unwrap().push(format!("again: {finding}\n{failure}"));
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
