//! act, which runs GitHub workflows on this machine: the tests of the action and of the service
//! need it. Not here: how it is installed (`venv`), or the tests that run it
//! (`crates/bullpen/tests/action.rs`, `crates/bullpen/tests/service/workflow.rs`).

use crate::venv::Tool;

/// The variable that names the program to tests.
pub(crate) const VARIABLE: &str = "BULLPEN_ACT";

/// Raising the version is a change to review: a new version may run the same workflow differently.
pub(crate) const TOOL: Tool = Tool {
    name: "act",
    program: "act",
    version: "0.2.89",
    question: ("act", &["--version"]),
    answer_prefix: "act version ",
};
