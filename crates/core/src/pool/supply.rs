//! A pool's machines by role, and whether each coming machine will be hot or stopped.
//!
//! A machine that warms up has no kind yet: when it is warm, it becomes hot or stopped by what the
//! pool lacks then. A spot machine can only become hot.
//!
//! Not here: the role of a single machine (`role`), or what is done about it (`plan`).

use super::desired::DesiredPool;
use super::observed::{ObservedPool, PoolMachine};
use super::role::{PoolRole, StandbyKind, StopStep, ending, outdated, role};
use super::{MachineEnding, WarmUp};
use crate::class::Usage;
use crate::creation::Intent;
use crate::ids::InstanceId;
use crate::instance::{EndReason, Owner};
use crate::sabotage;
use crate::spec_hash::drifted;
use crate::time::Timestamp;

/// The ready machines of one kind, each list from the oldest to the youngest.
#[derive(Debug, Default)]
pub(super) struct ReadyMachines<'o> {
    pub(super) ready: Vec<&'o PoolMachine>,
    pub(super) expiring: Vec<&'o PoolMachine>,
    pub(super) old: Vec<&'o PoolMachine>,
}

/// All machines of a pool, sorted by role.
#[derive(Debug, Default)]
pub(super) struct SortedMachines<'o> {
    pub(super) each: Vec<(&'o PoolMachine, PoolRole)>,
    pub(super) protected: usize,
    pub(super) ending: usize,
    /// Machines that the cloud should list by now, but does not.
    pub(super) unseen: usize,
    pub(super) errors: Vec<MachineEnding>,
    pub(super) dangling: Vec<MachineEnding>,
    /// Machines that are not ready and have another specification than the wanted one.
    pub(super) useless: Vec<MachineEnding>,
    /// From the machine nearest to ready to the furthest.
    pub(super) warming: Vec<&'o PoolMachine>,
    /// From the oldest to the youngest.
    pub(super) stopping: Vec<(&'o PoolMachine, StopStep)>,
    pub(super) released: Vec<&'o PoolMachine>,
    pub(super) hot: ReadyMachines<'o>,
    pub(super) stopped: ReadyMachines<'o>,
}

impl<'o> SortedMachines<'o> {
    pub(super) fn of(observed: &'o ObservedPool, desired: &DesiredPool, now: Timestamp) -> Self {
        let mut sorted = Self::default();
        let mut ready = Vec::new();
        for instance in observed.each() {
            let role = role(instance, desired, now);
            if let PoolRole::Ready { kind, since, expiring } = role {
                ready.push((since, &instance.record.id, kind, expiring, instance));
            } else {
                sorted.put(instance, &role, outdated(instance, desired));
            }
            sorted.unseen += usize::from(unseen(instance, &role, desired, now));
            sorted.each.push((instance, role));
        }
        ready.sort_by_key(|(since, id, ..)| (*since, *id));
        for (_, _, kind, expiring, instance) in ready {
            let machines = match kind {
                StandbyKind::Hot => &mut sorted.hot,
                StandbyKind::Stopped => &mut sorted.stopped,
            };
            match (outdated(instance, desired), expiring) {
                (true, _) => machines.old.push(instance),
                (false, true) => machines.expiring.push(instance),
                (false, false) => machines.ready.push(instance),
            }
        }
        let age =
            |instance: &'o PoolMachine| (instance.record.facts.launched_at, &instance.record.id);
        sorted.warming.sort_by_key(|&one| (one.warm_up != WarmUp::Complete, age(one)));
        sorted.stopping.sort_by_key(|&(one, _)| age(one));
        sorted
    }

    /// How many machines end already, or will in any case: their capacity will become free.
    pub(super) fn going(&self) -> usize {
        self.ending + self.errors.len() + self.dangling.len() + self.useless.len()
    }

    /// Adds a machine that is not ready to the list of its role.
    fn put(&mut self, instance: &'o PoolMachine, role: &PoolRole, outdated: bool) {
        match role {
            PoolRole::Over | PoolRole::Ready { .. } => {}
            PoolRole::Ending => self.ending += 1,
            PoolRole::Protected => self.protected += 1,
            PoolRole::Error(why) => self.errors.push(ending(instance, *why)),
            PoolRole::Dangling(why) => self.dangling.push(ending(instance, *why)),
            PoolRole::Warming | PoolRole::Stopping(_) | PoolRole::Released if outdated => {
                self.useless.push(ending(instance, EndReason::Outdated));
            }
            PoolRole::Warming => self.warming.push(instance),
            PoolRole::Stopping(step) => self.stopping.push((instance, *step)),
            PoolRole::Released => self.released.push(instance),
        }
    }
}

/// Whether the cloud should list the machine by now, but does not. It still counts as supply: a
/// listing that lags must not cause a launch. The reconcile sweep ends the machine if it is really
/// gone.
fn unseen(instance: &PoolMachine, role: &PoolRole, desired: &DesiredPool, now: Timestamp) -> bool {
    let age = now.since(instance.record.facts.launched_at);
    let is_of_use = match role {
        PoolRole::Over | PoolRole::Ending | PoolRole::Protected => false,
        PoolRole::Error(_)
        | PoolRole::Dangling(_)
        | PoolRole::Warming
        | PoolRole::Stopping(_)
        | PoolRole::Ready { .. }
        | PoolRole::Released => true,
    };
    instance.machine.is_none() && is_of_use && age >= desired.limits.reconcile_grace
}

/// Which coming machine becomes which kind, and how many of each kind are coming.
#[derive(Debug, Default)]
pub(super) struct Allotment<'o> {
    /// Warm, and to stay running.
    pub(super) keep_hot: Vec<InstanceId>,
    /// Warm, and to be stopped.
    pub(super) to_stop: Vec<InstanceId>,
    /// Warming up, and not wanted.
    pub(super) surplus: Vec<&'o PoolMachine>,
    /// On their way to stopped, and wanted.
    pub(super) stopping: Vec<(&'o PoolMachine, StopStep)>,
    /// On their way to stopped, and not wanted.
    pub(super) stopping_surplus: Vec<&'o PoolMachine>,
    /// Machines that are warming up, or are warm and still undecided.
    pub(super) warming: usize,
    /// Machines that are being launched.
    pub(super) launching: usize,
    /// How many coming machines will be hot.
    pub(super) hot: usize,
    /// How many coming machines will be stopped, including those on their way to stopped.
    pub(super) stopped: usize,
}

impl<'o> Allotment<'o> {
    /// Gives every coming machine a place in the aim, as long as there are places.
    pub(super) fn of(
        observed: &ObservedPool,
        sorted: &SortedMachines<'o>,
        desired: &DesiredPool,
        now: Timestamp,
    ) -> Self {
        let (hot, stopped) = desired.aim();
        let mut open = OpenPlaces {
            hot: hot.saturating_sub(sorted.hot.ready.len()),
            stopped: stopped.saturating_sub(sorted.stopped.ready.len()),
            hot_usage: desired.hot_usage,
        };
        let mut allotted = Self::default();
        allotted.allot_stopping(sorted, &mut open);
        let (spot, on_demand): (Vec<_>, Vec<_>) =
            sorted.warming.iter().partition(|one| one.record.facts.usage == Usage::Spot);
        // Spot first: a spot machine can only become hot, so no other must take that place.
        for instance in spot.into_iter().chain(on_demand) {
            allotted.allot_warming(instance, &mut open);
        }
        for usage in [Usage::Spot, Usage::OnDemand] {
            let launching = launching(observed, desired, usage, now);
            allotted.launching += launching;
            let places = open.take(usage, launching);
            allotted.hot += places.hot;
            allotted.stopped += places.stopped;
        }
        // A machine with an unreadable record may be of either kind. It takes a place that is left,
        // so that no machine is launched in its stead, and none ends because of it.
        let unreadable = if sabotage!("the-unreadable-is-gone") { 0 } else { observed.unreadable };
        let places = open.take(Usage::OnDemand, unreadable);
        allotted.hot += places.hot;
        allotted.stopped += places.stopped;
        allotted
    }

    fn allot_stopping(&mut self, sorted: &SortedMachines<'o>, open: &mut OpenPlaces) {
        let surplus = sorted.stopping.len().saturating_sub(open.stopped);
        if sabotage!("stopping-is-gone") {
            self.stopping.clone_from(&sorted.stopping);
            return;
        }
        let (surplus, wanted) = sorted.stopping.split_at(surplus);
        self.stopping_surplus = surplus.iter().map(|(instance, _)| *instance).collect();
        self.stopping = wanted.to_vec();
        self.stopped += wanted.len();
        open.stopped -= wanted.len();
    }

    fn allot_warming(&mut self, instance: &'o PoolMachine, open: &mut OpenPlaces) {
        let places = open.take(instance.record.facts.usage, 1);
        self.hot += places.hot;
        self.stopped += places.stopped;
        if places == Places::default() {
            self.surplus.push(instance);
        } else if instance.warm_up != WarmUp::Complete {
            self.warming += 1;
        } else if places.hot > 0 {
            self.keep_hot.push(instance.record.id.clone());
        } else {
            self.to_stop.push(instance.record.id.clone());
        }
    }
}

/// Places that machines take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Places {
    hot: usize,
    stopped: usize,
}

