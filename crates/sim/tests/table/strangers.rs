//! The planted bugs about jobs of other runs: each breaks a test of `tests/strangers.rs` or `tests/jobs`.
//!
//! Not here: the mistakes themselves (`sabotage!` where each is planted).

use super::pools::Broken;
use crate::jobs::{again, strangers};
use crate::strangers::{
    a_guessed_label_gets_no_runner, a_machine_that_a_stranger_was_started_on_is_not_used_again,
    machines_of_a_run_of_unknown_origin_end,
};

/// Those that tests of strangers find.
pub(crate) const BROKEN: &[Broken] = &[
    Broken {
        name: "request-labels-are-guessable",
        mistake: "a request's label can be worked out from its id",
        test: a_guessed_label_gets_no_runner,
    },
    Broken {
        name: "foreign-runs-are-not-noticed",
        mistake: "a job of another run on a request's machine is taken for its own",
        test: a_machine_that_a_stranger_was_started_on_is_not_used_again,
    },
    Broken {
        name: "unknown-runs-are-trusted",
        mistake: "a run is trusted because GitHub does not say whose code it has",
        test: machines_of_a_run_of_unknown_origin_end,
    },
    Broken {
        name: "request-labels-bring-others-along",
        mistake: "a job with a request's label gets a runner with all labels that it writes beside it",
        test: again::a_strangers_job_does_not_get_a_requests_machine,
    },
    Broken {
        name: "bound-labels-bind-no-runner",
        mistake: "a job that names another run's id begins on that run's machine",
        test: strangers::a_fork_that_names_a_trusted_run_begins_nothing_on_its_machine,
    },
];
