//! The planted bugs about jobs of other runs: each breaks a test of `tests/strangers.rs`.
//!
//! Not here: the mistakes themselves (`sabotage!` where each is planted).

use super::pools::Broken;
use crate::strangers::{
    a_guessed_label_gets_no_runner, a_machine_that_a_stranger_was_started_on_is_not_used_again,
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
];