/// Places in the aim that no ready machine fills.
struct OpenPlaces {
    hot: usize,
    stopped: usize,
    hot_usage: Usage,
}

impl OpenPlaces {
    /// Takes places for machines of this usage: hot places first, because hot machines serve a job
    /// soonest, unless hot machines are to be spot and these are not.
    fn take(&mut self, usage: Usage, machines: usize) -> Places {
        let order: &[StandbyKind] = match (usage, self.hot_usage) {
            (Usage::Spot, _) => &[StandbyKind::Hot],
            (Usage::OnDemand, Usage::OnDemand) => &[StandbyKind::Hot, StandbyKind::Stopped],
            (Usage::OnDemand, Usage::Spot) => &[StandbyKind::Stopped, StandbyKind::Hot],
        };
        let (mut places, mut left) = (Places::default(), machines);
        for kind in order {
            let (open, taken) = match kind {
                StandbyKind::Hot => (&mut self.hot, &mut places.hot),
                StandbyKind::Stopped => (&mut self.stopped, &mut places.stopped),
            };
            *taken = left.min(*open);
            *open -= *taken;
            left -= *taken;
        }
        places
    }
}

/// How many machines are being launched that this pool will want. The service gives a launch up at
/// its deadline, so no machine comes of it afterwards.
fn launching(
    observed: &ObservedPool,
    desired: &DesiredPool,
    usage: Usage,
    now: Timestamp,
) -> usize {
    let owner = Owner::Pool(desired.pool.clone());
    let wanted = |launch: &&Intent| {
        launch.owner == owner
            && launch.usage == usage
            && now < launch.deadline
            && !drifted(&launch.spec_hash, &desired.spec_hash)
    };
    let outstanding =
        observed.each_launch().into_iter().filter(wanted).map(|launch| launch.outstanding);
    outstanding.fold(0, |sum: usize, count| sum.saturating_add(count as usize))
}
