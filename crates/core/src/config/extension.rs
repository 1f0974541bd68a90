//! `x-bullpen`: our own keys in `runs-on.yml`.
//!
//! They are under one top-level key, because RunsOn rejects unknown keys inside runners and pools:
//! with keys of ours there, RunsOn could not read the file.
//!
//! Not here: what the keys change (`runner`, `pool`), the keys of a pool (`pool_keys`), or `labels`
//! (`label_policy`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::code;
use super::finding::Findings;
use super::label_policy;
use super::node::{MappingEntry, Node, Value};
use super::pool_keys::{self, PoolKeys};
use super::read::{
    Fields, MappingShape, boolean, choice, duration, entries, mapping, positive, shown, text, used,
    wrong,
};
use super::runner::Reuse;
use crate::class::Usage;
use crate::ids::{PoolName, RunnerGroup, TrustGroup};
use crate::job::CodeRules;
use crate::labels::policy::Policy;

/// The keys of `x-bullpen`.
pub const EXTENSION: MappingShape = MappingShape {
    name: "`x-bullpen`",
    keys: &[
        used("runners"),
        used("pools"),
        used("default-pool"),
        used("on-unfulfillable"),
        used("labels"),
        used("untrusted"),
        used("reuse-under-shared-labels"),
    ],
};

/// Our keys for a runner.
pub const RUNNER_EXTENSION: MappingShape = MappingShape {
    name: "`x-bullpen.runners.<name>`",
    keys: &[used("reuse"), used("trust"), used("usage"), used("max-runtime"), used("group")],
};

/// The keys of `reuse`.
pub const REUSE: MappingShape =
    MappingShape { name: "`reuse`", keys: &[used("max-uses"), used("max-age")] };

/// What the service does about a job for which no runner can ever be started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnUnfulfillable {
    /// It annotates the commit, and the job goes on waiting.
    Annotate,
    /// It annotates the commit, and cancels the run once the run's other jobs have ended.
    #[default]
    Cancel,
}

/// Our keys for one runner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RunnerExtension {
    pub(super) reuse: Option<Reuse>,
    pub(super) trust: Option<TrustGroup>,
    pub(super) usage: Option<Usage>,
    pub(super) max_runtime: Option<Duration>,
    pub(super) group: Option<RunnerGroup>,
}

/// Everything under `x-bullpen`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Extension {
    pub(super) runners: BTreeMap<String, RunnerExtension>,
    pub(super) pools: BTreeMap<String, PoolKeys>,
    pub(super) default_pool: Option<PoolName>,
    pub(super) on_unfulfillable: OnUnfulfillable,
    pub(super) labels: Policy,
    pub(super) code: CodeRules,
}

/// Reads `x-bullpen`. `runners` and `pools` are the names that exist.
pub(super) fn read(
    node: &Node,
    runners: &BTreeSet<&str>,
    pools: &BTreeSet<&str>,
    others: &[&MappingShape],
    findings: &mut Findings,
) -> Extension {
    let Some(fields) = mapping(node, &EXTENSION, others, findings) else {
        return Extension::default();
    };
    let mut extension = Extension::default();
    for entry in named(fields.get("runners"), "runners", "runner", runners, findings) {
        let read = runner(&entry.node, others, findings);
        extension.runners.insert(entry.key.clone(), read);
    }
    for entry in named(fields.get("pools"), "pools", "pool", pools, findings) {
        // An entry for an unknown pool is an error of the file, not of that pool: it was meant for
        // another pool, which must not go on without these settings.
        let read = findings.inside(&PoolName::new(&entry.key), |findings| {
            if entry.node.extent().flawed {
                findings.blame();
            }
            pool_keys::read(&entry.node, others, findings)
        });
        extension.pools.insert(entry.key.clone(), read);
    }
    if let Some(node) = fields.get("default-pool")
        && let Some(name) = text(node, "default-pool", findings)
    {
        exists(name, node.mark, "pool", pools, findings);
        extension.default_pool = Some(PoolName::new(name));
    }
    let choices = [("annotate", OnUnfulfillable::Annotate), ("cancel", OnUnfulfillable::Cancel)];
    extension.on_unfulfillable = fields
        .get("on-unfulfillable")
        .and_then(|node| choice(node, "on-unfulfillable", &choices, findings))
        .unwrap_or_default();
    if let Some(node) = fields.get("labels") {
        extension.labels = label_policy::read(node, runners, pools, others, findings);
    }
    let (untrusted, shared_labels) =
        (fields.get("untrusted"), fields.get("reuse-under-shared-labels"));
    extension.code = code::read(untrusted, shared_labels, findings);
    extension
}

