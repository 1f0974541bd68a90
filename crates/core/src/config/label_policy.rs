//! `x-bullpen.labels`: which values jobs may ask for in their labels.
//!
//! Not here: checking a job's labels against the policy (`labels::policy`, `labels::ownership`).

use std::collections::{BTreeMap, BTreeSet};

use super::extension::{exists, group, is_repository};
use super::finding::{Findings, TextPosition};
use super::node::Node;
use super::pool;
use super::read::{Fields, MappingShape, entries, items, mapping, positive, shown, text, used};
use crate::ids::{ClassName, PoolName, Repository};
use crate::labels::LabelKey;
use crate::labels::policy::{Family, Groups, PlainLabels, Policy, Rules, ServedBy};

/// The keys of `labels`.
pub const LABELS: MappingShape = MappingShape {
    name: "`labels`",
    keys: &[
        used("allow"),
        used("families"),
        used("max"),
        used("group"),
        used("plain"),
        used("repositories"),
    ],
};

/// The keys of one repository's `labels`.
pub const LABEL_RULES: MappingShape = MappingShape {
    name: "a repository's `labels`",
    keys: &[used("allow"), used("families"), used("max"), used("group")],
};

/// The keys of `labels.max`.
pub const LABEL_MAXIMA: MappingShape = MappingShape {
    name: "`labels.max`",
    keys: &[used("cpu"), used("ram"), used("volume"), used("throughput"), used("iops")],
};

/// The keys of one list of `labels.plain`.
pub const PLAIN_LABELS: MappingShape = MappingShape {
    name: "a list of `labels.plain`",
    keys: &[used("labels"), used("pool"), used("runner"), used("repositories"), used("env")],
};

/// Reads `labels`. `runners` and `pools` are the names that exist.
pub(super) fn read(
    node: &Node,
    runners: &BTreeSet<&str>,
    pools: &BTreeSet<&str>,
    others: &[&MappingShape],
    findings: &mut Findings,
) -> Policy {
    let Some(fields) = mapping(node, &LABELS, others, findings) else {
        return Policy::default();
    };
    let all = rules(&fields, others, findings);
    let mut repositories = BTreeMap::new();
    let mut groups = Groups { all: group(&fields, findings), ..Groups::default() };
    let named = fields.get("repositories");
    for entry in named.map(|node| entries(node, "repositories", findings)).unwrap_or_default() {
        let repository = repository(&entry.key, entry.mark, findings);
        if let Some(fields) = mapping(&entry.node, &LABEL_RULES, others, findings) {
            let group = group(&fields, findings).map(|group| (repository.clone(), group));
            groups.repositories.extend(group);
            repositories.insert(repository, rules(&fields, others, findings));
        }
    }
    let mut plain = Vec::new();
    let must_be = "a list of mappings";
    if let Some(node) = fields.get("plain") {
        for item in items(node, "plain", must_be, findings).unwrap_or_default() {
            plain.extend(plain_labels(&item, runners, pools, others, findings));
        }
    }
    Policy { all, repositories, plain, groups }
}

/// Lower case, because GitHub ignores case in names and the policy compares in lower case.
fn repository(name: &str, mark: TextPosition, findings: &mut Findings) -> Repository {
    is_repository(name, mark, findings);
    Repository::new(name.to_lowercase())
}

fn rules(fields: &Fields<'_>, others: &[&MappingShape], findings: &mut Findings) -> Rules {
    let mut rules = Rules {
        allow: fields.get("allow").map(|node| allowed(node, findings)),
        families: fields.get("families").map(|node| families(node, findings)),
        ..Rules::default()
    };
    if let Some(node) = fields.get("max")
        && let Some(fields) = mapping(node, &LABEL_MAXIMA, others, findings)
    {
        let mut most = |key| fields.get(key).and_then(|node| positive(node, key, findings));
        let milli = |count: u32| count.saturating_mul(1_000);
        rules.cpu_milli_max = most("cpu").map(milli);
        rules.ram_milli_max = most("ram").map(milli);
        rules.volume_gb_max = most("volume");
        rules.volume_mibps_max = most("throughput");
        rules.volume_iops_max = most("iops");
    }
    rules
}

