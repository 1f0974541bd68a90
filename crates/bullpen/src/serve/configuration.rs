//! Reading the configuration again and again, from a file or from the organisation's repository.
//!
//! The last good configuration stays in use. A broken pool stays as it was in it, and the other pools
//! change. Jobs wait until there is a first good configuration, or a first good version of their pool.
//!
//! Not here: parsing a configuration (`bullpen_core::config`).

use std::path::PathBuf;

use bullpen_core::config::{
    Config, EMPTY_FILE, Finding, RUNS_ON_BYTES_MAX, Stack as StackFile, runs_on,
};
use bullpen_core::ids::Repository;
use bullpen_core::ports::{FileRead, JobForge};
use bullpen_core::severity::Severity;

use crate::config_file::{self, Unusable};
use crate::exit::Exit;
use crate::inputs::{GithubInputs, Scope, StackInputs, files};
use crate::workflow::Failure;

/// The repository in which an organisation keeps it.
const REPOSITORY: &str = ".github-private";
const PATH: &str = ".github/runs-on.yml";

/// The place of the configuration.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// In a file of this machine.
    File(PathBuf),
    /// In the organisation's own repository.
    Organisation(Repository),
    /// Nowhere: the defaults serve.
    Nowhere,
}

impl Source {
    /// A file, if one is named, else the organisation's, if there is one.
    pub(crate) fn of(stack: &StackInputs, github: &GithubInputs) -> Self {
        match (&stack.config, &github.scope) {
            (Some(path), _) => Self::File(path.clone()),
            (None, Some(Scope::Organisation(name))) => {
                Self::Organisation(Repository::new(format!("{name}/{REPOSITORY}")))
            }
            (None, Some(Scope::Repository(_)) | None) => Self::Nowhere,
        }
    }

    /// The place in words.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Organisation(repository) => format!("{repository}/{PATH}"),
            Self::Nowhere => "the defaults".to_owned(),
        }
    }

    /// Reads the configuration once, for a command. None if there is no place, or no forge to ask.
    pub(crate) async fn once(
        &self,
        forge: Option<&impl JobForge>,
    ) -> Result<Option<Config>, Failure> {
        let unusable =
            |Unusable { what, hint }: Unusable| Failure { exit: Exit::Usage, what, hint };
        match (self, forge) {
            (Self::File(path), _) => config_file::load(path).map(Some).map_err(unusable),
            (Self::Organisation(repository), Some(forge)) => {
                let read = forge.file(repository, PATH, None).await;
                match read.map_err(|fault| Failure::of("could not ask for the file", &fault))? {
                    FileRead::Read { text, .. } => {
                        let judged = config_file::judged(&self.place(), text.as_bytes());
                        judged.map(Some).map_err(unusable)
                    }
                    FileRead::Absent | FileRead::Unchanged => Ok(Some(Config::default())),
                }
            }
            (Self::Organisation(_), None) | (Self::Nowhere, _) => Ok(None),
        }
    }
}

/// The configuration and what was read of it so far.
#[derive(Debug)]
pub(super) struct Configuration<'a> {
    source: Source,
    /// `bullpen.toml`, which the configuration is checked against.
    file: &'a StackFile,
    /// The text that was read last, good or not.
    seen: Option<Seen>,
    /// The last good configuration.
    good: Option<Config>,
}

#[derive(Debug)]
struct Seen {
    text: String,
    tag: Option<String>,
}

impl<'a> Configuration<'a> {
    /// That of a file, if one is named, else the organisation's, if there is one.
    pub(super) fn of(stack: &StackInputs, github: &GithubInputs, file: &'a StackFile) -> Self {
        let source = Source::of(stack, github);
        Self { source, file, seen: None, good: None }
    }

    /// Whether there was ever a file. A missing file is no order to empty pools: GitHub answers the same
    /// to a caller that may not read it.
    pub(super) fn is_found(&self) -> bool {
        self.seen.as_ref().is_some_and(|seen| !seen.text.is_empty())
    }

