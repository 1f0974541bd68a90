//! Whose code a job runs, and whether the job may have a machine that another job used before.
//!
//! [`Provenance`] is GitHub's answer about a job's run and repository. It only grows: of two
//! answers the less trusted one stays. [`used_machines`] decides. If an answer is missing, the
//! worker asks GitHub, and if GitHub does not answer, the job gets no used machine.
//!
//! Not here: asking (`bullpen-engine`), GitHub's JSON (`bullpen-github`), reading the operator's
//! rules (`config`), what happens to the machine afterwards (`returning`).

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::JobDetails;
use crate::ids::{Repository, RunAttempt};
use crate::labels::is_bound_to_run;
use crate::sabotage;

/// Whose code runs in a run, the most trusted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// The repository's own.
    Own,
    /// A pull request's, from a branch of the repository itself.
    PullRequest,
    /// A change of dependencies that Dependabot proposed.
    Dependabot,
    /// A fork's.
    Fork,
}

impl Origin {
    /// The origin as one word, for logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::PullRequest => "pull-request",
            Self::Dependabot => "dependabot",
            Self::Fork => "fork",
        }
    }
}

/// Who can see a repository, and so propose changes to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Visibility {
    /// Only people with access: GitHub's `private` and `internal`.
    Private,
    /// All people.
    Public,
}

/// Where the code of a job comes from. An absent field is an answer that GitHub has not given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Provenance {
    /// Whose code runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// Who can see the repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visibility: Option<Visibility>,
}

impl Provenance {
    /// Whether GitHub has given no answer.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
    pub(super) const fn is_unknown(&self) -> bool {
        self.origin.is_none() && self.visibility.is_none()
    }

    /// Both answers merged, in any order.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        Self {
            origin: self.origin.max(other.origin),
            visibility: self.visibility.max(other.visibility),
        }
    }
}

/// GitHub's answer about one attempt of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFact {
    /// Its repository.
    pub repository: Repository,
    /// Which attempt of which run.
    pub run: RunAttempt,
    /// Where its code comes from.
    pub provenance: Provenance,
}

/// Where a job may have a used machine although a job of another run may carry the same labels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SharedLabels {
    /// In private and internal repositories with runners of their own: no fork can queue a job
    /// there.
    #[default]
    Private,
    /// In every repository: the operator knows that no untrusted job can be queued.
    Always,
    /// Nowhere.
    Never,
}

/// The operator's rules about untrusted code. Forks and Dependabot are never trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodeRules {
    /// Whether pull requests from the repository's own branches are untrusted too.
    pub distrusts_pull_requests: bool,
    /// Whether runners are registered for every repository of their owner, so that a fork of a
    /// public repository can take the runner of a private one.
    pub runners_are_the_owners: bool,
    /// Where jobs under shared labels may have used machines.
    pub shared_labels: SharedLabels,
    /// The same for single repositories. Names in lower case.
    pub repositories: BTreeMap<Repository, SharedLabels>,
}

impl CodeRules {
    /// Whether a machine that ran such code may serve other jobs, and the reverse.
    pub const fn trusts(&self, origin: Origin) -> bool {
        match origin {
            Origin::Own => true,
            Origin::PullRequest => !self.distrusts_pull_requests,
            Origin::Dependabot | Origin::Fork => false,
        }
    }

    /// Whether the job may have a used machine under shared labels; none if that depends on an
    /// answer that GitHub has not given.
    fn offers_under_shared_labels(&self, about: &JobDetails) -> Option<bool> {
        let key = Repository::new(about.repository.as_str().to_lowercase());
        match self.repositories.get(&key).copied().unwrap_or(self.shared_labels) {
            SharedLabels::Always => Some(true),
            SharedLabels::Never => Some(false),
            // A branch of a private repository can queue a pull request's job.
            SharedLabels::Private if self.distrusts_pull_requests => Some(false),
            SharedLabels::Private if self.runners_are_the_owners => Some(false),
            SharedLabels::Private => {
                about.provenance.visibility.map(|seen| seen == Visibility::Private)
            }
        }
    }
}

/// Why a job gets only unused machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnlyUnused {
    /// It runs untrusted code.
    UntrustedCode,
    /// GitHub did not report whose code it runs.
    OriginUnknown,
    /// GitHub may give its runner to a job of another run, with code of any origin.
    LabelsNotBound,
}

impl OnlyUnused {
    /// The reason's code, for metrics and `explain`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UntrustedCode => "untrusted-code",
            Self::OriginUnknown => "origin-unknown",
            Self::LabelsNotBound => "labels-not-bound",
        }
    }
}

impl fmt::Display for OnlyUnused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether a job may have a machine that another job used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsedMachines {
    /// It may.
    Offered,
    /// It may not.
    Withheld(OnlyUnused),
    /// The worker must ask GitHub first.
    Ask,
}

impl UsedMachines {
    /// Why the job gets only unused machines, if that is certain.
    pub const fn withheld(self) -> Option<OnlyUnused> {
        match self {
            Self::Withheld(why) => Some(why),
            Self::Offered | Self::Ask => None,
        }
    }

    /// The decision after the worker asked GitHub, with or without an answer.
    #[must_use]
    pub fn after_asking(self) -> Self {
        match self {
            Self::Ask if sabotage!("unknown-origin-is-trusted") => Self::Offered,
            Self::Ask => Self::Withheld(OnlyUnused::OriginUnknown),
            decided => decided,
        }
    }
}

/// Whether a job may have a machine that another job of its trust group used.
pub fn used_machines(about: &JobDetails, rules: &CodeRules) -> UsedMachines {
    let origin = about.provenance.origin;
    if origin.is_some_and(|origin| !rules.trusts(origin)) && !sabotage!("forks-get-used-machines") {
        return UsedMachines::Withheld(OnlyUnused::UntrustedCode);
    }
    let is_bound = is_bound_to_run(&about.labels, &about.run)
        || sabotage!("used-machines-under-unbound-labels");
    match (is_bound, rules.offers_under_shared_labels(about)) {
        (false, Some(false)) => UsedMachines::Withheld(OnlyUnused::LabelsNotBound),
        (false, None) => UsedMachines::Ask,
        (true, _) | (false, Some(true)) => match origin {
            Some(_) => UsedMachines::Offered,
            None => UsedMachines::Ask,
        },
    }
}
