//! Invariants 2 and 5 at each event: an intent reserves every launched machine, a first record
//! agrees with its launch, an intent is given back only for machines that never came, and a
//! tombstone is written only for a machine that is gone.
//!
//! Not here: the same invariants on a whole snapshot (`core::invariants::on_world`).

use bullpen_core::creation::Intent;
use bullpen_core::ids::InstanceId;
use bullpen_core::instance::Record;
use bullpen_core::invariants::{Invariant, Violation};
use bullpen_core::ports::Machine;

use super::view::View;

fn wrong(invariant: Invariant, id: &InstanceId, what: String) -> Result<(), Violation> {
    Err(Violation { invariant, instance: Some(id.clone()), what })
}

/// The cloud launched a machine: an intent must reserve it, and no ceiling may be exceeded.
pub(super) fn launched(view: &View, machine: &Machine) -> Result<(), Violation> {
    let reserved = view.intents.get(&machine.intent).map_or(0, |intent| intent.outstanding);
    let reserved = usize::try_from(reserved).unwrap_or(usize::MAX);
    let unrecorded = unrecorded(view, machine).count();
    if unrecorded > reserved {
        let what = format!("launched under {}, which reserves {reserved}", machine.intent);
        return wrong(Invariant::Conservation, &machine.id, what);
    }
    for ceiling in &view.ceilings {
        let counts = |m: &&Machine| ceiling.scope.counts(&m.class, m.pool.as_ref());
        let there = view.machines.values().filter(counts).count();
        if there > usize::try_from(ceiling.max).unwrap_or(usize::MAX) {
            let what = format!("{} has {there} machines of at most {}", ceiling.scope, ceiling.max);
            return wrong(Invariant::Ceilings, &machine.id, what);
        }
    }
    Ok(())
}

fn unrecorded<'v>(view: &'v View, like: &'v Machine) -> impl Iterator<Item = &'v Machine> {
    let of_it = view.machines.values().filter(|machine| machine.intent == like.intent);
    of_it.filter(|machine| !view.live.contains_key(&machine.id))
}

/// An intent is given back: no unrecorded machine may have been launched under it, unless the cloud hid
/// the machine.
pub(super) fn given_back(
    view: &View,
    intent: &Intent,
    is_hidden: impl Fn(&InstanceId) -> bool,
) -> Result<(), Violation> {
    let mut of_it = view
        .machines
        .values()
        .filter(|machine| machine.intent == intent.id && !is_hidden(&machine.id));
    let left = of_it.find(|m| !view.live.contains_key(&m.id) && !view.buried.contains(&m.id));
    match left {
        None => Ok(()),
        Some(machine) => {
            let what = format!("{} was given back while this machine has no record", intent.id);
            wrong(Invariant::Conservation, &machine.id, what)
        }
    }
}

/// A machine's first record must name the intent and the owner of its launch.
pub(super) fn recorded(view: &View, born: &Record) -> Result<(), Violation> {
    let Some(machine) = view.machines.get(&born.id) else { return Ok(()) };
    if machine.intent != born.facts.intent {
        let what =
            format!("launched under {}, recorded under {}", machine.intent, born.facts.intent);
        return wrong(Invariant::OneOwner, &born.id, what);
    }
    match view.intents.get(&machine.intent) {
        Some(intent) if Some(&intent.owner) != born.state.owner() => {
            let what = format!("launched for {}, recorded for another owner", intent.owner);
            wrong(Invariant::OneOwner, &born.id, what)
        }
        _ => Ok(()),
    }
}

/// A tombstone is written: the machine must be gone.
pub(super) fn buried(view: &View, id: &InstanceId) -> Result<(), Violation> {
    if view.machines.contains_key(id) {
        return wrong(Invariant::Conservation, id, "buried while its machine runs".into());
    }
    Ok(())
}
