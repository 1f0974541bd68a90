//! The test EC2: moto in an environment of its own, and the step that tests what we add to it.
//!
//! Its program is the environment's Python, which runs our package (`crates/aws/tests/ec2`).
//!
//! Not here: how it is installed (`venv`), or what is added (that package's README).

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::gate::{Context, Step};
use crate::place::{Place, succeed};
use crate::venv::Tool;

/// Where the tests look first.
pub(crate) const VARIABLE: &str = "BULLPEN_EC2";

/// Where the package is, and what it is called.
const HOME: &str = "crates/aws/tests";
const PACKAGE: &str = "ec2";

/// Importing the server finds out whether all it needs is there. The client is of one version too.
const QUESTION: &str = "import moto.moto_server.werkzeug_app; \
                        from importlib.metadata import version; \
                        assert version('boto3') == '1.44.0'; \
                        print(version('moto'))";

/// Raising a version is a change to review: our package replaces parts of moto.
pub(crate) const TOOL: Tool = Tool {
    name: "moto",
    program: "python",
    package: "moto[server]",
    version: "5.2.5",
    beside: &["boto3==1.44.0"],
    question: ("python", &["-c", QUESTION]),
    answer_prefix: "",
};

/// The step.
pub(crate) const STEP: Step = Step { name: "ec2", what: "the test EC2's own tests", run };

fn run(gate: &Context<'_>) -> Result<()> {
    succeed(&mut tests(gate.place, &TOOL.program(gate.place)?))
}

/// `-B`: nothing is written beside the sources.
fn tests(place: &Place, python: &Path) -> Command {
    let mut unittest = place.command(python);
    unittest
        .args(["-B", "-m", "unittest", "discover", "--top-level-directory", "."])
        .args(["--start-directory", PACKAGE])
        .current_dir(place.root.join(HOME));
    unittest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::shown;

    #[test]
    fn the_question_asks_for_every_version() {
        for wanted in TOOL.beside {
            let (package, version) = wanted.split_once("==").unwrap();
            assert!(QUESTION.contains(&format!("version('{package}') == '{version}'")));
        }
    }

    #[test]
    fn the_command_line_finds_the_package_and_writes_nothing_beside_it() {
        let place = Place::of_test("/r");
        let command = tests(&place, Path::new("/t/bin/python"));
        assert_eq!(
            shown(&command),
            "/t/bin/python -B -m unittest discover --top-level-directory . --start-directory ec2"
        );
        assert_eq!(command.get_current_dir(), Some(Path::new("/r/crates/aws/tests")));
    }
}
