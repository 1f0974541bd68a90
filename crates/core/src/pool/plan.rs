//! The plan: the seven steps in their order.
//!
//! 1 sort the machines, the safety filter first; 2 end what is in error; 3 end what dangles; 4 end
//! what is outdated, as far as the rollout goes; 5 stop what is ready to be stopped; 6 create what is
//! missing; 7 end what is too much.
//!
//! Not here: what a machine is to its pool (`standing`), how far a rollout goes (`rollout`), or what is
//! said of waiting (`waiting`).

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

/// Decides what to do for one pool now. Total and pure: the same facts, in whatever order, give the
/// same plan.
pub fn plan(observed: &ObservedPool, desired: &DesiredPool, now: Timestamp) -> Plan {
    if desired.mode == PoolMode::Paused {
        return Plan { actions: Vec::new(), notes: vec![Note::Paused] };
    }
    let sorted = SortedMachines::of(observed, desired, now);
    let allotted = Allotment::of(observed, &sorted, desired, now);
    let boots = BootHistory::of(observed, &sorted, desired, now);
    let short_until = observed.short_until.filter(|until| now < *until);
    let mut terms = terms(boots, &sorted, &allotted, desired, now);
    if short_until.is_some() {
        terms.launches = 0;
    }
    let room = PoolCapacity::of(observed, &sorted, desired);
    let (aim_hot, aim_stopped) = desired.aim();
    let mut hot = RolloutShare::of(&sorted.hot, aim_hot, allotted.hot, terms);
    let mut stopped = RolloutShare::of(&sorted.stopped, aim_stopped, allotted.stopped, terms);
    terms.launches = terms.launches.min(surge_left([hot, stopped]));
    let launches = room.left.min(terms.launches);
    let create_hot = hot.wanted().min(launches);
    let create_stopped = stopped.wanted().min(launches - create_hot);
    let excess = excess(&sorted, &allotted, [hot, stopped], desired);
    let going = hot.old_going() + stopped.old_going() + sorted.going() + excess.len();
    if room.left == 0 && !terms.held && going == 0 {
        hot.make_room();
        stopped.make_room();
    }

    let mut plan = Plan::default();
    let notes =
        Notes { sorted: &sorted, allotted: &allotted, terms, boots, room: &room, short_until };
    plan.notes = notes.of([hot, stopped], create_hot + create_stopped, desired, now);
    plan.terminate(Cause::Error, sorted.errors);
    plan.terminate(Cause::Dangling, sorted.dangling);
    let mut outdated = sorted.useless;
    for (stock, share) in [(&sorted.hot, hot), (&sorted.stopped, stopped)] {
        outdated.extend(oldest(&stock.old, share.old_going(), EndReason::Outdated));
    }
    plan.terminate(Cause::Outdated, outdated);
    settle(allotted, &mut plan);
    create(desired.hot_usage, create_hot, create_stopped, &mut plan);
    plan.terminate(Cause::Excess, excess);
    plan
}

fn terms(
    boots: BootHistory,
    sorted: &SortedMachines<'_>,
    allotted: &Allotment<'_>,
    desired: &DesiredPool,
    now: Timestamp,
) -> RolloutLimits {
    let any_old = !sorted.hot.old.is_empty() || !sorted.stopped.old.is_empty();
    RolloutLimits::of(boots, desired, any_old, sorted.warming.len() + allotted.launching, now)
}

/// What is warm becomes what it is to be, and what is stopped is kept so.
fn settle(allotted: Allotment<'_>, plan: &mut Plan) {
    let mut stops: Vec<_> =
        allotted.to_stop.into_iter().map(|id| (id, StopWhy::WarmedUp)).collect();
    let mut kept = Vec::new();
    for (instance, turn) in allotted.turning {
        let id = instance.record.id.clone();
        match turn {
            StopStep::Stop(why) => stops.push((id, why)),
            StopStep::Keep => kept.push(id),
            StopStep::Wait | StopStep::Fenced(_) => {}
        }
    }
    plan.keep(Action::KeepHot, allotted.keep_hot);
    plan.stop(stops);
    plan.keep(Action::KeepStopped, kept);
}

/// One launch for everything that is paid for alike.
fn create(hot_usage: Usage, hot: usize, stopped: usize, plan: &mut Plan) {
    match hot_usage {
        Usage::OnDemand => plan.create(Usage::OnDemand, hot, stopped),
        Usage::Spot => {
            plan.create(Usage::Spot, hot, 0);
            plan.create(Usage::OnDemand, 0, stopped);
        }
    }
}

/// The oldest of these; lists are from the oldest to the youngest.
fn oldest<'o>(
    instances: &'o [&'o PoolMachine],
    count: usize,
    why: EndReason,
) -> impl Iterator<Item = MachineEnding> + 'o {
    instances.iter().take(count).map(move |instance| ending(instance, why))
}

/// What is too much: ready machines beyond the aim, expiring ones whose replacement is ready, and
/// whatever is coming for nothing. An emptied pool keeps nothing that it may touch.
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
    for (stock, share) in [&sorted.hot, &sorted.stopped].into_iter().zip(shares) {
        let ReadyMachines { ready, expiring, .. } = stock;
        excess.extend(oldest(ready, share.excess(), why));
        excess.extend(oldest(expiring, expiring.len() - share.expiring_kept, why));
    }
    let coming = allotted.surplus.iter().chain(&allotted.turning_surplus);
    excess.extend(coming.map(|instance| ending(instance, why)));
    if desired.empties() {
        excess.extend(sorted.released.iter().map(|instance| ending(instance, why)));
    }
    excess
}
