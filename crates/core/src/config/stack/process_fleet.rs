//! `[process-fleet]` of `bullpen.toml`: settings for machines that are processes of one host.
//!
//! Not here: the machines and their types (`bullpen-embedded`).

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use super::super::finding::Findings;
use super::super::node::Node;
use super::super::read::{
    Fields, MappingShape, boolean, choice, count, duration, items, positive, shown, text, used,
};
use super::ProcessFleet;
use crate::class::Usage;
use crate::creation::Offering;
use crate::ids::{InstanceType, Zone};
use crate::isolation::{IsolationMode, UserRange};

/// The keys of `[process-fleet]`.
pub const PROCESS_FLEET: MappingShape = MappingShape {
    name: "`[process-fleet]`",
    keys: &[
        used("boot-delay"),
        used("capacity"),
        used("out-of"),
        used("isolation"),
        used("users"),
        used("visible"),
        used("limits"),
        used("processes-max"),
        used("cgroup"),
    ],
};

/// Long enough to notice, short enough to wait for.
const BOOT_DELAY_DEFAULT: Duration = Duration::from_secs(2);
/// A laptop can run this many agents and listeners.
const CAPACITY_DEFAULT: u32 = 32;
/// Enough for a large parallel build, and stops a fork bomb.
const PROCESSES_MAX_DEFAULT: u32 = 8192;
/// Each takes an open file of the shell that prepares the mounts, and a portable shell has
/// single-digit file descriptors only.
const VISIBLE_MAX: usize = 3;

pub(super) fn read(fields: Option<&Fields<'_>>, findings: &mut Findings) -> ProcessFleet {
    let get = |key: &str| fields.and_then(|fields| fields.get(key));
    let boot_delay = get("boot-delay").and_then(|node| duration(node, "boot-delay", findings));
    let capacity = get("capacity").and_then(|node| count(node, "capacity", findings));
    ProcessFleet {
        boot_delay: boot_delay.unwrap_or(BOOT_DELAY_DEFAULT),
        capacity: capacity.unwrap_or(CAPACITY_DEFAULT),
        out_of: out_of(fields, findings),
        isolation: get("isolation")
            .and_then(|node| choice(node, "isolation", &IsolationMode::ALL, findings))
            .unwrap_or_default(),
        users: get("users").and_then(|node| users(node, findings)).unwrap_or(UserRange::DEFAULT),
        visible: visible(fields, findings),
        limits: get("limits").and_then(|node| boolean(node, "limits", findings)).unwrap_or(true),
        processes_max: get("processes-max")
            .and_then(|node| positive(node, "processes-max", findings))
            .unwrap_or(PROCESSES_MAX_DEFAULT),
        cgroup: get("cgroup").and_then(|node| absolute(node, "cgroup", findings)),
    }
}

fn users(node: &Node, findings: &mut Findings) -> Option<UserRange> {
    let written = text(node, "users", findings)?;
    let range = UserRange::parse(written);
    if range.is_none() {
        let message = format!("{} is no range of user ids from 100000 on", shown(written));
        findings.error(node.mark, "bad-range", message).instead("such as `200000-265535`");
    }
    range
}

fn absolute(node: &Node, key: &str, findings: &mut Findings) -> Option<PathBuf> {
    let written = text(node, key, findings)?;
    let has_parent_part = written.split('/').any(|part| part == "..");
    if !written.starts_with('/') || written.len() < 2 || has_parent_part {
        let message = format!("{} is no absolute path of a directory", shown(written));
        findings.error(node.mark, "bad-path", message);
        return None;
    }
    Some(PathBuf::from(written))
}

fn visible(fields: Option<&Fields<'_>>, findings: &mut Findings) -> Vec<PathBuf> {
    let key = "visible";
    let Some(node) = fields.and_then(|fields| fields.get(key)) else { return Vec::new() };
    let items = items(node, key, "a list of directories", findings).unwrap_or_default();
    if items.len() > VISIBLE_MAX {
        let message = format!("`{key}` has more than {VISIBLE_MAX} directories");
        findings.error(node.mark, "out-of-range", message);
    }
    items.iter().filter_map(|item| absolute(item, key, findings)).collect()
}

/// A list of offerings, each once.
fn out_of(fields: Option<&Fields<'_>>, findings: &mut Findings) -> BTreeSet<Offering> {
    let key = "out-of";
    let mut offerings = BTreeSet::new();
    let Some(node) = fields.and_then(|fields| fields.get(key)) else { return offerings };
    for item in items(node, key, "a list of offerings", findings).unwrap_or_default() {
        let Some(written) = text(&item, key, findings) else { continue };
        let Some(offering) = offering(written) else {
            let message = format!("{} is not of the form `usage/type/zone`", shown(written));
            findings
                .error(item.mark, "bad-offering", message)
                .instead("such as `spot/c6i.large/local-a`");
            continue;
        };
        if !offerings.insert(offering) {
            let message = format!("{} is there twice", shown(written));
            findings.error(item.mark, "duplicate-value", message);
        }
    }
    offerings
}

fn offering(text: &str) -> Option<Offering> {
    let (usage, rest) = text.split_once('/')?;
    let (instance_type, zone) = rest.split_once('/')?;
    let is_whole = !instance_type.is_empty() && !zone.is_empty() && !zone.contains('/');
    let usage = [Usage::Spot, Usage::OnDemand].into_iter().find(|known| known.as_str() == usage)?;
    is_whole.then(|| Offering {
        usage,
        instance_type: InstanceType::new(instance_type),
        zone: Zone::new(zone),
    })
}
