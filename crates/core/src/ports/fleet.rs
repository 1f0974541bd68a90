//! The port to machines (EC2, or processes on one machine).
//!
//! Not here: which machines to launch or end (the engine decides), or what must be in the cloud
//! before a launch ([`super::Site`]).

use std::future::Future;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Fault, Listing, Page};
use crate::class::{Architecture, Usage};
use crate::creation::{LaunchRequest, Offering};
use crate::ids::{
    ClassName, InstanceId, InstanceType, IntentId, MailboxKey, PoolName, StopOp, Zone,
};
use crate::instance::standby::StandbyStatus;
use crate::rates::Rates;
use crate::time::Timestamp;

/// The state of a machine, as the cloud reports it.
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

/// The tags that the service adds to a machine after its launch, for people who look at the cloud.
/// The service decides one thing by them: a machine on which a job has started never stands by
/// again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tags {
    /// The machine's standby status in its pool.
    pub standby: Option<StandbyStatus>,
    /// Whether a job has ever started on it.
    pub job_started: bool,
}

/// One tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// The machine's standby status in its pool; replaces the earlier status.
    Standby(StandbyStatus),
    /// A job has started on the machine; never removed.
    JobStarted,
}

impl Tags {
    /// Adds a tag.
    pub const fn put(&mut self, tag: Tag) {
        match tag {
            Tag::Standby(status) => self.standby = Some(status),
            Tag::JobStarted => self.job_started = true,
        }
    }
}

/// A machine as the cloud describes it, with this stack's tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Its id.
    pub id: InstanceId,
    /// Its state.
    pub state: MachineState,
    /// The launch intent (a tag).
    pub intent: IntentId,
    /// The runner class at launch (a tag).
    pub class: ClassName,
    /// The pool that launched it, if any (a tag).
    pub pool: Option<PoolName>,
    /// Its type.
    pub instance_type: InstanceType,
    /// Its vCPUs.
    pub vcpu: u32,
    /// Its memory in MiB.
    pub memory_mib: u32,
    /// Its architecture.
    pub architecture: Architecture,
    /// Its zone.
    pub zone: Zone,
    /// Spot or on-demand.
    pub usage: Usage,
    /// When it was launched.
    pub launched_at: Timestamp,
    /// Where its mailbox is.
    pub mailbox: MailboxKey,
    /// The tags that it got after its launch.
    pub tags: Tags,
}

/// The result of a launch: the number of machines asked for, or fewer, or none; never more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launched {
    /// The machines.
    pub machines: Vec<Machine>,
    /// The offerings for which the cloud had no capacity.
    pub shortages: Vec<Offering>,
    /// Why the cloud launched fewer machines, in its words, and the remedy; for people.
    pub explanation: Option<String>,
}

/// The result of starting one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartOutcome {
    /// It is starting, or runs already.
    Starting,
    /// The cloud has no capacity for it now.
    NoCapacity,
    /// The cloud cannot start it.
    Failed(Fault),
}

/// One stop call, with the nonce that the machine's record names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopOrder {
    /// The machine's id.
    pub id: InstanceId,
    /// The nonce of this call.
    pub op: StopOp,
    /// The call must not land after this time: the machine may have an owner by then.
    pub until: Timestamp,
}

/// The cloud's machines that carry this stack's tag, and no others.
///
/// Contract: `launch` is idempotent on `request.intent`: the same request again returns the same
/// machines and launches no more. `start`, `terminate` and `tag` succeed if there is nothing to do.
/// The adapter sends `stop` at most once per call and never retries it. A fleet that has a clock
/// refuses an order past its `until` with [`Fault::Denied`]; a fleet that remembers operations
/// executes each once. A fleet may be unable to read what it knows of a machine (its file is of a
/// newer program, its tags were removed): `describe` names it by its id, and it is not gone. `stop`,
/// `terminate` and `tag` do their work for the other machines if the fleet cannot read one, or the
/// cloud denies the call for one, and then answer [`Fault::Unreadable`] or [`Fault::Denied`].
///
/// Weak arm: `list` and `describe` may miss a machine for a while after its launch returned, and
/// `list` at any time; states lag; a call whose answer was lost may land, and may land late.
pub trait Fleet: Send + Sync {
    /// The rates that the cloud allows all callers of the account together.
    fn rates(&self) -> Rates {
        Rates::unlimited()
    }
    /// Launches up to `request.count` machines. After [`Fault::Unavailable`] it may have launched
    /// some.
    fn launch(
        &self,
        request: &LaunchRequest,
    ) -> impl Future<Output = Result<Launched, Fault>> + Send;
    /// Starts at most [`crate::limits::IDS_PER_CALL_MAX`] stopped machines; one answer for each.
    fn start(
        &self,
        ids: &[InstanceId],
    ) -> impl Future<Output = Result<Vec<(InstanceId, StartOutcome)>, Fault>> + Send;
    /// Stops machines. A fault may leave some stopped.
    fn stop(&self, orders: &[StopOrder]) -> impl Future<Output = Result<(), Fault>> + Send;
    /// Terminates machines. Ids that are unknown or gone are no error.
    fn terminate(&self, ids: &[InstanceId]) -> impl Future<Output = Result<(), Fault>> + Send;
    /// Tags at most [`crate::limits::IDS_PER_CALL_MAX`] machines. Ids that are unknown or gone are
    /// no error. A machine keeps its tags while it is stopped. A fault may leave some tagged.
    fn tag(&self, ids: &[InstanceId], tag: Tag) -> impl Future<Output = Result<(), Fault>> + Send;
    /// A page of the machines with this stack's tag, whether the ledger has a record of them or
    /// not: one call to the cloud.
    fn list(
        &self,
        after: Option<&str>,
    ) -> impl Future<Output = Result<Page<Machine>, Fault>> + Send;
    /// How long after its launch a machine may be missing from `list`.
    fn shows_within(&self) -> Duration {
        Duration::ZERO
    }
    /// These machines. A machine missing from the answer is gone, or not visible yet.
    fn describe(
        &self,
        ids: &[InstanceId],
    ) -> impl Future<Output = Result<Listing<Machine>, Fault>> + Send;
}
