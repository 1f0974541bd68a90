//! The program's inputs: a command and options, from the arguments and from the environment.
//!
//! Not here: what is done with them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::{Failed, Start};

/// How an option is named in the environment.
const PREFIX: &str = "ACTIONS_RUNNER_INPUT_";
/// Options without a value.
const FLAGS: &[&str] =
    &["unattended", "replace", "disableupdate", "no-default-labels", "ephemeral", "once", "local"];
/// Options with one.
const OPTIONS: &[&str] =
    &["url", "token", "name", "labels", "work", "runnergroup", "jitconfig", "startuptype"];

/// What the program is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Register.
    Configure,
    /// Listen and run jobs.
    Run,
    /// Remove the registration.
    Remove,
    /// Say which version this is.
    Version,
}

/// All that the program was given. Secrets are among it.
pub(super) struct Inputs {
    pub(super) command: Command,
    options: BTreeMap<String, String>,
    /// What jobs see: all but the inputs.
    pub(super) environment: BTreeMap<String, String>,
    pub(super) root: PathBuf,
}

impl Inputs {
    pub(super) fn read(start: Start) -> Result<Self, Failed> {
        let Start { arguments, environment, root } = start;
        let (mut options, mut rest) = (BTreeMap::new(), BTreeMap::new());
        for (name, value) in environment {
            match name.strip_prefix(PREFIX) {
                Some(name) => options.insert(name.to_lowercase().replace('_', "-"), value),
                None => rest.insert(name, value),
            };
        }
        // The program's own file of variables wins over its environment.
        let file = std::fs::read_to_string(root.join(".env")).unwrap_or_default();
        let pairs = file.lines().filter_map(|line| line.split_once('='));
        rest.extend(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let command = parse(arguments, &mut options)?;
        Ok(Self { command, options, environment: rest, root })
    }

    /// An option's value; an empty one is none.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.options.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        let yes = |value: &str| ["1", "true"].contains(&value.to_lowercase().as_str());
        self.value(name).is_some_and(yes)
    }
}

/// The arguments win over the environment.
fn parse(
    arguments: Vec<String>,
    options: &mut BTreeMap<String, String>,
) -> Result<Command, Failed> {
    let mut command = None;
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        match (argument.as_str(), command) {
            ("configure", None) => command = Some(Command::Configure),
            ("run", None) => command = Some(Command::Run),
            ("remove", None) => command = Some(Command::Remove),
            ("--version", None) => return Ok(Command::Version),
            (text, _) => {
                let name = text.strip_prefix("--").unwrap_or_default();
                if FLAGS.contains(&name) {
                    options.insert(name.to_owned(), String::from("true"));
                } else if OPTIONS.contains(&name) {
                    options.insert(name.to_owned(), arguments.next().unwrap_or_default());
                } else {
                    return Err(Failed::for_good(format!(
                        "Unrecognized command-line input arguments: '{text}'."
                    )));
                }
            }
        }
    }
    // The official program runs if it is not told what to do.
    Ok(command.unwrap_or(Command::Run))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arguments: &[&str], environment: &[(&str, &str)]) -> Result<Inputs, Failed> {
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Inputs::read(Start {
            arguments: arguments.iter().map(|&text| text.to_owned()).collect(),
            environment: environment.iter().map(pair).collect(),
            root: PathBuf::new(),
        })
    }

    #[test]
    fn inputs_come_from_both_sides_and_jobs_see_none_of_them() {
        let environment = [
            ("ACTIONS_RUNNER_INPUT_TOKEN", "t"),
            ("ACTIONS_RUNNER_INPUT_NAME", "from-environment"),
            ("ACTIONS_RUNNER_INPUT_EPHEMERAL", "True"),
            ("PATH", "/bin"),
        ];
        let inputs =
            read(&["configure", "--unattended", "--name", "n"], &environment).ok().unwrap();
        assert_eq!(inputs.command, Command::Configure);
        assert_eq!((inputs.value("token"), inputs.value("name")), (Some("t"), Some("n")));
        assert!(inputs.flag("ephemeral") && inputs.flag("unattended") && !inputs.flag("replace"));
        assert_eq!(inputs.environment.keys().collect::<Vec<_>>(), ["PATH"]);
    }

    #[test]
    fn what_it_does_not_know_is_refused() {
        let failed = read(&["run", "--frobnicate"], &[]).err().unwrap();
        assert!(failed.words.contains("'--frobnicate'"), "{failed:?}");
        assert_eq!(failed.code, 1);
    }
}
