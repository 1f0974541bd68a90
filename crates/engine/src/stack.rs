//! A stack: its ports, its numbers, and what one process remembers between calls.
//!
//! Not here: building one (the `bullpen` command does).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bullpen_core::class::RunnerClass;
use bullpen_core::creation::{Ceiling, Shortages};
use bullpen_core::ids::{
    ClassName, Generation, ImageName, InstanceId, PoolName, QueueName, RunnerName, SpecHash,
};
use bullpen_core::instance::{InstanceFacts, Owner};
use bullpen_core::limits::Limits;
use bullpen_core::mailbox::Secret;
use bullpen_core::ports::{Clock, Ports};
use bullpen_core::replicas::ReplicaList;
use bullpen_core::spec_hash::of_class;
use bullpen_core::time::Timestamp;

use crate::batch::Batches;
use crate::pace::{Allowance, Paced};
use crate::reports::UnreadableReports;

/// Everything a use case needs.
#[derive(Debug)]
pub struct Stack<P> {
    /// The outside.
    pub ports: P,
    /// The stack's name: the prefix of everything it may touch.
    pub name: String,
    /// The numbers.
    pub limits: Limits,
    /// How many machines there may be.
    pub ceilings: Vec<Ceiling>,
    /// What every machine launched now is built from, whatever its class; one built otherwise is not
    /// reused.
    pub spec_hash: SpecHash,
    /// What names of images stand for in the cloud's own terms, where that is said.
    pub images: BTreeMap<ImageName, String>,
    /// For a command without a credential of its own: agents remove their runners with this.
    pub removal_token: Option<Secret>,
    /// What this process has met of reports that it could not read.
    pub unreadable_reports: UnreadableReports,
    shortages: Mutex<Shortages>,
    allowance: Mutex<Allowance>,
    sharing: Mutex<BTreeSet<PoolName>>,
    batches: Batches,
}

impl<P: Ports> Stack<P> {
    /// A stack that remembers nothing yet. It has a command's share of the cloud until it is one of a
    /// service's replicas ([`crate::replicas`]).
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
            shortages: Mutex::default(),
            allowance,
            sharing: Mutex::default(),
            batches: Batches::default(),
        }
    }

    /// The time of day.
    pub fn now(&self) -> Timestamp {
        self.ports.clock().now()
    }

    /// What a machine of this class that is launched now, for no pool, is built from.
    pub fn built(&self, class: &RunnerClass) -> SpecHash {
        of_class(&self.spec_hash, class, &self.images)
    }

    /// The queue that advertises a class's idle machines.
    pub fn queue_of(&self, class: &ClassName) -> QueueName {
        QueueName::new(format!("{}-{class}", self.name))
    }

    /// The name of the runner that an instance registers at this generation.
    pub fn runner_name(&self, instance: &InstanceId, generation: Generation) -> RunnerName {
        RunnerName::new(format!("{}-{instance}-{generation}", self.name))
    }

    /// The machines, asked no more often than this process's share allows.
    pub fn fleet(&self) -> Paced<'_, P> {
        Paced::new(self, &self.allowance)
    }

    /// Changes what this process knows of a service's replicas.
    pub(crate) fn with_replicas(&self, change: impl FnOnce(&mut ReplicaList)) {
        change(&mut self.allowance.lock().unwrap_or_else(PoisonError::into_inner).roll);
    }

    /// What is asked of the cloud together.
    pub(crate) const fn batches(&self) -> &Batches {
        &self.batches
    }

    /// How long an owner may keep a machine without a job extending it.
    pub const fn max_runtime(&self, owner: &Owner) -> Duration {
        match owner {
            Owner::Job(_) => self.limits.max_runtime_service,
            Owner::Request(_) | Owner::Pool(_) => self.limits.max_runtime_workflow,
        }
    }

    /// From now on these pools' idle machines serve every request of their class.
    pub fn share(&self, pools: BTreeSet<PoolName>) {
        *self.sharing.lock().unwrap_or_else(PoisonError::into_inner) = pools;
    }

    /// Whether an idle machine serves every request of its class. A process that knows of no
    /// configuration leaves a pool's machines to their pool.
    pub fn is_shared(&self, facts: &InstanceFacts) -> bool {
        let sharing = self.sharing.lock().unwrap_or_else(PoisonError::into_inner);
        facts.pool.as_ref().is_none_or(|pool| sharing.contains(pool))
    }

    /// What the cloud was short of lately.
    pub fn shortages(&self) -> MutexGuard<'_, Shortages> {
        self.shortages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
