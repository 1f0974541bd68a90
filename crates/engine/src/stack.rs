//! A stack: its ports, its limits, and the memory of one process between calls.
//!
//! Not here: building one (the `bullpen` command does).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bullpen_core::class::RunnerClass;
use bullpen_core::clock_witness::{ClockError, ClockWitness};
use bullpen_core::creation::{Ceiling, Shortages};
use bullpen_core::denied::DeniedEnds;
use bullpen_core::ids::{
    ClassName, Generation, ImageName, InstanceId, PoolName, QueueName, RunnerName, SpecHash,
};
use bullpen_core::instance::{InstanceFacts, Owner};
use bullpen_core::limits::Limits;
use bullpen_core::mailbox::Secret;
use bullpen_core::ports::{Clock, Ports};
use bullpen_core::replicas::ReplicaList;
use bullpen_core::spec_hash::of_class;
use bullpen_core::tenure;
use bullpen_core::time::Timestamp;

use crate::batch::Batches;
use crate::defects::Defects;
use crate::ending::CondemnedMachines;
use crate::jobs::KeptWakes;
use crate::order_batcher::OrderBatcher;
use crate::pace::{Allowance, Paced};
use crate::provision::report_watcher::ReportWatcher;
use crate::reports::UnreadableReports;
use crate::silence::Witnesses;
use crate::unreadable::UnreadableItems;

/// Everything a use case needs.
#[derive(Debug)]
pub struct Stack<P> {
    /// The ports to the outside.
    pub ports: P,
    /// The stack's name: the prefix of everything it may touch.
    pub name: String,
    /// Its limits and durations.
    pub limits: Limits,
    /// How many machines there may be.
    pub ceilings: Vec<Ceiling>,
    /// The hash of what every machine launched now is built from, in all classes. A machine with
    /// another hash is not reused.
    pub spec_hash: SpecHash,
    /// The cloud's own id for each image name that the configuration explains.
    pub images: BTreeMap<ImageName, String>,
    /// The token with which agents remove their runners, for a command without a credential of its
    /// own.
    pub removal_token: Option<Secret>,
    /// The reports that this process could not read.
    pub unreadable_reports: UnreadableReports,
    /// The stored items that this process could not read.
    pub unreadable_items: UnreadableItems,
    /// The panics that this process caught.
    pub defects: Defects,
    /// How far this process's clock is off.
    pub clock: ClockWitness,
    has_told_clock: AtomicBool,
    shortages: Mutex<Shortages>,
    denied_ends: Mutex<DeniedEnds>,
    witnesses: Witnesses,
    condemned: CondemnedMachines,
    kept_wakes: KeptWakes,
    rows_stored: AtomicU64,
    allowance: Mutex<Allowance>,
    sharing: Mutex<BTreeSet<PoolName>>,
    batches: Batches,
    order_batcher: OrderBatcher,
    report_watcher: ReportWatcher,
}

impl<P: Ports> Stack<P> {
    /// Makes a stack with an empty memory. It has a command's share of the cloud's rates until this
    /// process is one of a service's replicas ([`crate::replicas`]).
    pub fn new(
        ports: P,
        name: &str,
        limits: Limits,
        ceilings: Vec<Ceiling>,
        spec_hash: SpecHash,
    ) -> Self {
        let allowance = Mutex::new(Allowance::new(&ports, &limits));
        Self {
            ports,
            name: name.to_owned(),
            limits,
            ceilings,
            spec_hash,
            images: BTreeMap::new(),
            removal_token: None,
            unreadable_reports: UnreadableReports::default(),
            unreadable_items: UnreadableItems::default(),
            defects: Defects::default(),
            clock: ClockWitness::default(),
            has_told_clock: AtomicBool::new(false),
            shortages: Mutex::default(),
            denied_ends: Mutex::default(),
            witnesses: Witnesses::default(),
            condemned: CondemnedMachines::default(),
            kept_wakes: KeptWakes::default(),
            rows_stored: AtomicU64::new(0),
            allowance,
            sharing: Mutex::default(),
            batches: Batches::default(),
            order_batcher: OrderBatcher::default(),
            report_watcher: ReportWatcher::default(),
        }
    }

    /// The time of day.
    pub fn now(&self) -> Timestamp {
        self.ports.clock().now()
    }