    /// Reads the configuration. Returns it if it is new and good, but for single pools; logs every broken
    /// part, which stays as it was.
    pub(super) async fn look(&mut self, forge: &impl JobForge) -> Option<Config> {
        let read = match &self.source {
            Source::Nowhere => FileRead::Absent,
            Source::File(path) => match files::text(path, RUNS_ON_BYTES_MAX) {
                Ok(bytes) => {
                    let text = String::from_utf8_lossy(&bytes).into_owned();
                    FileRead::Read { text, tag: None }
                }
                Err(error) => {
                    tracing::error!(%error, "could not read the configuration");
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
            // A configuration that disappeared stays in use.
            FileRead::Absent if self.seen.is_some() => None,
            FileRead::Absent => {
                self.seen = Some(Seen { text: String::new(), tag: None });
                self.good = Some(Config::default());
                self.good.clone()
            }
        }
    }

    fn judge(&mut self, text: &str) -> Option<Config> {
        let stacks = std::slice::from_ref(self.file);
        let (read, findings) = runs_on::read_beside(text.as_bytes(), stacks).into_parts();
        let place = self.source.place();
        // A file that a person or a script has emptied is no order to empty pools.
        let says_nothing = findings.iter().any(|finding| finding.code == EMPTY_FILE);
        say(&place, &findings, read.is_some() && !says_nothing);
        let read = read.filter(|_| !says_nothing)?;
        let broken = read.broken.clone();
        let before = self.good.take().unwrap_or_default();
        let config = read.keeping(&before);
        for pool in &broken {
            let becomes = if config.pools.contains_key(pool) {
                "it stays as it was"
            } else {
                "it is left alone, and its jobs wait"
            };
            tracing::error!(place, %pool, becomes, "pool is broken");
        }
        tracing::info!(place, "configuration applied");
        self.good = Some(config.clone());
        Some(config)
    }
}

fn say(place: &str, findings: &[Finding], is_taken: bool) {
    for finding in findings {
        let (line, column) = (finding.mark.line, finding.mark.column);
        let said = finding.text();
        match finding.severity {
            Severity::Error if is_taken => {
                tracing::error!(place, line, column, said, "finding in a broken pool");
            }
            Severity::Error => {
                tracing::error!(place, line, column, said, "configuration is broken and not used");
            }
            Severity::Warning | Severity::Note => {
                tracing::warn!(place, line, column, said, "finding in the configuration");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bullpen_core::ids::PoolName;

    use super::*;

    const GOOD: &str = "runners:\n  large:\n    cpu: 2\n    ram: 4\n";

    fn read(text: &str) -> FileRead {
        FileRead::Read { text: text.to_owned(), tag: Some("tag".to_owned()) }
    }

    fn file() -> StackFile {
        let read = bullpen_core::config::stack::read(b"", &BTreeMap::new());
        read.into_parts().0.expect("the defaults are good")
    }

    fn configuration(file: &StackFile) -> Configuration<'_> {
        Configuration { source: Source::Nowhere, file, seen: None, good: None }
    }

    /// What is configured of a pool: how many hot machines, broken, or nothing at all.
    fn pool(config: &Config, name: &str) -> String {
        let name = PoolName::new(name);
        match config.pools.get(&name) {
            Some(pool) => format!("{} hot", pool.schedule.entries[0].hot),
            None if config.broken.contains(&name) => "broken".to_owned(),
            None => "gone".to_owned(),
        }
    }

    fn pools(a: &str, b: &str) -> FileRead {
        let pool = |name: &str, hot: &str| {
            let schedule = format!("[{{name: default, hot: {hot}, stopped: 0}}]");
            format!("  {name}: {{runner: large, schedule: {schedule}}}\n")
        };
        read(&format!("{GOOD}pools:\n{}{}", pool("a", a), pool("b", b)))
    }

    #[test]
    fn a_broken_pool_stays_as_it_was_and_the_others_change() {
        let file = file();
        let mut configuration = configuration(&file);
        for (text, a, b) in [
            (pools("1", "many"), "1 hot", "broken"),
            (pools("2", "2"), "2 hot", "2 hot"),
            (pools("3", "many"), "3 hot", "2 hot"),
            (pools("4", "-1"), "4 hot", "2 hot"),
            (pools("5", "5"), "5 hot", "5 hot"),
        ] {
            let config = configuration.take(text).expect("it is taken");
            assert_eq!((pool(&config, "a"), pool(&config, "b")), (a.to_owned(), b.to_owned()));
        }
        assert!(configuration.take(read("runners: [")).is_none(), "all of it stays");
        let config = configuration.take(pools("6", "many")).expect("it is taken");
        assert_eq!((pool(&config, "a").as_str(), pool(&config, "b").as_str()), ("6 hot", "5 hot"));
        let config = configuration.take(read(GOOD)).expect("it is taken");
        assert_eq!((pool(&config, "a").as_str(), pool(&config, "b").as_str()), ("gone", "gone"));
    }

    #[test]
    fn what_is_new_and_good_is_taken_once() {
        let file = file();
        let mut configuration = configuration(&file);
        let first = configuration.take(read(GOOD)).unwrap();
        assert_eq!(first.runners.len(), 1);
        assert!(configuration.take(read(GOOD)).is_none(), "nothing is new");
        assert!(configuration.take(FileRead::Unchanged).is_none());
        let second = configuration.take(read(&GOOD.replace("large", "small"))).unwrap();
        assert!(second.runners.keys().all(|name| name.as_str() == "small"));
    }

    #[test]
    fn a_broken_one_is_not_used_and_the_next_good_one_is() {
        let file = file();
        let mut configuration = configuration(&file);
        assert!(configuration.take(read("runners: [")).is_none(), "jobs wait");
        assert!(configuration.take(read(GOOD)).is_some());
        assert!(configuration.take(read("pools: 7")).is_none(), "the last good one stays");
        assert!(configuration.take(read(GOOD)).is_some(), "and is told again");
    }

    #[test]
    fn an_emptied_one_is_not_used() {
        let file = file();
        let mut configuration = configuration(&file);
        for text in ["", "# nothing\n", "~", "---\n"] {
            assert!(configuration.take(read(text)).is_none(), "{text:?}: jobs wait");
        }
        assert!(configuration.take(pools("1", "2")).is_some());
        for text in ["", "\n\n", "# nothing\n"] {
            assert!(configuration.take(read(text)).is_none(), "{text:?}: the last good one stays");
        }
        let config = configuration.take(read(GOOD)).expect("a file without pools is one");
        assert!(config.pools.is_empty());
    }

    #[test]
    fn without_one_the_defaults_serve_and_a_lost_one_stays() {
        let file = file();
        let mut configuration = configuration(&file);
        assert_eq!(configuration.take(FileRead::Absent), Some(Config::default()));
        assert!(configuration.take(FileRead::Absent).is_none());
        assert!(!configuration.is_found());
        assert!(configuration.take(read(GOOD)).is_some());
        assert!(configuration.is_found());
        assert!(configuration.take(FileRead::Absent).is_none());
    }
}
