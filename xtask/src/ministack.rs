//! ministack, which plays DynamoDB and SQS on this machine: the AWS tier of the tests needs it.
//! Not here: how it is installed (`venv`), or starting it (`bullpen-faulty`).

use crate::venv::Tool;

/// The variable that names the program to tests.
pub(crate) const VARIABLE: &str = "BULLPEN_MINISTACK";

/// It has no option that prints its version. The import also checks that its dependencies are
/// there.
const QUESTION: &str = "import importlib.metadata, ministack.app; \
                        print(importlib.metadata.version('ministack'))";

/// Raising the version is a change to review: every claim rests on its conditional writes.
pub(crate) const TOOL: Tool = Tool {
    name: "ministack",
    program: "ministack",
    version: "1.5.33",
    question: ("python", &["-c", QUESTION]),
    answer_prefix: "",
};
