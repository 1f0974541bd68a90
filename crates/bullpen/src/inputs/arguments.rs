//! Refuses arguments with secrets, before any other check, and never prints their values: every
//! user of a machine can read the arguments of every process.
//!
//! Not here: a key in place of a path (`github`).

use std::ffi::OsString;

use super::UsageError;

/// Options that took a secret in older versions, with their replacements.
const REFUSED: &[(&str, &str)] = &[(
    "--github-token",
    "other users of this machine can read arguments; set INPUT_GITHUB_TOKEN, or name a file that has \
     the token with --github-token-file",
)];
/// The subcommand whose arguments are another program's.
const FOREIGN: &str = "stand-in-runner";

/// Refuses a command line with an option for a secret, without showing its value.
pub(crate) fn refuse_secrets(
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<(), UsageError> {
    let mut arguments = arguments.into_iter().peekable();
    if arguments.peek().is_some_and(|first| first == FOREIGN) {
        return Ok(());
    }
    for argument in arguments {
        let argument = argument.to_string_lossy();
        let name = argument.split('=').next().unwrap_or_default();
        if let Some((name, instead)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
            return Err(UsageError::new(format!("{name}: {instead}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(line: &str) -> Option<String> {
        let refused = refuse_secrets(line.split(' ').map(OsString::from)).err();
        refused.map(|refused| refused.to_string())
    }

    #[test]
    fn every_command_refuses_a_token_as_argument() {
        for line in [
            "provision --github-token s3cr3t",
            "provision --github-token=s3cr3t --count 1",
            "status --github-token s3cr3t",
            "explain 1 --github-token",
        ] {
            let error = refusal(line).expect(line);
            assert!(error.starts_with("--github-token: ") && !error.contains("s3cr3t"), "{error}");
            assert!(error.contains("INPUT_GITHUB_TOKEN") && error.contains("--github-token-file"));
        }
    }

    #[test]
    fn a_file_and_the_runner_programs_own_arguments_are_accepted() {
        for line in ["provision --github-token-file token", "stand-in-runner --github-token x", ""]
        {
            assert_eq!(refusal(line), None, "{line}");
        }
    }
}
