//! `pools:` of `runs-on.yml`: standby pools with a schedule.
//!
//! Not here: the schedules (`timetable`), evaluating a schedule (`schedule`), or our own keys for a
//! pool (`pool_keys`).

use std::collections::{BTreeMap, BTreeSet};

use super::finding::Findings;
use super::image::Platform;
use super::node::{MappingEntry, Node};
use super::pool_keys::PoolKeys;
use super::read::{
    ConfigKey, Fields, KeySupport, MappingShape, choice, mapping, scalar, shown, text, used,
};
use super::stack::{Ceilings, Stack};
use super::timetable::{self, CountLimit};
use crate::creation::{Ceiling, Scope};
use crate::ids::{ClassName, PoolName};
use crate::schedule::Schedule;

/// The keys of a pool.
pub const POOL: MappingShape = MappingShape {
    name: "a pool",
    keys: &[
        used("runner"),
        used("env"),
        ConfigKey { name: "environment", fate: KeySupport::Renamed("env") },
        used("timezone"),
        used("version"),
        used("schedule"),
    ],
};

/// The environment of stacks and pools that name none.
pub const ENV_DEFAULT: &str = "production";
/// The time zone of a pool that names none.
pub const ZONE_DEFAULT: &str = "UTC";

/// How a pool replaces machines whose specification changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rollout {
    /// All at once, without waiting for replacements.
    Immediate,
    /// A few at a time.
    Rolling,
}

/// An entry of `pools:`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// The name of its runner, which defines its machines.
    pub runner: ClassName,
    /// The environment of the stack it belongs to.
    pub env: String,
    /// Any text; changing it replaces the machines.
    pub version: Option<String>,
    /// How many machines it keeps, and when.
    pub schedule: Schedule,
    /// Our own keys (`x-bullpen`).
    pub own: PoolKeys,
}

/// The rest of the configuration that a pool is checked against.
pub(super) struct PoolContext<'a> {
    /// The names under `runners:`, with their platforms where known.
    pub(super) runners: &'a BTreeMap<&'a str, Option<Platform>>,
    pub(super) zones: &'a BTreeSet<String>,
    pub(super) extensions: &'a BTreeMap<String, PoolKeys>,
    pub(super) stacks: &'a [Stack],
    pub(super) others: &'a [&'a MappingShape],
}

/// Reads one pool. A pool of Windows machines keeps none: RunsOn accepts such a file, and its jobs
/// can still start on new machines.
pub(super) fn read(
    pool: &MappingEntry,
    around: &PoolContext<'_>,
    findings: &mut Findings,
) -> Option<PoolConfig> {
    if pool.node.extent().flawed {
        findings.blame();
    }
    check_name(pool, findings);
    let fields = mapping(&pool.node, &POOL, around.others, findings)?;
    let own = around.extensions.get(&pool.key).cloned().unwrap_or_default();
    let runner = runner(pool, &fields, around.runners, findings);
    let env = env(&fields, findings);
    let version = fields
        .get("version")
        .and_then(|node| Some(scalar(node, "version", "text or a number", findings)?.text.clone()));
    let zone = fields.get("timezone").and_then(|node| zone(node, around.zones, findings));
    let zone = zone.unwrap_or_else(|| ZONE_DEFAULT.to_owned());
    let bounds: Vec<CountLimit> = own
        .max
        .map(CountLimit::Own)
        .into_iter()
        .chain(above(pool, runner.as_ref().map(|(runner, _)| runner), &env, around))
        .collect();
    let mut schedule = timetable::read(pool, &fields, zone, &bounds, around.others, findings);
    let (runner, platform) = runner?;
    if platform == Some(Platform::Windows) {
        schedule.entries.clear();
    }
    Some(PoolConfig { runner, env, version, schedule, own })
}

