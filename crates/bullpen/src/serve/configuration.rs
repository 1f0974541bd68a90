//! What is configured: read from a file or from the organisation, again and again, the last good one
//! kept.
//!
//! Jobs that come before there is a configuration at all wait for it.
//!
//! Not here: what a configuration says (`bullpen_core::config`).

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use bullpen_core::config::Config;
use bullpen_core::config::runs_on;
use bullpen_core::ids::Repository;
use bullpen_core::ports::{FileRead, JobForge};
use bullpen_core::severity::Severity;

use crate::inputs::{GithubInputs, Scope, StackInputs};

/// How often it is looked at.
pub(super) const EVERY: Duration = Duration::from_secs(30);
/// Where an organisation keeps it.
const REPOSITORY: &str = ".github-private";
const PATH: &str = ".github/runs-on.yml";

/// Where it is.
#[derive(Clone, Debug)]
enum Source {
    /// In a file of this machine.
    File(PathBuf),
    /// In the organisation's own repository.
    Organisation(Repository),
    /// Nowhere: the defaults serve.
    Nowhere,
}

/// What is configured, as far as it was looked at.
#[derive(Debug)]
pub(super) struct Configuration {
    source: Source,
    /// What was read last, good or not.
    seen: Option<Seen>,
}

#[derive(Debug)]
struct Seen {
    text: String,
    tag: Option<String>,
}

impl Configuration {
    /// That of a file, if one is named, else the organisation's, if there is one.
    pub(super) fn of(stack: &StackInputs, github: &GithubInputs) -> Self {
        let source = match (&stack.config, &github.scope) {
            (Some(path), _) => Source::File(path.clone()),
            (None, Some(Scope::Organisation(name))) => {
                Source::Organisation(Repository::new(format!("{name}/{REPOSITORY}")))
            }
            (None, Some(Scope::Repository(_)) | None) => Source::Nowhere,
        };
        Self { source, seen: None }
    }

    /// A configuration that is new since the last look and good; what is broken is said loudly, and
    /// what was configured stays.
    pub(super) async fn look(&mut self, forge: &impl JobForge) -> Option<Config> {
        let read = match &self.source {
            Source::Nowhere => FileRead::Absent,
            Source::File(path) => match fs::read_to_string(path) {
                Ok(text) => FileRead::Read { text, tag: None },
                Err(error) => {
                    tracing::error!(file = %path.display(), %error, "could not read it");
                    return None;
                }
            },
            Source::Organisation(repository) => {
                let tag = self.seen.as_ref().and_then(|seen| seen.tag.as_deref());
                match forge.file(repository, PATH, tag).await {
                    Ok(read) => read,
                    Err(fault) => {
                        tracing::warn!(%repository, %fault, "could not ask for the configuration");
                        return None;
                    }
                }
            }
        };
        self.take(read)
    }

    fn take(&mut self, read: FileRead) -> Option<Config> {
        match read {
            FileRead::Unchanged => None,
            FileRead::Read { text, .. } if self.seen.as_ref().is_some_and(|it| it.text == text) => {
                None
            }
            FileRead::Read { text, tag } => {
                let config = self.judge(&text);
                self.seen = Some(Seen { text, tag });
                config
            }
            // One that was there and is not any more stays what is configured.
            FileRead::Absent if self.seen.is_some() => None,
            FileRead::Absent => {
                self.seen = Some(Seen { text: String::new(), tag: None });
                Some(Config::default())
            }
        }
    }

    fn judge(&self, text: &str) -> Option<Config> {
        let (config, findings) = runs_on::read(text.as_bytes()).into_parts();
        let place = self.place();
        for finding in &findings {
            let (line, column) = (finding.mark.line, finding.mark.column);
            let said = &finding.message;
            if finding.severity == Severity::Error {
                tracing::error!(place, line, column, said, "a broken configuration is not used");
            } else {
                tracing::warn!(place, line, column, said, "about the configuration");
            }
        }
        if config.is_some() {
            tracing::info!(place, "configured");
        }
        config
    }

    fn place(&self) -> String {
        match &self.source {
            Source::File(path) => path.display().to_string(),
            Source::Organisation(repository) => format!("{repository}/{PATH}"),
            Source::Nowhere => "the defaults".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "runners:\n  large:\n    cpu: 2\n    ram: 4\n";

    fn read(text: &str) -> FileRead {
        FileRead::Read { text: text.to_owned(), tag: Some("tag".to_owned()) }
    }

    fn configuration() -> Configuration {
        Configuration { source: Source::Nowhere, seen: None }
    }

    #[test]
    fn what_is_new_and_good_is_taken_once() {
        let mut configuration = configuration();
        let first = configuration.take(read(GOOD)).unwrap();
        assert_eq!(first.runners.len(), 1);
        assert!(configuration.take(read(GOOD)).is_none(), "nothing is new");
        assert!(configuration.take(FileRead::Unchanged).is_none());
        let second = configuration.take(read(&GOOD.replace("large", "small"))).unwrap();
        assert!(second.runners.keys().all(|name| name.as_str() == "small"));
    }

    #[test]
    fn a_broken_one_is_not_used_and_the_next_good_one_is() {
        let mut configuration = configuration();
        assert!(configuration.take(read("runners: [")).is_none(), "jobs wait");
        assert!(configuration.take(read(GOOD)).is_some());
        assert!(configuration.take(read("pools: 7")).is_none(), "the last good one stays");
        assert!(configuration.take(read(GOOD)).is_some(), "and is told again");
    }

    #[test]
    fn without_one_the_defaults_serve_and_a_lost_one_stays() {
        let mut configuration = configuration();
        assert_eq!(configuration.take(FileRead::Absent), Some(Config::default()));
        assert!(configuration.take(FileRead::Absent).is_none());
        assert!(configuration.take(read(GOOD)).is_some());
        assert!(configuration.take(FileRead::Absent).is_none());
    }
}