    /// Why this process may judge no ages, if so: its clock is off.
    pub fn clock_error(&self) -> Option<ClockError> {
        let error = self.clock.more_than(self.limits.clock_off_max);
        let has_told = self.has_told_clock.swap(error.is_some(), Ordering::Relaxed);
        match error {
            Some(error) if !has_told => tracing::error!(%error, "judges no ages"),
            None if has_told => tracing::info!("clock is right again"),
            Some(_) | None => {}
        }
        error
    }

    /// Why the times that this process writes would mislead other processes, if so: its clock is off by
    /// more than clocks may differ. It takes on no job then.
    pub fn misleads(&self) -> Option<ClockError> {
        self.clock_error().and_then(|_| self.clock.more_than(self.limits.clock_skew))
    }

    /// The hash of what a machine of this class is built from, if it is launched now and for no
    /// pool.
    pub fn built(&self, class: &RunnerClass) -> SpecHash {
        of_class(&self.spec_hash, class, &self.images)
    }

    /// The queue that advertises a class's idle machines.
    pub fn queue_of(&self, class: &ClassName) -> QueueName {
        QueueName::new(format!("{}-{class}", self.name))
    }

    /// The name of the runner that an instance registers at this generation.
    pub fn runner_name(&self, instance: &InstanceId, generation: Generation) -> RunnerName {
        tenure::runner_name(&self.name, instance, generation)
    }

    /// The fleet, called no more often than this process's share allows.
    pub fn fleet(&self) -> Paced<'_, P> {
        Paced::new(self, &self.allowance)
    }

    /// Changes this process's list of the service's replicas.
    pub(crate) fn with_replicas(&self, change: impl FnOnce(&mut ReplicaList)) {
        change(&mut self.allowance.lock().unwrap_or_else(PoisonError::into_inner).replicas);
    }

    /// The batches of calls to the cloud.
    pub(crate) const fn batches(&self) -> &Batches {
        &self.batches
    }

    /// Posts orders to agents.
    pub(crate) const fn order_batcher(&self) -> &OrderBatcher {
        &self.order_batcher
    }

    /// Watches agents' reports.
    pub(crate) const fn report_watcher(&self) -> &ReportWatcher {
        &self.report_watcher
    }

    /// How long an owner may keep a machine without a job extending it.
    pub const fn max_runtime(&self, owner: &Owner) -> Duration {
        match owner {
            Owner::Job(_) => self.limits.max_runtime_service,
            Owner::Request(_) | Owner::Pool(_) => self.limits.max_runtime_workflow,
        }
    }

    /// Lets these pools' idle machines serve every request of their class from now on.
    pub fn share(&self, pools: BTreeSet<PoolName>) {
        *self.sharing.lock().unwrap_or_else(PoisonError::into_inner) = pools;
    }

    /// Whether an idle machine serves every request of its class. A process without a configuration
    /// leaves a pool's machines to their pool.
    pub fn is_shared(&self, facts: &InstanceFacts) -> bool {
        let sharing = self.sharing.lock().unwrap_or_else(PoisonError::into_inner);
        facts.pool.as_ref().is_none_or(|pool| sharing.contains(pool))
    }

    /// The machines that this process condemned.
    pub(crate) const fn condemned(&self) -> &CondemnedMachines {
        &self.condemned
    }

    /// Counts a job row that this process stored.
    pub(crate) fn note_row_stored(&self) {
        self.rows_stored.fetch_add(1, Ordering::Relaxed);
    }

    /// How many job rows this process has stored.
    pub(crate) fn rows_stored(&self) -> u64 {
        self.rows_stored.load(Ordering::Relaxed)
    }

    /// The wake-ups that no queue took.
    pub(crate) const fn kept_wakes(&self) -> &KeptWakes {
        &self.kept_wakes
    }

    /// The reports that say whether other agents are silent too.
    pub(crate) const fn witnesses(&self) -> &Witnesses {
        &self.witnesses
    }

    /// The machines that the cloud denied this process to end.
    pub fn denied_ends(&self) -> MutexGuard<'_, DeniedEnds> {
        self.denied_ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this process may ask the cloud now to end this machine.
    pub(crate) fn may_end(&self, id: &InstanceId) -> bool {
        self.denied_ends().may_ask(id, self.ports.clock().monotonic())
    }

    /// Notes that the cloud denied to end this machine.
    pub(crate) fn note_denied(&self, id: &InstanceId) {
        self.denied_ends().note(id, self.ports.clock().monotonic());
    }

    /// The cloud's recent shortages.
    pub fn shortages(&self) -> MutexGuard<'_, Shortages> {
        self.shortages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
