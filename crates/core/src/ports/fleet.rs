//! Machines.

use std::future::Future;

use super::Fault;
use crate::class::{Architecture, Usage};
use crate::creation::{LaunchRequest, Offering};
use crate::ids::{
    ClassName, InstanceId, InstanceType, IntentId, MailboxKey, PoolName, StopOp, Zone,
};
use crate::rates::Rates;
use crate::time::Timestamp;

/// What the cloud says of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MachineState {
    /// Booting or starting.
    Pending,
    /// Running.
    Running,
    /// On its way to stopped.
    Stopping,
    /// Stopped.
    Stopped,
    /// Terminated, or on its way there.
    Gone,
}

/// A machine as the cloud describes it, with the tags we gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Its id.
    pub id: InstanceId,
    /// What it does.
    pub state: MachineState,
    /// The intent it was launched under (a tag).
    pub intent: IntentId,
    /// The class it was launched as (a tag).
    pub class: ClassName,
    /// The pool it was launched for (a tag).
    pub pool: Option<PoolName>,
    /// Its type.
    pub instance_type: InstanceType,
    /// Its vCPUs.
    pub vcpu: u32,
    /// Its memory.
    pub memory_mib: u32,
    /// Its architecture.
    pub architecture: Architecture,
    /// Its zone.
    pub zone: Zone,
    /// How it is paid for.
    pub usage: Usage,
    /// When it was launched.
    pub launched_at: Timestamp,
    /// Where its mailbox is.
    pub mailbox: MailboxKey,
}

/// What a launch brought: possibly fewer than asked for, possibly none, never more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launched {
    /// The machines.
    pub machines: Vec<Machine>,
    /// What the cloud was short of on the way.
    pub shortages: Vec<Offering>,
}

/// How one machine's start went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Started {
    /// It is starting, or runs already.
    Starting,
    /// The cloud has no room for it now.
    NoCapacity,
    /// It cannot be started.
    Failed(Fault),
}

/// One stop call, under the operation that the machine's record names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopOrder {
    /// Which machine.
    pub id: InstanceId,
    /// The nonce of this call.
    pub op: StopOp,
    /// When the call must no longer land: the machine may have an owner by then.
    pub until: Timestamp,
}

/// The cloud's machines that carry this stack's tag, and no others.
///
/// Contract: `launch` is idempotent on `request.intent`: the same request again gives the same
/// machines, and launches none anew. `start` and `terminate` succeed if there is nothing to do.
/// `stop` is sent at most once per call and never retried behind the caller's back. A fleet that can
/// tell the time carries no order out past its `until`, and answers [`Fault::Denied`] for it; one
/// that remembers operations carries each out once.
///
/// Weak arm: a machine may be missing from `list` and `describe` for a while after its launch
/// returned; states lag; a call whose answer was lost may land, and may land late.
pub trait Fleet: Send + Sync {
    /// How often it can be asked, by everybody together.
    fn rates(&self) -> Rates {
        Rates::unlimited()
    }
    /// Launches up to `request.count` machines. [`Fault::Unavailable`] leaves open whether it did.
    fn launch(
        &self,
        request: &LaunchRequest,
    ) -> impl Future<Output = Result<Launched, Fault>> + Send;
    /// Starts stopped machines, at most [`crate::limits::IDS_PER_CALL_MAX`]; one answer for each.
    fn start(
        &self,
        ids: &[InstanceId],
    ) -> impl Future<Output = Result<Vec<(InstanceId, Started)>, Fault>> + Send;
    /// Stops machines, each under the operation its record names. A fault may leave some stopped.
    fn stop(&self, orders: &[StopOrder]) -> impl Future<Output = Result<(), Fault>> + Send;
    /// Ends machines. Ids that are unknown or gone are no error.
    fn terminate(&self, ids: &[InstanceId]) -> impl Future<Output = Result<(), Fault>> + Send;
    /// Every machine with our tag, all pages, whether remembered or not.
    fn list(&self) -> impl Future<Output = Result<Vec<Machine>, Fault>> + Send;
    /// These machines; one that is absent from the answer is gone, or not visible yet.
    fn describe(
        &self,
        ids: &[InstanceId],
    ) -> impl Future<Output = Result<Vec<Machine>, Fault>> + Send;
}
