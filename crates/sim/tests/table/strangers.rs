//! The planted bugs about incarnations, jobs of other runs, defects and clocks: each must make a test
//! in `tests/incarnation.rs`, `tests/strangers.rs` or `tests/jobs` fail.
//!
//! Not here: the mistakes themselves (`sabotage!` in the code).

use super::pools::TestBug;
use crate::incarnation::d27_a_released_request_begins_a_new_incarnation;
use crate::jobs::{clocks, defects, denied, reruns, strangers};
use crate::strangers::{
    a_guessed_label_gets_no_runner, a_machine_that_a_stranger_was_started_on_is_not_used_again,
    machines_of_a_run_of_unknown_origin_end,
};

/// The bugs that tests of strangers find.
pub(crate) const BUGS: &[TestBug] = &[
    TestBug {
        name: "token-without-incarnation",
        mistake: "a new incarnation of a request launches under the client tokens of the last",
        test: d27_a_released_request_begins_a_new_incarnation,
    },
    TestBug {
        name: "request-labels-are-guessable",
        mistake: "a stranger can compute a request's label from its id",
        test: a_guessed_label_gets_no_runner,
    },
    TestBug {
        name: "foreign-runs-are-not-noticed",
        mistake: "the engine takes a job of another run on a request's machine for its own",
        test: a_machine_that_a_stranger_was_started_on_is_not_used_again,
    },
    TestBug {
        name: "unknown-runs-are-trusted",
        mistake: "the engine trusts a run whose origin GitHub does not say",
        test: machines_of_a_run_of_unknown_origin_end,
    },
    TestBug {
        name: "request-labels-bring-others-along",
        mistake: "a job with a request's label gets a runner with all its other labels",
        test: reruns::a_strangers_job_does_not_get_a_requests_machine,
    },
    TestBug {
        name: "bound-labels-bind-no-runner",
        mistake: "a job that names another run's id starts on that run's machine",
        test: strangers::a_fork_that_names_a_trusted_run_begins_nothing_on_its_machine,
    },
    TestBug {
        name: "poison-is-never-set-aside",
        mistake: "a process serves a row again and again that makes it panic each time",
        test: defects::a_row_that_panics_is_set_aside,
    },
    TestBug {
        name: "outages-bury-rows",
        mistake: "a process sets rows aside for faults of a store that stores no row at all",
        test: defects::an_outage_sets_no_row_aside,
    },
    TestBug {
        name: "denials-are-forgotten",
        mistake: "a process asks several times a minute for the end of a machine that the cloud denies to end",
        test: denied::a_machine_that_may_not_be_ended_is_asked_for_at_a_growing_pace,
    },
    TestBug {
        name: "clocks-are-believed",
        mistake: "a process with a clock that is hours off judges ages and gives jobs their deadlines",
        test: clocks::a_wrong_clock_ends_no_machine_and_no_job,
    },
    TestBug {
        name: "panics-are-not-caught",
        mistake: "one panic ends the whole process",
        test: defects::a_step_that_panics_stops_no_other,
    },
];
