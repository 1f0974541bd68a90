//! Arguments that would hold a secret: refused before anything else is read, and never repeated.
//!
//! Every user of a machine can read the arguments of every process.
//!
//! Not here: a key that is given where a path belongs (`github`).

use std::ffi::OsString;

use super::UsageError;

/// Options that took a secret once, and what to write instead.
const REFUSED: &[(&str, &str)] = &[(
    "--github-token",
    "other users of this machine can read arguments; set INPUT_GITHUB_TOKEN, or name a file that has \
     the token with --github-token-file",
)];
/// Has another program's arguments, which are not ours to judge.
const OTHERS: &str = "stand-in-runner";

/// Refuses a command line with a secret's option in it; the value is not shown.
pub(crate) fn refuse_secrets(
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<(), UsageError> {
    let mut arguments = arguments.into_iter().peekable();
    if arguments.peek().is_some_and(|first| first == OTHERS) {
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
    fn a_token_is_no_argument_of_any_command() {
        for line in [
            "provision --github-token s3cr3t",
            "provision --github-token=s3cr3t --count 1",
            "status --github-token s3cr3t",
            "explain 1 --github-token",
        ] {
            let said = refusal(line).expect(line);
            assert!(said.starts_with("--github-token: ") && !said.contains("s3cr3t"), "{said}");
            assert!(said.contains("INPUT_GITHUB_TOKEN") && said.contains("--github-token-file"));
        }
    }

    #[test]
    fn a_file_and_the_runner_programs_own_arguments_are_fine() {
        for line in ["provision --github-token-file token", "stand-in-runner --github-token x", ""]
        {
            assert_eq!(refusal(line), None, "{line}");
        }
    }
}