/// The entries of a mapping whose keys are names of things that must exist.
fn named<'n>(
    node: Option<&'n Node>,
    key: &str,
    noun: &str,
    known: &BTreeSet<&str>,
    findings: &mut Findings,
) -> &'n [MappingEntry] {
    let Some(node) = node else { return &[] };
    let entries = entries(node, key, findings);
    for entry in entries {
        exists(&entry.key, entry.mark, noun, known, findings);
    }
    entries
}

pub(super) fn exists(
    name: &str,
    mark: super::finding::TextPosition,
    noun: &str,
    known: &BTreeSet<&str>,
    findings: &mut Findings,
) {
    if !known.contains(name) {
        let code = if noun == "pool" { "unknown-pool" } else { "unknown-runner" };
        let meant = findings.did_you_mean(name, known.iter().copied());
        let finding = findings.error(mark, code, format!("there is no {noun} {}", shown(name)));
        finding.instead = meant.or_else(|| Some(format!("describe it under `{noun}s:`")));
    }
}

fn runner(node: &Node, others: &[&MappingShape], findings: &mut Findings) -> RunnerExtension {
    let Some(fields) = mapping(node, &RUNNER_EXTENSION, others, findings) else {
        return RunnerExtension::default();
    };
    let usages = [("spot", Usage::Spot), ("on-demand", Usage::OnDemand)];
    RunnerExtension {
        reuse: fields.get("reuse").and_then(|node| reuse(node, others, findings)),
        trust: fields
            .get("trust")
            .and_then(|node| text(node, "trust", findings))
            .map(TrustGroup::new),
        usage: fields.get("usage").and_then(|node| choice(node, "usage", &usages, findings)),
        max_runtime: fields
            .get("max-runtime")
            .and_then(|node| duration(node, "max-runtime", findings)),
        group: group(&fields, findings),
    }
}

/// `true`, `false`, or a mapping with `max-uses` and `max-age`.
fn reuse(node: &Node, others: &[&MappingShape], findings: &mut Findings) -> Option<Reuse> {
    match &node.value {
        Value::Scalar(_) => boolean(node, "reuse", findings)?.then(Reuse::default),
        Value::List(_) => {
            wrong(node, "reuse", "a mapping, `true` or `false`", findings);
            None
        }
        Value::Map(_) => {
            let fields = mapping(node, &REUSE, others, findings)?;
            Some(Reuse {
                max_uses: fields
                    .get("max-uses")
                    .and_then(|node| positive(node, "max-uses", findings)),
                max_age: fields.get("max-age").and_then(|node| duration(node, "max-age", findings)),
            })
        }
    }
}

/// The runner group that these keys name.
pub(super) fn group(fields: &Fields<'_>, findings: &mut Findings) -> Option<RunnerGroup> {
    fields.get("group").and_then(|node| text(node, "group", findings)).map(RunnerGroup::new)
}

/// Reports a name that is not of the form `owner/repository`.
pub(super) fn is_repository(
    name: &str,
    mark: super::finding::TextPosition,
    findings: &mut Findings,
) {
    let parts: Vec<&str> = name.split('/').collect();
    if parts.len() != 2 || parts.iter().any(|part| part.is_empty()) {
        let message = format!("{} is no repository", shown(name));
        findings.error(mark, "bad-name", message).instead("write it as `owner/repository`");
    }
}