/// The ceilings that apply to the pool's machines in the stacks of its environment.
fn above(
    pool: &MappingEntry,
    runner: Option<&ClassName>,
    env: &str,
    around: &PoolContext<'_>,
) -> impl Iterator<Item = CountLimit> {
    let name = PoolName::new(&pool.key);
    around.stacks.iter().filter(move |stack| stack.env == env).flat_map(move |stack| {
        let Ceilings { stack, classes, pools } = &stack.ceilings;
        let of_class = runner.and_then(|runner| Some((runner, classes.get(runner)?)));
        let all = [
            stack.map(|max| (Scope::Stack, max)),
            of_class.map(|(class, max)| (Scope::Class(class.clone()), *max)),
            pools.get(&name).map(|max| (Scope::Pool(name.clone()), *max)),
        ];
        all.into_iter().flatten().map(|(scope, max)| CountLimit::Ceiling(Ceiling { scope, max }))
    })
}

fn check_name(pool: &MappingEntry, findings: &mut Findings) {
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ['_', '-'].contains(&c);
    if !pool.key.is_empty() && pool.key.chars().all(legal) {
        return;
    }
    let message =
        format!("the pool name {} is not made of `a-z`, `0-9`, `_`, `-`", shown(&pool.key));
    let finding = findings.error(pool.mark, "bad-name", message);
    let fold = |c: char| if legal(c.to_ascii_lowercase()) { c.to_ascii_lowercase() } else { '-' };
    let folded: String = pool.key.chars().map(fold).collect();
    if pool.key.is_ascii() && folded.contains(char::is_alphanumeric) {
        finding.instead(format!("such as `{}`", folded.trim_matches('-')));
    }
}

fn runner(
    pool: &MappingEntry,
    fields: &Fields<'_>,
    runners: &BTreeMap<&str, Option<Platform>>,
    findings: &mut Findings,
) -> Option<(ClassName, Option<Platform>)> {
    let Some(node) = fields.get("runner") else {
        if !fields.lacks("runner") {
            return None;
        }
        let message = format!("the pool {} has no `runner`", shown(&pool.key));
        findings
            .error(pool.mark, "missing-key", message)
            .instead("add `runner:` with a name from `runners:`");
        return None;
    };
    let name = text(node, "runner", findings)?;
    let Some(platform) = runners.get(name) else {
        let message = format!("there is no runner {}", shown(name));
        let meant = findings.did_you_mean(name, runners.keys().copied());
        let finding = findings.error(node.mark, "unknown-runner", message);
        finding.instead = meant.or_else(|| Some("describe it under `runners:`".to_owned()));
        return None;
    };
    if *platform == Some(Platform::Windows) {
        let message = format!("the runner {} boots Windows, and pools are Linux", shown(name));
        findings
            .warning(node.mark, "windows-pool", message)
            .instead("the pool keeps no machine, and each of its jobs starts a new one");
    }
    Some((ClassName::new(name), *platform))
}

fn env(fields: &Fields<'_>, findings: &mut Findings) -> String {
    let (new, old) = (fields.entry("env"), fields.entry("environment"));
    if let (Some(_), Some(old)) = (new, old) {
        let message = "`env` and `environment` are the same key";
        findings.error(old.mark, "duplicate-key", message).instead("remove `environment`");
    }
    new.or(old)
        .and_then(|entry| text(&entry.node, &entry.key, findings))
        .unwrap_or(ENV_DEFAULT)
        .to_owned()
}

fn zone(node: &Node, zones: &BTreeSet<String>, findings: &mut Findings) -> Option<String> {
    let name = text(node, "timezone", findings)?;
    if zones.contains(name) {
        return Some(name.to_owned());
    }
    let message = format!("there is no time zone {}", shown(name));
    let meant = findings.did_you_mean(name, zones.iter().map(String::as_str));
    let finding = findings.error(node.mark, "unknown-zone", message);
    // A common mistake is the city alone.
    let city =
        |zone: &&String| zone.rsplit('/').next().is_some_and(|c| c.eq_ignore_ascii_case(name));
    let by_city = || zones.iter().find(city).map(|zone| format!("did you mean `{zone}`?"));
    finding.instead = meant
        .or_else(by_city)
        .or_else(|| Some("use an IANA name such as `Europe/Paris`".to_owned()));
    None
}

/// Reads `rollout`.
pub(super) fn rollout(node: &Node, findings: &mut Findings) -> Option<Rollout> {
    let choices = [("immediate", Rollout::Immediate), ("rolling", Rollout::Rolling)];
    choice(node, "rollout", &choices, findings)
}
