//! Reads the `schedule` of a pool: its entries with days and times.
//!
//! Not here: evaluating a schedule and checking it as a whole (`schedule`).

use std::collections::{BTreeMap, BTreeSet};

use super::finding::{Findings, TextPosition};
use super::node::{MappingEntry, Node, Value};
use super::read::{Fields, MappingShape, count, mapping, scalar, shown, text, used, wrong};
use crate::creation::Ceiling;
use crate::schedule::{
    self, Match, Schedule, ScheduleEntry, ScheduleFindingKind, TimeOfDay, Weekday, Window,
};

/// The keys of an entry of a schedule.
pub const ENTRY: MappingShape = MappingShape {
    name: "an entry of `schedule`",
    keys: &[used("name"), used("hot"), used("stopped"), used("match")],
};

/// The keys of an entry's `match`.
pub const MATCH: MappingShape =
    MappingShape { name: "`match`", keys: &[used("day"), used("time")] };

/// A bound on the machines of one entry.
pub(super) enum CountLimit {
    /// The pool's own `max`.
    Own(u32),
    /// A ceiling of the stack. A higher target is only a warning, so that the operator can lower a
    /// ceiling without editing every pool.
    Ceiling(Ceiling),
}

/// Reads the `schedule` of a pool.
pub(super) fn read(
    pool: &MappingEntry,
    fields: &Fields<'_>,
    zone: String,
    bounds: &[CountLimit],
    others: &[&MappingShape],
    findings: &mut Findings,
) -> Schedule {
    let Some(node) = fields.get("schedule") else {
        if !fields.lacks("schedule") {
            return Schedule { zone, entries: Vec::new() };
        }
        let message = format!("the pool {} has no `schedule`: it keeps nothing", shown(&pool.key));
        findings
            .warning(pool.mark, "missing-schedule", message)
            .instead("add `schedule: [{name: default, hot: 1, stopped: 0}]`");
        return Schedule { zone, entries: Vec::new() };
    };
    let Value::List(items) = &node.value else {
        wrong(node, "schedule", "a list of entries", findings)
            .instead("write each entry with `- ` in front of its `name`");
        return Schedule { zone, entries: Vec::new() };
    };
    if items.is_empty() {
        let message =
            format!("the schedule of the pool {} is empty: it keeps nothing", shown(&pool.key));
        findings.warning(node.mark, "missing-schedule", message);
    }
    let mut entries = Vec::new();
    let mut marks = Vec::new();
    let mut names: BTreeMap<String, TextPosition> = BTreeMap::new();
    for item in items {
        let Some(read) = entry(item, bounds, others, findings) else { continue };
        if let Some(first) = names.insert(read.name.clone(), item.mark) {
            let name = shown(&read.name);
            let message = format!("another entry is called {name}, on line {}", first.line);
            findings
                .warning(item.mark, "duplicate-name", message)
                .instead("give each its own name");
        }
        entries.push(read);
        marks.push(item.mark);
    }
    let schedule = Schedule { zone, entries };
    if marks.len() == items.len() {
        schedule_findings(&schedule, node.mark, &marks, findings);
    }
    schedule
}

/// Reports overlaps, entries that are never reached and times without a target. `marks` are the
/// positions of the entries.
fn schedule_findings(
    schedule: &Schedule,
    whole: TextPosition,
    marks: &[TextPosition],
    findings: &mut Findings,
) {
    for found in schedule::lint(schedule) {
        let code = match found.kind {
            // The reader of the list reported both already.
            ScheduleFindingKind::Empty | ScheduleFindingKind::SameName { .. } => continue,
            ScheduleFindingKind::TooMany => "too-many-entries",
            ScheduleFindingKind::Overlap { .. } => "overlap",
            ScheduleFindingKind::Unreachable => "unreachable",
            ScheduleFindingKind::NoFallback => "no-fallback",
        };
        let mark = found.entry.and_then(|entry| marks.get(entry)).copied().unwrap_or(whole);
        findings.add(found.severity, mark, code, found.message);
    }
}

fn entry(
    node: &Node,
    bounds: &[CountLimit],
    others: &[&MappingShape],
    findings: &mut Findings,
) -> Option<ScheduleEntry> {
    let fields = mapping(node, &ENTRY, others, findings)?;
    for key in ["name", "hot", "stopped"] {
        if fields.lacks(key) {
            let message = format!("an entry of `schedule` has no `{key}`");
            let instead = if key == "name" { "add `name: default`" } else { "a count, 0 or more" };
            findings.error(fields.mark, "missing-key", message).instead(instead);
        }
    }
    let name = fields.get("name").and_then(|node| text(node, "name", findings));
    let mut counted = |key| fields.get(key).and_then(|node| count(node, key, findings));
    let (hot, stopped) = (counted("hot"), counted("stopped"));
    let when = fields.get("match").map(|node| matched(node, others, findings));
    if let (Some(hot), Some(node)) = (hot, fields.get("hot")) {
        for bound in bounds {
            bounded(node.mark, (hot, stopped.unwrap_or(0)), bound, findings);
        }
    }
    let when = match when {
        Some(read) => Some(read?),
        None => None,
    };
    Some(ScheduleEntry { name: name?.to_owned(), hot: hot?, stopped: stopped?, when })
}

