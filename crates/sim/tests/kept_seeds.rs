//! Every seed that ever failed, with what it found. A seed may mean another world today; it is run
//! all the same, because it costs nothing and has been right before.

mod side_by_side;

use std::sync::Mutex;

use bullpen_sim::kernel;

use side_by_side::side_by_side;

/// The seed, and what it showed.
const KEPT: [(u64, &str); 26] = [
    (6, "an agent said that a listener listens which it was ending for being late"),
    (13, "a superseded process that failed took back what its successor had running"),
    (34, "a cancelled request ended a created machine that ran a job"),
    (48, "two launches had one turn after the share of the cloud's buckets recovered"),
    (54, "a release ended a machine that was being assigned, with its listener connected"),
    (72, "a created machine that was condemned registered before it was ended, and took a job"),
    (113, "a machine that changed hands was ended under a job, by asking for the wrong runner"),
    (138, "as 48"),
    (154, "of two processes of one request, one ended what the other had marked running"),
    (169, "a job whose runner was taken forgot its machine, and nobody took it back"),
    (180, "a reservation that landed late made a launch larger than what was missing"),
    (194, "as 113"),
    (228, "as 6"),
    (330, "as 6"),
    (601, "as 72, by a release"),
    (619, "a listener was stopped under a job that had started since the agent's last beat"),
    (926, "as 13"),
    (934, "as 180"),
    (1127, "blamed for a machine that hung past its time: a mistake of the checker's"),
    (1428, "as 1127"),
    (4891, "blamed for one process's word about the whole request: a mistake of the checker's"),
    (5205, "as 1127"),
    (5392, "blamed for what a dead process left: a mistake of the checker's"),
    (5649, "as 1127"),
    (7880, "as 4891"),
    (1_524_337_344, "blamed for a pool's spot machine that had notice: a mistake of the checker's"),
];

#[test]
fn every_seed_that_ever_failed_is_clean() {
    let again = Mutex::new(Vec::new());
    side_by_side(&KEPT, |(seed, showed)| {
        if let Err(failure) = kernel::run(*seed, false) {
            again.lock().unwrap().push(format!("again: {showed}\n{failure}"));
        }
    });
    let again = again.into_inner().unwrap();
    assert!(again.is_empty(), "{}", again.join("\n"));
}
