//! Reads the origin of the workflow run's code from the variables and the event that GitHub gives
//! to its steps.
//!
//! Only a workflow of the repository itself has the credential, so GitHub has set its variables.
//!
//! Not here: the rules about origins (`core::job::CodeRules`).

use bullpen_core::job::Origin;
use serde_json::Value;

use super::Environment;

const DEPENDABOT: &str = "dependabot[bot]";
/// The prefix of Dependabot's branches. They matter because a person may re-run its jobs.
const DEPENDABOTS_BRANCHES: &str = "dependabot/";

/// The origin of this run's code; `None` if the variables do not show it. `read` reads a text file.
pub(crate) fn origin_of_run(
    environment: &Environment,
    read: impl Fn(&str) -> Option<String>,
) -> Option<Origin> {
    let variable = |name: &str| environment.get(name).filter(|text| !text.is_empty());
    let event = variable("GITHUB_EVENT_NAME")?;
    let repository = variable("GITHUB_REPOSITORY")?;
    let is_pull_request = event.starts_with("pull_request");
    if is_pull_request {
        let payload = read(variable("GITHUB_EVENT_PATH")?)?;
        let payload: Value = serde_json::from_str(&payload).ok()?;
        // A head repository without a name was a fork, and is deleted.
        let head = payload.pointer("/pull_request/head/repo/full_name").and_then(Value::as_str);
        if !head.is_some_and(|head| head.eq_ignore_ascii_case(repository)) {
            return Some(Origin::Fork);
        }
    }
    let actors = ["GITHUB_ACTOR", "GITHUB_TRIGGERING_ACTOR"].map(variable);
    let branches = ["GITHUB_HEAD_REF", "GITHUB_REF_NAME"].map(variable);
    let is_dependabots = actors.into_iter().flatten().any(|it| it.eq_ignore_ascii_case(DEPENDABOT))
        || branches.into_iter().flatten().any(|it| it.starts_with(DEPENDABOTS_BRANCHES));
    Some(match (is_dependabots, is_pull_request) {
        (true, _) => Origin::Dependabot,
        (false, true) => Origin::PullRequest,
        (false, false) => Origin::Own,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(event: &str, head: Option<&str>, more: &[(&str, &str)]) -> Option<Origin> {
        let payload = head.map(|head| {
            let repo =
                if head.is_empty() { Value::Null } else { serde_json::json!({"full_name": head}) };
            serde_json::json!({"pull_request": {"head": {"repo": repo}}}).to_string()
        });
        let variables = [
            ("GITHUB_EVENT_NAME", event),
            ("GITHUB_REPOSITORY", "acme/app"),
            ("GITHUB_EVENT_PATH", "/event.json"),
            ("GITHUB_ACTOR", "ann"),
        ];
        let variables = variables.iter().chain(more);
        let environment =
            variables.map(|(name, value)| ((*name).into(), (*value).into())).collect();
        origin_of_run(&environment, |path| payload.clone().filter(|_| path == "/event.json"))
    }

    #[test]
    fn the_origin_of_a_pull_request_is_the_repository_of_its_head() {
        for event in ["pull_request", "pull_request_target", "pull_request_review"] {
            assert_eq!(origin(event, Some("Acme/App"), &[]), Some(Origin::PullRequest));
            assert_eq!(origin(event, Some("mallory/app"), &[]), Some(Origin::Fork));
            assert_eq!(origin(event, Some(""), &[]), Some(Origin::Fork), "a deleted fork");
        }
        assert_eq!(origin("push", None, &[]), Some(Origin::Own));
        assert_eq!(origin("workflow_dispatch", None, &[]), Some(Origin::Own));
    }

    #[test]
    fn dependabot_is_known_by_its_account_and_by_its_branches() {
        for more in [
            ("GITHUB_ACTOR", "dependabot[bot]"),
            ("GITHUB_TRIGGERING_ACTOR", "Dependabot[bot]"),
            ("GITHUB_HEAD_REF", "dependabot/npm/left-pad-2"),
        ] {
            let origin = origin("pull_request", Some("acme/app"), &[more]);
            assert_eq!(origin, Some(Origin::Dependabot), "{more:?}");
        }
        let pushed = origin("push", None, &[("GITHUB_REF_NAME", "dependabot/cargo/serde-2")]);
        assert_eq!(pushed, Some(Origin::Dependabot));
    }

    #[test]
    fn a_missing_variable_gives_no_origin() {
        assert_eq!(origin("pull_request", None, &[]), None, "the event's file is unreadable");
        assert_eq!(origin("", None, &[]), None);
        assert_eq!(origin_of_run(&Environment::new(), |_| None), None);
    }
}