fn allowed(node: &Node, findings: &mut Findings) -> BTreeSet<LabelKey> {
    let mut allowed = BTreeSet::new();
    let must_be = "a list of label keys";
    for item in items(node, "allow", must_be, findings).unwrap_or_default() {
        let Some(key) = text(&item, "allow", findings) else { continue };
        if let Some(key) = LabelKey::parse(key) {
            allowed.insert(key);
        } else {
            let message = format!("{} is no key of a label", shown(key));
            let meant = findings.did_you_mean(key, LabelKey::ALL.iter().map(|key| key.as_str()));
            let finding = findings.error(item.mark, "unknown-value", message);
            finding.instead = meant;
        }
    }
    allowed
}

fn families(node: &Node, findings: &mut Findings) -> Vec<Family> {
    let mut families = Vec::new();
    for item in items(node, "families", "a list of machine families", findings).unwrap_or_default()
    {
        let Some(family) = text(&item, "families", findings) else { continue };
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
        let is_family = family == "*" || family.bytes().all(is_part);
        if is_family && !family.is_empty() {
            families.push(Family::new(family));
        } else {
            let message = format!("{} is no beginning of a machine family", shown(family));
            findings
                .error(item.mark, "bad-value", message)
                .instead("write how it begins, such as `c`, `c7` or `c7g.metal`, or `*` for all");
        }
    }
    families
}

/// Reads labels that jobs may carry in addition to ours or instead of them.
fn plain_labels(
    node: &Node,
    runners: &BTreeSet<&str>,
    pools: &BTreeSet<&str>,
    others: &[&MappingShape],
    findings: &mut Findings,
) -> Option<PlainLabels> {
    let fields = mapping(node, &PLAIN_LABELS, others, findings)?;
    let mut labels = Vec::new();
    if let Some(node) = fields.get("labels") {
        for item in items(node, "labels", "a list of labels", findings).unwrap_or_default() {
            labels.extend(text(&item, "labels", findings).map(|label| label.trim().to_lowercase()));
        }
    }
    if labels.is_empty() || labels.iter().any(|label| label.chars().all(|c| c == '*')) {
        findings
            .error(node.mark, "bad-value", "a list of plain labels has to name labels".to_owned())
            .instead("write `labels: [self-hosted, linux, x64]`");
    }
    let mut named = |key: &'static str, known: &BTreeSet<&str>| {
        let node = fields.get(key)?;
        let name = text(node, key, findings)?;
        exists(name, node.mark, key, known, findings);
        Some((name.to_owned(), node.mark))
    };
    let (pool, runner) = (named("pool", pools), named("runner", runners));
    let serves = match (pool, runner) {
        (Some((pool, _)), None) => Some(ServedBy::Pool(PoolName::new(pool))),
        (None, Some((runner, _))) => Some(ServedBy::Runner(ClassName::new(runner))),
        (Some((pool, _)), Some((_, mark))) => {
            let message = "plain labels are served by a pool or by a runner, not by both";
            findings.error(mark, "contradiction", message.to_owned()).instead("leave one out");
            Some(ServedBy::Pool(PoolName::new(pool)))
        }
        (None, None) => None,
    };
    let named = fields.get("repositories");
    let repositories = named.map(|node| {
        let must_be = "a list of repositories";
        let items = items(node, "repositories", must_be, findings).unwrap_or_default();
        let mut read = BTreeSet::new();
        for item in items {
            let name = text(&item, "repositories", findings);
            read.extend(name.map(|name| repository(name, item.mark, findings)));
        }
        read
    });
    let env = fields.get("env").and_then(|node| text(node, "env", findings));
    let env = env.unwrap_or(pool::ENV_DEFAULT).to_owned();
    Some(PlainLabels { labels, serves, repositories, env })
}
