//! The test EC2: moto in an environment of its own, and the step that tests what we add to it and
//! the machines that its launch hook makes.
//!
//! Its program is the environment's Python, which runs our packages (`crates/aws/tests/ec2`,
//! `crates/aws/tests/machine`).
//!
//! Not here: how it is installed (`venv`), or what is added (those packages' READMEs).

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::gate::{Context, Part, Step};
use crate::place::{Place, succeed};
use crate::venv::Tool;

/// Where the tests look first.
pub(crate) const VARIABLE: &str = "BULLPEN_EC2";

/// Where the packages are.
const HOME: &str = "crates/aws/tests";

/// Importing the server finds out whether all it needs is there. The client is of one version too.
const QUESTION: &str = "import moto.moto_server.werkzeug_app; \
                        from importlib.metadata import version; \
                        assert version('boto3') == '1.44.0'; \
                        print(version('moto'))";

/// Raising a version is a change to review: our package replaces parts of moto.
pub(crate) const TOOL: Tool = Tool {
    name: "moto",
    program: "python",
    version: "5.2.5",
    question: ("python", &["-c", QUESTION]),
    answer_prefix: "",
};

/// The step.
pub(crate) const STEP: Step = Step {
    name: "ec2",
    what: "the test EC2's own tests, and its machines'",
    part: Some(Part::Deep),
    run,
};

fn run(gate: &Context<'_>) -> Result<()> {
    let tools = gate.tools(Part::Deep)?;
    let python = tools.iter().find(|(variable, _)| *variable == VARIABLE);
    let (_, python) = python.context("the deep part has the test EC2")?;
    succeed(&mut tests(gate.place, python))
}

/// `-B`: nothing is written beside the sources.
fn tests(place: &Place, python: &Path) -> Command {
    let mut unittest = place.command(python);
    unittest
        .args(["-B", "-m", "unittest", "discover", "--top-level-directory", "."])
        .env(VARIABLE, python)
        .current_dir(place.root.join(HOME));
    unittest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::shown;

    #[test]
    fn the_question_asks_for_every_version() {
        let wanted = include_str!("../requirements/moto.txt");
        assert!(QUESTION.contains("version('boto3') == '1.44.0'"));
        assert!(wanted.contains("\nboto3==1.44.0 ") || wanted.starts_with("boto3==1.44.0 "));
    }

    #[test]
    fn the_command_line_finds_the_packages_and_writes_nothing_beside_them() {
        let place = Place::of_test("/r");
        let command = tests(&place, Path::new("/t/bin/python"));
        assert_eq!(
            shown(&command),
            "/t/bin/python -B -m unittest discover --top-level-directory ."
        );
        assert_eq!(command.get_current_dir(), Some(Path::new("/r/crates/aws/tests")));
    }
}
