//! Views of a world: its counts, and the output of `show`.
//!
//! Not here: judging it (`expect`, [`crate::checker`]).

use std::collections::BTreeMap;

use bullpen_core::ids::{InstanceId, RequestId};
use bullpen_core::instance::{EndReason, Owner, Record};
use bullpen_core::ports::{MachineState, Ports};

use super::expect::{StateCounts, Subject};
use super::names::Names;
use super::verb::Look;
use crate::world::World;

fn add(counts: &mut StateCounts, key: &'static str, more: u64) {
    *counts.entry(key).or_default() += more;
}

/// Counts of the ledger's records, of all owners or of one request.
pub(super) fn records(world: &World, of: Option<&RequestId>) -> StateCounts {
    let (records, intents) = world.outside.ledger().snapshot();
    let owner = of.map(|id| Owner::Request(id.clone()));
    let mut counts = StateCounts::new();
    for record in &records {
        if owner.is_some() && record.state.listed_under() != owner.as_ref() {
            continue;
        }
        add(&mut counts, record.state.name().as_str(), 1);
        add(&mut counts, "live", u64::from(record.state.is_live()));
    }
    for intent in &intents {
        if owner.as_ref().is_none_or(|owner| intent.owner == *owner) {
            add(&mut counts, "reserved", u64::from(intent.outstanding));
        }
    }
    counts
}

const fn state_name(state: MachineState) -> &'static str {
    match state {
        MachineState::Pending => "pending",
        MachineState::Running => "running",
        MachineState::Stopping => "stopping",
        MachineState::Stopped => "stopped",
        MachineState::Gone => "gone",
    }
}

/// Counts of the cloud's machines.
pub(super) fn machines(world: &World) -> StateCounts {
    let mut counts = StateCounts::new();
    for machine in world.outside.fleet().snapshot() {
        add(&mut counts, state_name(machine.state), 1);
        add(&mut counts, "alive", u64::from(machine.state != MachineState::Gone));
    }
    counts
}

/// Counts of GitHub's runners.
pub(super) fn runners(world: &World, of: Option<&RequestId>) -> StateCounts {
    let label = of.map(label);
    let listeners = world.outside.forge().listeners();
    let online = listeners.iter().filter(|(_, of)| label.as_ref().is_none_or(|label| label == of));
    StateCounts::from([("online", online.count() as u64)])
}

/// The label of a request's jobs.
pub(super) fn label(id: &RequestId) -> String {
    format!("warm-{id}")
}

/// Counts of ended machines by reason, under the names of an expectation.
pub(super) fn ended(ended: &BTreeMap<EndReason, u64>) -> StateCounts {
    let name = |why: &EndReason| match why {
        EndReason::DeadlinePassed => "deadline-passed",
        EndReason::FailedChecks => "failed-checks",
        EndReason::FailedWarmUp => "failed-warm-up",
        EndReason::RequestFailed => "request-failed",
        EndReason::Dumped => "dumped",
        EndReason::NotAcknowledged => "not-acknowledged",
        EndReason::WornOut => "worn-out",
        EndReason::Outdated => "outdated",
        EndReason::Untrusted => "untrusted",
        EndReason::Surplus => "surplus",
        EndReason::MachineGone => "machine-gone",
        EndReason::Operator => "operator",
    };
    ended.iter().map(|(why, count)| (name(why), *count)).collect()
}

/// One machine, for an expectation: the states of its record and at the cloud, and its numbers.
pub(super) fn machine(world: &World, id: &InstanceId) -> (Vec<&'static str>, StateCounts) {
    let record = world.outside.ledger().read_now(id);
    let machines = world.outside.fleet().snapshot();
    let machine = machines.iter().find(|machine| machine.id == *id);
    let mut states = vec![record.as_ref().map_or("unrecorded", |r| r.state.name().as_str())];
    let mut counts = StateCounts::new();
    if machine.is_none_or(|machine| machine.state == MachineState::Gone) {
        states.push("gone");
    }
    if let Some(machine) = machine {
        counts.insert("vcpu", u64::from(machine.vcpu));
    }
    if let Some(record) = record {
        counts.insert("uses", u64::from(record.uses));
        counts.insert("generation", record.generation.0);
    }
    (states, counts)
}

/// The lines of `show`; `none` if there are none.
pub(super) fn show(
    world: &World,
    look: Look,
    calls: &StateCounts,
    ends: &StateCounts,
) -> Vec<String> {
    let lines = match look {
        Look::Records => show_records(world),
        Look::Machines => show_machines(world),
        Look::Runners => show_runners(world),
        Look::Calls => show_counts(calls),
        Look::Ended => show_counts(ends),
    };
    if lines.is_empty() { vec![String::from("none")] } else { lines }
}

fn show_counts(counts: &StateCounts) -> Vec<String> {
    let lines: Vec<String> =
        counts.iter().filter(|(_, n)| **n > 0).map(|(key, n)| format!("{n} {key}")).collect();
    if lines.is_empty() { Vec::new() } else { vec![lines.join(", ")] }
}

/// Machines with the same text share a line, at the place of the first.
fn grouped(world: &World, all: Vec<(InstanceId, String)>) -> Vec<String> {
    let names = Names::of(world);
    let mut groups: Vec<(String, Vec<InstanceId>)> = Vec::new();
    for (id, what) in all {
        match groups.iter_mut().find(|(other, _)| *other == what) {
            Some((_, ids)) => ids.push(id),
            None => groups.push((what, vec![id])),
        }
    }
    groups.iter().map(|(what, ids)| format!("{}: {what}", names.list(ids))).collect()
}

fn show_records(world: &World) -> Vec<String> {
    let (records, _) = world.outside.ledger().snapshot();
    let live = records.into_iter().filter(|record| record.state.is_live());
    grouped(world, live.map(|record| (record.id.clone(), describe(&record))).collect())
}

fn describe(record: &Record) -> String {
    let state = record.state.name().as_str();
    let owner = record.state.listed_under();
    let owner = owner.map_or_else(String::new, |owner| format!(" for {owner}"));
    match &record.trust {
        Some(trust) => format!("{state}{owner}, uses {}, last by {trust}", record.uses),
        None => format!("{state}{owner}, never used"),
    }
}

fn show_machines(world: &World) -> Vec<String> {
    let machines = world.outside.fleet().snapshot();
    let alive = machines.into_iter().filter(|machine| machine.state != MachineState::Gone);
    let lines = alive.map(|machine| {
        let (class, usage) = (&machine.class, machine.usage.as_str());
        (machine.id.clone(), format!("{}, {class}, {usage}", state_name(machine.state)))
    });
    grouped(world, lines.collect())
}

fn show_runners(world: &World) -> Vec<String> {
    let listeners = world.outside.forge().listeners();
    grouped(
        world,
        listeners.into_iter().map(|(id, label)| (id, format!("listens for {label}"))).collect(),
    )
}

/// Counts of a subject that needs nothing but the world.
pub(super) fn count(
    world: &World,
    subject: Subject,
    of: Option<&RequestId>,
) -> Option<StateCounts> {
    match subject {
        Subject::Records => Some(records(world, of)),
        Subject::Machines => Some(machines(world)),
        Subject::Runners => Some(runners(world, of)),
        Subject::Queues => {
            Some(StateCounts::from([("made", world.outside.queues().made() as u64)]))
        }
        Subject::Jobs | Subject::Calls | Subject::Ended => None,
    }
}
