//! Whose jobs a service takes: those of one owner or of one repository, announced by an installation
//! of its own App.
//!
//! GitHub's names are compared without case. A webhook of a repository or of an organisation names no
//! installation, and neither does an answer to a question of ours: there the owner alone decides.
//!
//! Not here: what becomes of a stored row outside the scope (`job::JobEvent::Dismissed`).

use std::collections::BTreeSet;
use std::fmt;

use crate::ids::Repository;
use crate::sabotage;

/// Whose jobs a service takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceScope {
    /// Of which repositories.
    pub served: ServedRepositories,
    /// Announced by which installations.
    pub installations: Installations,
}

/// The repositories of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ServedRepositories {
    /// Every repository: for worlds in which GitHub has nobody else's.
    #[default]
    Everything,
    /// All of this owner.
    Owner(String),
    /// This one.
    Repository(Repository),
}

/// The installations of a service's Apps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Installations {
    /// The service has a token and no App, so no installation is its own.
    #[default]
    Any,
    /// The service has an App, and GitHub has not said yet where that is installed.
    NotAsked,
    /// These.
    Known(BTreeSet<u64>),
}

/// What the scope makes of a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScopeVerdict {
    /// It is about a job that the service may take.
    Inside,
    /// It is not.
    Outside(OutOfScope),
    /// GitHub has not said yet which installations are the service's.
    NotKnown,
}

/// What of a webhook, or of an answer of GitHub's, is not the service's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OutOfScope {
    /// The repository.
    Repository,
    /// The installation.
    Installation,
}

impl OutOfScope {
    /// In a word, for counters.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Repository => "repository",
            Self::Installation => "installation",
        }
    }
}

impl ServiceScope {
    /// No limit at all: for worlds in which GitHub has nobody else's jobs.
    pub const EVERYTHING: Self =
        Self { served: ServedRepositories::Everything, installations: Installations::Any };

    /// Of these repositories, announced by any installation.
    pub fn of(served: ServedRepositories) -> Self {
        Self { served, installations: Installations::default() }
    }

    /// Whether jobs of this repository are the service's.
    pub fn serves(&self, repository: &Repository) -> bool {
        if sabotage!("foreign-repositories-are-served") {
            return true;
        }
        match &self.served {
            ServedRepositories::Everything => true,
            ServedRepositories::Owner(owner) => {
                let of = repository.as_str().split_once('/');
                of.is_some_and(|(of, name)| of.eq_ignore_ascii_case(owner) && !name.is_empty())
            }
            ServedRepositories::Repository(own) => {
                own.as_str().eq_ignore_ascii_case(repository.as_str())
            }
        }
    }

    /// Judges a webhook about a job of this repository that names this installation.
    pub fn judge(&self, repository: &Repository, installation: Option<u64>) -> ScopeVerdict {
        if !self.serves(repository) {
            return ScopeVerdict::Outside(OutOfScope::Repository);
        }
        match (&self.installations, installation) {
            (Installations::Any, _) | (_, None) => ScopeVerdict::Inside,
            (Installations::NotAsked, Some(_)) => ScopeVerdict::NotKnown,
            (Installations::Known(own), Some(id)) => {
                if own.contains(&id) || sabotage!("foreign-installations-are-served") {
                    ScopeVerdict::Inside
                } else {
                    ScopeVerdict::Outside(OutOfScope::Installation)
                }
            }
        }
    }
}

impl fmt::Display for ServedRepositories {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everything => f.write_str("every repository"),
            Self::Owner(owner) => write!(f, "repositories of {owner}"),
            Self::Repository(repository) => write!(f, "{repository}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository(name: &str) -> Repository {
        Repository::new(name)
    }

    #[test]
    fn names_are_compared_whole_and_without_case() {
        let one = ServiceScope::of(ServedRepositories::Repository(repository("acme/App")));
        assert!(one.serves(&repository("Acme/app")));
        for other in ["acme/app2", "acme/ap", "evil/app", "acme", "acme/app/x", ""] {
            assert!(!one.serves(&repository(other)), "{other}");
        }
        let owner = ServiceScope::of(ServedRepositories::Owner("acme".to_owned()));
        assert!(owner.serves(&repository("ACME/anything")));
        for other in ["acme2/app", "acm/app", "evil/acme", "acme", "acme/", "/acme", ""] {
            assert!(!owner.serves(&repository(other)), "{other}");
        }
    }

    #[test]
    fn an_installation_counts_where_an_app_is_configured_and_one_is_named() {
        let served = ServedRepositories::Owner("acme".to_owned());
        let with = |installations| ServiceScope { served: served.clone(), installations };
        let (own, evil) = (repository("acme/app"), repository("evil/app"));
        let known = with(Installations::Known([7].into()));
        assert_eq!(known.judge(&own, Some(7)), ScopeVerdict::Inside);
        assert_eq!(known.judge(&own, Some(8)), ScopeVerdict::Outside(OutOfScope::Installation));
        assert_eq!(
            known.judge(&own, None),
            ScopeVerdict::Inside,
            "a hook of the organisation's own"
        );
        let foreign = ScopeVerdict::Outside(OutOfScope::Repository);
        assert_eq!(known.judge(&evil, Some(7)), foreign, "both have to be right");
        assert_eq!(with(Installations::Any).judge(&own, Some(8)), ScopeVerdict::Inside);
        let unknown = with(Installations::NotAsked);
        assert_eq!(unknown.judge(&own, Some(7)), ScopeVerdict::NotKnown);
        assert_eq!(unknown.judge(&evil, Some(7)), foreign, "that is known without asking");
    }
}
