//! Ownership: the labels that a runner of this stack may be registered with.
//!
//! GitHub gives a job to any runner that has all of its labels. So a runner has all labels of the job
//! it is made for and no more, and one label that the stack does not own refuses the whole job.
//! *Owned* are labels with a head and the job's own run id, labels with a head and no id that mean this
//! stack by themselves, `dependabot` where that pool exists, and what the operator lists as
//! [`super::policy::PlainLabels`].
//!
//! Not here: what a label asks for (`policy`), or where the job goes (`route`).

#[cfg(test)]
mod tests;

use super::policy::Policy;
use super::split::{Form, form, split};
use super::value::short;
use super::{LABELS_MAX, LabelKey};
use crate::ids::{Repository, RunAttempt};
use crate::route::ENV_DEFAULT;
use crate::sabotage;

/// The job whose labels are judged, and what its stack has.
#[derive(Clone, Copy, Debug)]
pub struct Claimant<'a> {
    /// The repository of the job.
    pub repository: &'a Repository,
    /// The run of the job.
    pub run: &'a RunAttempt,
    /// The stack's name.
    pub env: &'a str,
    /// Whether the stack has a pool for dependabot.
    pub has_dependabot_pool: bool,
}

/// Why a runner may not have a label. The text is for the job's author, and tells nothing else.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotOwned {
    /// The label is of another run, or its id is no run's.
    #[error(
        "label {label:?} has the id of another run; write runs-on=${{{{ github.run_id }}}}/… or runs-on/…"
    )]
    OtherRun {
        /// The label, shortened.
        label: String,
    },
    /// The label alone would mean another stack, so that a job of that stack may ask for it.
    #[error(
        "label {label:?} alone means stack {ENV_DEFAULT}; write env= into each label without a run's id"
    )]
    OtherStack {
        /// The label, shortened.
        label: String,
    },
    /// A pair that stands alone as a label.
    #[error(
        "label {label:?} stands alone; write it into one label, as in runs-on=${{{{ github.run_id }}}}/{label}"
    )]
    Pair {
        /// The label, shortened.
        label: String,
    },
    /// A label that the operator has not listed.
    #[error(
        "label {label:?} may not be given to a runner for this repository; leave it out of `runs-on`"
    )]
    NotListed {
        /// The label, shortened.
        label: String,
    },
}

/// The labels that a runner for this job may not have; none if the stack owns all of them.
pub fn not_owned<S: AsRef<str>>(
    labels: &[S],
    claimant: &Claimant<'_>,
    policy: &Policy,
) -> Vec<NotOwned> {
    let judged = labels.iter().take(LABELS_MAX).map(AsRef::as_ref);
    judged.filter_map(|label| judge(label.trim(), claimant, policy)).collect()
}

fn judge(label: &str, claimant: &Claimant<'_>, policy: &Policy) -> Option<NotOwned> {
    let shown = || short(label);
    let refusal = match form(label) {
        Form::Packed { id: None | Some(""), .. } | Form::Legacy { .. } => {
            return judge_without_id(label, claimant);
        }
        Form::Packed { id: Some(id), .. } if is_of_run(id, claimant.run) => return None,
        Form::Packed { .. } if sabotage!("labels-of-other-runs-are-owned") => return None,
        Form::Packed { .. } => NotOwned::OtherRun { label: shown() },
        Form::Dependabot if claimant.has_dependabot_pool => return None,
        Form::Other if sabotage!("unlisted-labels-are-owned") => return None,
        Form::Other if is_pair(label) => NotOwned::Pair { label: shown() },
        // A request's label is owned by that request's runners alone.
        Form::Dependabot | Form::OfARequest | Form::Other => NotOwned::NotListed { label: shown() },
    };
    let lists = policy.plain_for(claimant.repository, claimant.env).any(|plain| plain.has(label));
    (!lists).then_some(refusal)
}

/// A label without an id may be written by every job of its stack, and of no other: one label that
/// names `env=dev` must not bring along one that means production.
fn judge_without_id(label: &str, claimant: &Claimant<'_>) -> Option<NotOwned> {
    let value_of = |key: LabelKey| {
        let pairs = split(std::iter::once(label)).pairs;
        pairs.into_iter().find(|pair| LabelKey::parse(pair.key) == Some(key)).map(|pair| pair.value)
    };
    let is_other_stack = value_of(LabelKey::Env).unwrap_or(ENV_DEFAULT) != claimant.env;
    if is_other_stack {
        return Some(NotOwned::OtherStack { label: short(label) });
    }
    // A marker with digits alone is how older workflows write their run's id.
    let names_other_run = value_of(LabelKey::RunId).is_some_and(|id| {
        id.bytes().all(|byte| byte.is_ascii_digit()) && id != claimant.run.run_id()
    });
    names_other_run.then(|| NotOwned::OtherRun { label: short(label) })
}

/// Whether this id is the run's own, alone or with a suffix: `42` and `42-docker` of run 42.
pub fn is_of_run(id: &str, run: &RunAttempt) -> bool {
    let run = run.run_id();
    let suffix = id.strip_prefix(run);
    !run.is_empty() && suffix.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
}

fn is_pair(label: &str) -> bool {
    label.split_once('=').is_some_and(|(key, _)| LabelKey::parse(key).is_some())
}
