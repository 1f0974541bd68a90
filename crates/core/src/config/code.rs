//! `x-bullpen.untrusted` and `x-bullpen.reuse-under-shared-labels`: which code may run on a machine
//! that another owner used before.
//!
//! Not here: how the rules are applied to a job (`job::origin`).

use std::collections::BTreeMap;

use super::extension::is_repository;
use super::finding::Findings;
use super::node::{Node, Value};
use super::read::{choice, entries, items};
use crate::ids::Repository;
use crate::job::{CodeRules, SharedLabels};

/// The kinds of code that an operator may call untrusted.
const KINDS: [(&str, Kind); 3] =
    [("forks", Kind::Always), ("dependabot", Kind::Always), ("pull-requests", Kind::PullRequests)];

const SHARED: [(&str, SharedLabels); 3] = [
    ("private", SharedLabels::Private),
    ("always", SharedLabels::Always),
    ("never", SharedLabels::Never),
];

#[derive(Clone, Copy)]
enum Kind {
    /// Untrusted even if the operator does not list it.
    Always,
    PullRequests,
}

/// Reads both keys.
pub(super) fn read(
    untrusted: Option<&Node>,
    shared_labels: Option<&Node>,
    findings: &mut Findings,
) -> CodeRules {
    let mut rules = CodeRules::default();
    let must_be = "a list of `forks`, `dependabot` and `pull-requests`";
    let kinds = untrusted.and_then(|node| items(node, "untrusted", must_be, findings));
    for kind in kinds.unwrap_or_default() {
        if let Some(Kind::PullRequests) = choice(&kind, "untrusted", &KINDS, findings) {
            rules.distrusts_pull_requests = true;
        }
    }
    if let Some(node) = shared_labels {
        (rules.shared_labels, rules.repositories) = shared(node, findings);
    }
    rules
}

/// One word for all repositories, or a word for each that is named.
fn shared(
    node: &Node,
    findings: &mut Findings,
) -> (SharedLabels, BTreeMap<Repository, SharedLabels>) {
    const KEY: &str = "reuse-under-shared-labels";
    let word = |node: &Node, findings: &mut Findings| choice(node, KEY, &SHARED, findings);
    if !matches!(node.value, Value::Map(_)) {
        return (word(node, findings).unwrap_or_default(), BTreeMap::new());
    }
    let mut repositories = BTreeMap::new();
    for entry in entries(node, KEY, findings) {
        is_repository(&entry.key, entry.mark, findings);
        if let Some(word) = word(&entry.node, findings) {
            // GitHub does not tell names apart by case.
            repositories.insert(Repository::new(entry.key.to_lowercase()), word);
        }
    }
    (SharedLabels::default(), repositories)
}
