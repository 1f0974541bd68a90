//! Posts a notice to a job's author on the commit: a check run as an App, a status with a token.
//!
//! Not here: when to post, and the reason's text (`bullpen_core::job::Reason`).

use bullpen_core::forge_rates::CallPurpose;
use bullpen_core::ports::{Clock, Fault, Notice};
use bullpen_core::printable::{markdown, one_line};
use serde::Deserialize;
use serde_json::json;

use crate::client::GitHub;
use crate::fault::NotFoundMeans;
use crate::limits::{DESCRIPTION_CHARS_MAX, PER_PAGE};
use crate::runs::repository_path;
use crate::settings::is_name;
use crate::wire::{Answer, Call};

/// The name of the check run or the status.
const NAME: &str = "bullpen";
/// The longest job name in a status of 140 characters: enough to tell jobs apart.
const NAME_CHARS_MAX: usize = 40;

#[derive(Deserialize)]
struct ChecksJson {
    check_runs: Vec<CheckJson>,
}

#[derive(Deserialize)]
struct CheckJson {
    #[serde(default)]
    external_id: Option<String>,
}

impl<C: Clock> GitHub<C> {
    pub(crate) async fn notify(&self, notice: &Notice) -> Result<(), Fault> {
        let repository = repository_path(&notice.repository)?;
        let commit = &notice.commit;
        // The commit becomes part of a path.
        if !is_name(commit) {
            return Err(Fault::Denied(format!("{commit:?} is not a commit")));
        }
        if self.is_app() {
            self.check(&repository, notice).await
        } else {
            self.status(&repository, notice).await
        }
    }

    async fn check(&self, repository: &str, notice: &Notice) -> Result<(), Fault> {
        if self.is_posted(repository, notice).await? {
            return Ok(());
        }
        // A job's author chooses the names of job and pool, and GitHub renders the summary as
        // Markdown.
        let (job, reason) = (&notice.name, markdown(&notice.reason.in_public()));
        let advice = notice.reason.advice();
        let body = json!({
            "name": NAME,
            "head_sha": notice.commit,
            "external_id": notice.job,
            "status": "completed",
            "conclusion": "failure",
            "output": {
                "title": format!("No runner for {}", one_line(job)),
                "summary": format!("{}: {reason}\n\nWhat to do: {advice}.\n", markdown(job)),
            },
        });
        let call = Call::post(CallPurpose::Tell, format!("{repository}/check-runs"), Some(body));
        self.call(&call).await?.accepted(NotFoundMeans::Scope).map(drop)
    }

    /// Whether an earlier attempt posted the check run and only its answer was lost.
    async fn is_posted(&self, repository: &str, notice: &Notice) -> Result<bool, Fault> {
        let path = format!("{repository}/commits/{}/check-runs", notice.commit);
        let path = format!("{path}?check_name={NAME}&filter=all&per_page={PER_PAGE}");
        let read = |answer: &Answer| Ok(answer.read::<ChecksJson>("list of checks")?.check_runs);
        let checks =
            self.pages(Call::get(CallPurpose::Tell, path), NotFoundMeans::Scope, read).await?;
        Ok(checks.iter().any(|check| check.external_id.as_deref() == Some(notice.job.as_str())))
    }

    /// Posting a status twice is harmless: GitHub shows only the latest of one name.
    async fn status(&self, repository: &str, notice: &Notice) -> Result<(), Fault> {
        let body = json!({"state": "error", "context": NAME, "description": described(notice)});
        let call = Call::post(
            CallPurpose::Tell,
            format!("{repository}/statuses/{}", notice.commit),
            Some(body),
        );
        self.call(&call).await?.accepted(NotFoundMeans::Scope).map(drop)
    }
}

/// A status's description. The author chose the job's name, which must leave space for the reason.
fn described(notice: &Notice) -> String {
    let name = shortened(&one_line(&notice.name), NAME_CHARS_MAX);
    let text = format!("{name}: {}; {}", notice.reason.in_public(), notice.reason.advice());
    shortened(&one_line(&text), DESCRIPTION_CHARS_MAX)
}

/// The first `chars_max` characters, with an ellipsis if the text is longer.
fn shortened(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    text.chars().take(chars_max - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use bullpen_core::ids::{JobId, PoolName};
    use bullpen_core::job::{Reason, Setback};

    use super::*;

    fn about(name: &str, reason: Reason) -> Notice {
        Notice {
            job: JobId::new("1"),
            name: name.to_owned(),
            repository: "acme/app".into(),
            commit: "0a1b2c".to_owned(),
            reason,
        }
    }

    #[test]
    fn a_description_is_no_longer_than_github_accepts() {
        let short = |text: &str| shortened(text, DESCRIPTION_CHARS_MAX);
        assert_eq!(short("short"), "short");
        let exact = "ä".repeat(DESCRIPTION_CHARS_MAX);
        assert_eq!(short(&exact), exact);
        let long = short(&"ä".repeat(DESCRIPTION_CHARS_MAX + 1));
        assert_eq!(long.chars().count(), DESCRIPTION_CHARS_MAX);
        assert!(long.ends_with("ä…"), "{long}");
    }

    #[test]
    fn a_long_name_leaves_space_for_the_reason() {
        let pool = || Reason::UnknownPool { pool: PoolName::new("ci1"), suggestions: vec![] };
        let text = described(&about(&"build ".repeat(100), pool()));
        assert!(text.starts_with("build build "), "{text}");
        assert!(text.contains("…: there is no pool `ci1`; name a pool"), "{text}");
        // `one_line` writes each of these as eight characters.
        let text = described(&about(&"\u{202e}".repeat(100), pool()));
        assert!(text.contains("there is no pool `ci1`"), "{text}");
        let text = described(&about("build", pool()));
        assert!(text.starts_with("build: there is no pool `ci1`; name a pool"), "{text}");
    }

    #[test]
    fn a_status_does_not_publish_githubs_message() {
        let last = Setback::Forge { said: "there is no runner group builders".to_owned() };
        let text = described(&about("build", Reason::OutOfAttempts { attempts: 5, last }));
        assert!(text.starts_with("build: no runner after 5 attempts: GitHub refused"), "{text}");
        assert!(!text.contains("builders"), "{text}");
    }
}
