//! The scope of a service: it takes jobs of one GitHub owner or one repository, announced by an
//! installation of its own App.
//!
//! Names are compared without case, as GitHub does. Webhooks of a repository or an organisation,
//! and GitHub's answers to our calls, name no installation; for them the repository alone decides.
//!
//! Not here: stored rows outside the scope (`job::JobEvent::Dismissed`).

use std::collections::BTreeSet;
use std::fmt;

use crate::ids::Repository;
use crate::sabotage;

/// The jobs that a service takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceScope {
    /// The repositories whose jobs it takes.
    pub served: ServedRepositories,
    /// The installations whose webhooks it accepts.
    pub installations: Installations,
}

/// The repositories of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ServedRepositories {
    /// Every repository: for tests in which GitHub has only this service's repositories.
    #[default]
    Everything,
    /// All repositories of this GitHub owner.
    Owner(String),
    /// This repository.
    Repository(Repository),
}

/// The installations of a service's Apps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Installations {
    /// Any: the service has a token and no App, so it has no installations of its own.
    #[default]
    Any,
    /// Unknown yet: the service has an App, but GitHub has not yet answered where it is installed.
    NotAsked,
    /// These installations.
    Known(BTreeSet<u64>),
}

/// Whether a webhook is inside the scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScopeVerdict {
    /// The webhook is about a job that the service may take.
    Inside,
    /// The webhook is about another service's job.
    Outside(OutOfScope),
    /// Undecided: GitHub has not yet answered which installations are the service's.
    NotKnown,
}

/// The part of a webhook, or of an answer from GitHub, that is outside the scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OutOfScope {
    /// The repository.
    Repository,
    /// The installation.
    Installation,
}

impl OutOfScope {
    /// The word for counters.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Repository => "repository",
            Self::Installation => "installation",
        }
    }
}

impl ServiceScope {
    /// No limit: for tests in which GitHub has only this service's jobs.
    pub const EVERYTHING: Self =
        Self { served: ServedRepositories::Everything, installations: Installations::Any };

    /// The scope of these repositories, with any installation.
    pub fn of(served: ServedRepositories) -> Self {
        Self { served, installations: Installations::default() }
    }

    /// Whether the service takes jobs of this repository.
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
        assert_eq!(known.judge(&own, None), ScopeVerdict::Inside, "a webhook of the organisation");
        let foreign = ScopeVerdict::Outside(OutOfScope::Repository);
        assert_eq!(known.judge(&evil, Some(7)), foreign, "the repository must be right too");
        assert_eq!(with(Installations::Any).judge(&own, Some(8)), ScopeVerdict::Inside);
        let unknown = with(Installations::NotAsked);
        assert_eq!(unknown.judge(&own, Some(7)), ScopeVerdict::NotKnown);
        assert_eq!(
            unknown.judge(&evil, Some(7)),
            foreign,
            "the repository decides without GitHub's answer"
        );
    }
}
