//! The rules on secrets and downloads in documents, scripts and workflows: no secret as an
//! argument, no download that can leave https, no unpinned installation.
//!
//! Not here: the gate's own installations (`venv`, `npm`), whose tests assert the same.

use super::{File, Finding};

/// A removed option. Only the changelog may name it.
const SECRET_OPTION: &str = "--github-token";
const CHANGELOG: &str = "CHANGELOG.md";
/// Workflows of this repository's own.
const WORKFLOWS: &str = ".github/workflows/";
/// The length of a commit's digest.
const DIGEST_CHARS: usize = 40;

/// Every rule on the files whose instructions users or machines follow.
pub(crate) fn check(files: &[File]) -> Vec<Finding> {
    files.iter().filter(|file| is_followed(&file.path)).flat_map(of_file).collect()
}

/// Documents, scripts and workflows, except the fixtures of tests.
fn is_followed(path: &str) -> bool {
    ["md", "sh", "yml", "yaml"].contains(&extension(path)) && !path.contains("/tests/")
}

fn extension(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(_, extension)| extension)
}

fn of_file(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        let place = || format!("{}:{}", file.path, index + 1);
        findings.extend(wrong(&file.path, line).map(|why| Finding::failure(place(), why)));
    }
    findings
}

fn wrong(path: &str, line: &str) -> Option<&'static str> {
    let is_comment = line.trim_start().starts_with('#') && extension(path) != "md";
    if is_comment {
        return None;
    }
    let names_secret = line.match_indices(SECRET_OPTION).any(|(at, found)| {
        !line[at + found.len()..].starts_with(|c: char| c == '-' || c.is_alphanumeric())
    });
    if names_secret && path != CHANGELOG {
        return Some("takes a secret as an argument; name --github-token-file or a variable");
    }
    if line.to_lowercase().contains("bearer $") || line.contains("--jitconfig") {
        return Some("a secret as an argument, which every user can read; use stdin or a variable");
    }
    if fetches(path, line) && !line.contains("--proto") {
        return Some("curl without --proto follows an answer out of https; add --proto '=https'");
    }
    if line.contains("pip install") && !line.contains("--require-hashes")
        || line.contains("npm install ")
        || line.contains("cargo install") && !line.contains("--locked")
    {
        return Some("installs what is not pinned; use hashes, a lock file, or --locked");
    }
    let action = line.trim_start().trim_start_matches("- ").strip_prefix("uses: ");
    let is_pinned = |action: &str| {
        let digest = action.split_once('@').map_or("", |(_, at)| at);
        let digest = digest.split(' ').next().unwrap_or_default();
        digest.len() == DIGEST_CHARS && digest.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    if path.starts_with(WORKFLOWS)
        && action.is_some_and(|action| !action.starts_with("./") && !is_pinned(action))
    {
        return Some("an action that is not pinned by its commit's full digest");
    }
    None
}

/// Whether the line runs curl; prose in a document only mentions it.
fn fetches(path: &str, line: &str) -> bool {
    let runs = line.match_indices("curl ").any(|(at, found)| {
        let before = line[..at].chars().next_back();
        let is_word = !before.is_some_and(|c| c.is_alphanumeric() || ['-', '_', '/'].contains(&c));
        is_word && line[at + found.len()..].starts_with(['-', 'h', '"', '$', '{'])
    });
    let is_prose = extension(path) == "md" && !line.contains("://");
    runs && !is_prose && !line.contains("curl --version")
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        check(&[file(path, text)]).len()
    }

    #[test]
    fn a_secret_as_an_argument_is_found_in_documents_and_scripts() {
        for line in
            ["bullpen serve --github-token X", "`--github-token`, or an App", "--github-token=x"]
        {
            assert_eq!(count("docs/a.md", line), 1, "{line}");
            assert_eq!(count("scripts/a.sh", line), 1, "{line}");
        }
        assert_eq!(count("docs/a.md", "bullpen serve --github-token-file /run/token"), 0);
        assert_eq!(count("CHANGELOG.md", "`--github-token` is refused"), 0);
    }

    #[test]
    fn a_secret_in_a_header_or_an_option_of_a_program_is_found() {
        for line in [
            "curl --proto '=https' -H \"Authorization: Bearer $token\" https://x",
            "gh api -H \"Authorization: bearer $(app_token)\" app",
            "./run.sh --jitconfig \"$2\"",
        ] {
            assert_eq!(count("scripts/a.sh", line), 1, "{line}");
        }
        for line in [
            "printf 'header = \"Authorization: Bearer %s\"\\n' \"$token\" | curl --proto '=https' -K - https://x",
            "gh api -X POST repos/x/actions/runners/generate-jitconfig",
            "ACTIONS_RUNNER_INPUT_JITCONFIG=$2 ./run.sh",
        ] {
            assert_eq!(count("scripts/a.sh", line), 0, "{line}");
        }
    }

    #[test]
    fn a_download_that_could_leave_https_is_found() {
        for line in ["curl -fsS https://x", "  x=$(curl -s \"$url\")", "a | curl https://x"] {
            assert_eq!(count("scripts/a.sh", line), 1, "{line}");
        }
        assert_eq!(count("docs/a.md", "curl -fsSL https://x | sh"), 1);
        for line in ["curl --proto '=https' -fsS https://x", "# curl -s x", "curl --version | head"]
        {
            assert_eq!(count("scripts/a.sh", line), 0, "{line}");
        }
        assert_eq!(count("docs/a.md", "fetches it with `curl --aws-sigv4` and the role"), 0);
        assert_eq!(count("crates/core/tests/lint/a.yml", "curl -fsS https://x | bash"), 0);
    }

    #[test]
    fn unpinned_installations_are_found() {
        for line in ["pip install moto", "npm install x", "cargo install x", "- uses: actions/x@v4"]
        {
            assert_eq!(count(".github/workflows/a.yml", line), 1, "{line}");
        }
        let digest = "0123456789".repeat(4);
        for line in [
            "pip install --require-hashes -r x.txt",
            "npm ci --ignore-scripts",
            "cargo install x --locked",
            "- uses: ./",
            &format!("- uses: actions/x@{digest} # v4"),
        ] {
            assert_eq!(count(".github/workflows/a.yml", line), 0, "{line}");
        }
    }
}
