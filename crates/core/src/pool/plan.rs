//! The plan: seven steps in order.
//!
//! 1 sort the machines, the safety filter first; 2 end machines in error; 3 end dangling machines;
//! 4 end outdated machines, as far as the rollout goes; 5 settle warm and stopped machines; 6
//! create missing machines; 7 end excess machines.
//!
//! Not here: the role of a machine (`role`), how far a rollout goes (`rollout`), or the notes
//! (`waiting`).

use super::boot_history::BootHistory;
use super::capacity::PoolCapacity;
use super::desired::{DesiredPool, PoolMode};
use super::note::Note;
use super::observed::{ObservedPool, PoolMachine};
use super::role::{StopStep, ending};
use super::rollout::{RolloutLimits, RolloutShare, surge_left};
use super::supply::{Allotment, ReadyMachines, SortedMachines};
use super::waiting::Notes;
use super::{Action, Cause, MachineEnding, Plan, StopWhy};
use crate::class::Usage;
use crate::instance::EndReason;
use crate::time::Timestamp;

/// Decides what to do for one pool now. Total and pure: the same facts in any order give the same
/// plan.
pub fn plan(observed: &ObservedPool, desired: &DesiredPool, now: Timestamp) -> Plan {
    if desired.mode == PoolMode::Paused {
        return Plan { actions: Vec::new(), notes: vec![Note::Paused] };
    }
    let sorted = SortedMachines::of(observed, desired, now);
    let allotted = Allotment::of(observed, &sorted, desired, now);
    let boots = BootHistory::of(observed, &sorted, desired, now);
    let short_until = observed.short_until.filter(|until| now < *until);
    let mut limits = rollout_limits(boots, &sorted, &allotted, desired, now);
    if short_until.is_some() {
        limits.launches = 0;
    }
    let capacity = PoolCapacity::of(observed, &sorted, desired);
    let (aim_hot, aim_stopped) = desired.aim();
    let mut hot = RolloutShare::of(&sorted.hot, aim_hot, allotted.hot, limits);
    let mut stopped = RolloutShare::of(&sorted.stopped, aim_stopped, allotted.stopped, limits);
    limits.launches = limits.launches.min(surge_left([hot, stopped]));
    let launches = capacity.left.min(limits.launches);
    let create_hot = hot.wanted().min(launches);
    let create_stopped = stopped.wanted().min(launches - create_hot);
    let excess = excess(&sorted, &allotted, [hot, stopped], desired);
    let going = hot.old_going() + stopped.old_going() + sorted.going() + excess.len();
    if capacity.left == 0 && !limits.held && going == 0 {
        hot.free_capacity();
        stopped.free_capacity();
    }

    let mut plan = Plan::default();
    let notes = Notes {
        sorted: &sorted,
        allotted: &allotted,
        limits,
        boots,
        capacity: &capacity,
        short_until,
    };
    plan.notes = notes.of([hot, stopped], create_hot + create_stopped, desired, now);
    plan.terminate(Cause::Error, sorted.errors);
    plan.terminate(Cause::Dangling, sorted.dangling);
    let mut outdated = sorted.useless;
    for (machines, share) in [(&sorted.hot, hot), (&sorted.stopped, stopped)] {
        outdated.extend(oldest(&machines.old, share.old_going(), EndReason::Outdated));
    }
    plan.terminate(Cause::Outdated, outdated);
    settle(allotted, &mut plan);
    create(desired.hot_usage, create_hot, create_stopped, &mut plan);
    plan.terminate(Cause::Excess, excess);
    plan
}

fn rollout_limits(
    boots: BootHistory,
    sorted: &SortedMachines<'_>,
    allotted: &Allotment<'_>,
    desired: &DesiredPool,
    now: Timestamp,
) -> RolloutLimits {
    let any_old = !sorted.hot.old.is_empty() || !sorted.stopped.old.is_empty();
    RolloutLimits::of(boots, desired, any_old, sorted.warming.len() + allotted.launching, now)
}

/// Decides on warm and stopped machines: keep hot, stop, or keep stopped.
fn settle(allotted: Allotment<'_>, plan: &mut Plan) {
    let mut stops: Vec<_> =
        allotted.to_stop.into_iter().map(|id| (id, StopWhy::WarmedUp)).collect();
    let mut kept = Vec::new();
    for (instance, step) in allotted.stopping {
        let id = instance.record.id.clone();
        match step {
            StopStep::Stop(why) => stops.push((id, why)),
            StopStep::Keep => kept.push(id),
            StopStep::Wait | StopStep::Fenced(_) => {}
        }
    }
    plan.keep(Action::KeepHot, allotted.keep_hot);
    plan.stop(stops);
    plan.keep(Action::KeepStopped, kept);
}

/// Adds one launch for each usage.
fn create(hot_usage: Usage, hot: usize, stopped: usize, plan: &mut Plan) {
    match hot_usage {
        Usage::OnDemand => plan.create(Usage::OnDemand, hot, stopped),
        Usage::Spot => {
            plan.create(Usage::Spot, hot, 0);
            plan.create(Usage::OnDemand, 0, stopped);
        }
    }
}

/// The ends of the oldest machines of a list, which is from the oldest to the youngest.
fn oldest<'o>(
    instances: &'o [&'o PoolMachine],
    count: usize,
    why: EndReason,
) -> impl Iterator<Item = MachineEnding> + 'o {
    instances.iter().take(count).map(move |instance| ending(instance, why))
}

/// The ends of excess machines: ready machines beyond the aim, expiring machines whose replacement
/// is ready, and coming machines that the pool does not want. A pool that empties ends released
/// ones too.
fn excess(
    sorted: &SortedMachines<'_>,
    allotted: &Allotment<'_>,
    shares: [RolloutShare; 2],
    desired: &DesiredPool,
) -> Vec<MachineEnding> {
    let why = match desired.mode {
        PoolMode::Draining => EndReason::Operator,
        PoolMode::Kept | PoolMode::Paused | PoolMode::Removed => EndReason::Surplus,
    };
    let mut excess = Vec::new();
    for (machines, share) in [&sorted.hot, &sorted.stopped].into_iter().zip(shares) {
        let ReadyMachines { ready, expiring, .. } = machines;
        excess.extend(oldest(ready, share.excess(), why));
        excess.extend(oldest(expiring, expiring.len() - share.expiring_kept, why));
    }
    let coming = allotted.surplus.iter().chain(&allotted.stopping_surplus);
    excess.extend(coming.map(|instance| ending(instance, why)));
    if desired.empties() {
        excess.extend(sorted.released.iter().map(|instance| ending(instance, why)));
    }
    excess
}