fn bounded(
    mark: TextPosition,
    (hot, stopped): (u32, u32),
    bound: &CountLimit,
    findings: &mut Findings,
) {
    let (CountLimit::Own(max) | CountLimit::Ceiling(Ceiling { max, .. })) = bound;
    if hot.saturating_add(stopped) <= *max {
        return;
    }
    let more = format!("{hot} hot and {stopped} stopped are more than");
    match bound {
        CountLimit::Own(max) => {
            let message = format!("{more} the pool's `max`, {max}");
            let instead = "raise `x-bullpen.pools.<name>.max`";
            findings.error(mark, "above-max", message).instead(instead);
        }
        CountLimit::Ceiling(Ceiling { scope, max }) => {
            let message = format!("{more} the ceiling of the {scope}, {max}, and are never kept");
            let instead = "lower them, or raise it in `[ceilings]` of `bullpen.toml`";
            findings.warning(mark, "above-ceiling", message).instead(instead);
        }
    }
}

fn matched(node: &Node, others: &[&MappingShape], findings: &mut Findings) -> Option<Match> {
    let fields = mapping(node, &MATCH, others, findings)?;
    if fields.lacks("day") && fields.lacks("time") {
        let message = "`match` names neither `day` nor `time`: it matches always";
        findings.warning(fields.mark, "empty-match", message).instead("remove it");
    }
    let days = fields.get("day").map(|node| days(node, findings));
    let window = fields.get("time").map(|node| window(node, findings));
    Some(Match {
        days: if let Some(days) = days { Some(days?) } else { None },
        window: if let Some(window) = window { Some(window?) } else { None },
    })
}

fn days(node: &Node, findings: &mut Findings) -> Option<BTreeSet<Weekday>> {
    let Value::List(items) = &node.value else {
        wrong(node, "day", "a list of days", findings).instead("write `day: [monday, tuesday]`");
        return None;
    };
    if items.is_empty() {
        findings
            .error(node.mark, "empty-value", "`day` names no day")
            .instead("remove it, or name some");
        return None;
    }
    let mut days = BTreeSet::new();
    let mut whole = true;
    for item in items {
        match day(item, findings) {
            Some(day) => {
                days.insert(day);
            }
            None => whole = false,
        }
    }
    whole.then_some(days)
}

fn day(node: &Node, findings: &mut Findings) -> Option<Weekday> {
    let written = &scalar(node, "day", "a day", findings)?.text;
    let unknown = match Weekday::parse(written) {
        Ok(day) => return Some(day),
        Err(unknown) => unknown,
    };
    let meant = unknown.suggestions.first().map(|name| format!("did you mean `{name}`?"));
    let message = format!("{} is no day", shown(written));
    let finding = findings.error(node.mark, "unknown-day", message);
    finding.instead = meant.or_else(|| Some("days are `monday` to `sunday`".to_owned()));
    None
}

fn window(node: &Node, findings: &mut Findings) -> Option<Window> {
    let Value::List(items) = &node.value else {
        wrong(node, "time", "a list of two times", findings)
            .instead("write `time: [\"22:00\", \"06:00\"]`");
        return None;
    };
    let [from, to] = items.as_slice() else {
        let message = format!("`time` must be two times, from and to, not {}", items.len());
        findings
            .error(node.mark, "bad-time", message)
            .instead("write `time: [\"22:00\", \"06:00\"]`");
        return None;
    };
    let (from, to) = (time(from, findings), time(to, findings));
    Some(Window { from: from?, to: to? })
}

fn time(node: &Node, findings: &mut Findings) -> Option<TimeOfDay> {
    let written = &scalar(node, "time", "a time such as \"22:00\"", findings)?.text;
    let time = TimeOfDay::parse(written).ok();
    if time.is_none() {
        let message = format!("{} is no time of day", shown(written));
        let instead = match written.as_str() {
            "24:00" => "write `00:00`".to_owned(),
            short if short.len() == 4 && TimeOfDay::parse(&format!("0{short}")).is_ok() => {
                format!("write `0{short}`")
            }
            _ => "write hours and minutes from `00:00` to `23:59`".to_owned(),
        };
        findings.error(node.mark, "bad-time", message).instead(instead);
    }
    time
}
