//! Ownership: the labels that a runner of this stack may be registered with.
//!
//! GitHub gives a job to any runner that has all of its labels. So a runner gets exactly the labels
//! of the job that it is made for, and a single label that the stack does not own refuses the whole
//! job. The stack *owns* labels with a head and the id of the job's run, labels with a head and no
//! id that name this stack by themselves, `dependabot` if it has that pool, and the operator's
//! lists ([`super::policy::PlainLabels`]).
//!
//! Not here: limits on a label's settings (`policy`), or where the job goes (`route`).

#[cfg(test)]
mod tests;

use super::policy::Policy;
use super::split::{Form, form, split};
use super::value::short;
use super::{LABELS_MAX, LabelKey};
use crate::ids::{Repository, RunAttempt};
use crate::route::ENV_DEFAULT;
use crate::sabotage;

/// The job whose labels are judged, and its stack.
#[derive(Clone, Copy, Debug)]
pub struct Claimant<'a> {
    /// The job's repository.
    pub repository: &'a Repository,
    /// The job's run.
    pub run: &'a RunAttempt,
    /// The stack's name.
    pub env: &'a str,
    /// Whether the stack has a pool for Dependabot.
    pub has_dependabot_pool: bool,
}

/// Why a runner may not have a label. The text is for the job's author, so it reveals nothing else.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotOwned {
    /// The label has the id of another run, or an id that is no run's.
    #[error(
        "label {label:?} has the id of another run; write runs-on=${{{{ github.run_id }}}}/… or runs-on/…"
    )]
    OtherRun {
        /// The label, shortened.
        label: String,
    },
    /// The label alone would mean another stack, so a job of that stack may carry it.
    #[error(
        "label {label:?} alone means stack {ENV_DEFAULT}; write env= into each label without a run's id"
    )]
    OtherStack {
        /// The label, shortened.
        label: String,
    },
    /// The label is a pair alone, without a head.
    #[error(
        "label {label:?} stands alone; write it into one label, as in runs-on=${{{{ github.run_id }}}}/{label}"
    )]
    Pair {
        /// The label, shortened.
        label: String,
    },
    /// The operator does not list the label.
    #[error(
        "label {label:?} may not be given to a runner for this repository; leave it out of `runs-on`"
    )]
    NotListed {
        /// The label, shortened.
        label: String,
    },
}

/// The labels that a runner for this job may not have; empty if the stack owns all of them.
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
        // Only the request's own runners may have its label.
        Form::Dependabot | Form::OfARequest | Form::Other => NotOwned::NotListed { label: shown() },
    };
    let lists = policy.plain_for(claimant.repository, claimant.env).any(|plain| plain.has(label));
    (!lists).then_some(refusal)
}

/// Any job of a stack may carry that stack's labels without an id, so each such label must name
/// this stack: a label with `env=dev` must not bring along a label that means production.
fn judge_without_id(label: &str, claimant: &Claimant<'_>) -> Option<NotOwned> {
    let value_of = |key: LabelKey| {
        let pairs = split(std::iter::once(label)).pairs;
        pairs.into_iter().find(|pair| LabelKey::parse(pair.key) == Some(key)).map(|pair| pair.value)
    };
    let is_other_stack = value_of(LabelKey::Env).unwrap_or(ENV_DEFAULT) != claimant.env;
    if is_other_stack {
        return Some(NotOwned::OtherStack { label: short(label) });
    }
    // Older workflows write their run's id as a marker with digits alone.
    let names_other_run = value_of(LabelKey::RunId).is_some_and(|id| {
        id.bytes().all(|byte| byte.is_ascii_digit()) && id != claimant.run.run_id()
    });
    names_other_run.then(|| NotOwned::OtherRun { label: short(label) })
}

/// Whether this is the id of the run, alone or with a suffix: `42` and `42-docker` for run 42.
pub fn is_of_run(id: &str, run: &RunAttempt) -> bool {
    let run = run.run_id();
    let suffix = id.strip_prefix(run);
    !run.is_empty() && suffix.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
}

fn is_pair(label: &str) -> bool {
    label.split_once('=').is_some_and(|(key, _)| LabelKey::parse(key).is_some())
}
