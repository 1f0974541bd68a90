//! A stack: its ports, its numbers, and what one process remembers between calls.
//!
//! Not here: building one (the `bullpen` command does).

use std::sync::{Mutex, MutexGuard, PoisonError};

use bullpen_core::creation::{Ceiling, Shortages};
use bullpen_core::ids::{ClassName, Generation, InstanceId, QueueName, RunnerName, SpecHash};
use bullpen_core::limits::Limits;
use bullpen_core::mailbox::Secret;
use bullpen_core::ports::{Clock, Ports};
use bullpen_core::time::Timestamp;

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
    /// What a machine launched now is built from; one built otherwise is not reused.
    pub spec_hash: SpecHash,
    /// For a command without a credential of its own: agents remove their runners with this.
    pub removal_token: Option<Secret>,
    shortages: Mutex<Shortages>,
}

impl<P: Ports> Stack<P> {
    /// A stack that remembers nothing yet.
    pub fn new(
        ports: P,
        name: &str,
        limits: Limits,
        ceilings: Vec<Ceiling>,
        spec_hash: SpecHash,
    ) -> Self {
        let shortages = Mutex::new(Shortages::default());
        let removal_token = None;
        Self { ports, name: name.to_owned(), limits, ceilings, spec_hash, removal_token, shortages }
    }

    /// The time of day.
    pub fn now(&self) -> Timestamp {
        self.ports.clock().now()
    }

    /// The queue that advertises a class's idle machines.
    pub fn queue_of(&self, class: &ClassName) -> QueueName {
        QueueName::new(format!("{}-{class}", self.name))
    }

    /// The name of the runner that an instance registers at this generation.
    pub fn runner_name(&self, instance: &InstanceId, generation: Generation) -> RunnerName {
        RunnerName::new(format!("{}-{instance}-{generation}", self.name))
    }

    /// What the cloud was short of lately.
    pub fn shortages(&self) -> MutexGuard<'_, Shortages> {
        self.shortages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
