//! Machines.

use std::future::Future;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Fault;
use crate::class::{Architecture, RunnerClass, Usage};
use crate::creation::{LaunchRequest, Offering};
use crate::ids::{
    ClassName, InstanceId, InstanceType, IntentId, MailboxKey, PoolName, StopOp, Zone,
};
use crate::instance::standby::StandbyStatus;
use crate::parameters::LaunchSite;
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

/// What a machine is tagged with after its launch, for people who look at the cloud. Nothing is
/// decided by it, but for one thing: a machine on which a job has started never stands by again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tags {
    /// What its pool says of it.
    pub standby: Option<StandbyStatus>,
    /// Whether a job has ever started on it.
    pub job_started: bool,
}

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// What its pool says of it; replaces what was said before.
    Standby(StandbyStatus),
    /// A job has started on it; never taken back.
    JobStarted,
}

impl Tags {
    /// Adds this one.
    pub const fn put(&mut self, tag: Tag) {
        match tag {
            Tag::Standby(status) => self.standby = Some(status),
            Tag::JobStarted => self.job_started = true,
        }
    }
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
    /// What it was tagged with since.
    pub tags: Tags,
}

/// What a launch brought: possibly fewer than asked for, possibly none, never more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launched {
    /// The machines.
    pub machines: Vec<Machine>,
    /// What the cloud was short of on the way.
    pub shortages: Vec<Offering>,
    /// Why it brought less, in the cloud's words and with what to do; for people.
    pub said: Option<String>,
}

/// How one machine's start went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartOutcome {
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
/// machines, and launches none anew. `start`, `terminate` and `tag` succeed if there is nothing to do.
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
    ) -> impl Future<Output = Result<Vec<(InstanceId, StartOutcome)>, Fault>> + Send;
    /// Stops machines, each under the operation its record names. A fault may leave some stopped.
    fn stop(&self, orders: &[StopOrder]) -> impl Future<Output = Result<(), Fault>> + Send;
    /// Ends machines. Ids that are unknown or gone are no error.
    fn terminate(&self, ids: &[InstanceId]) -> impl Future<Output = Result<(), Fault>> + Send;
    /// Tags machines, at most [`crate::limits::IDS_PER_CALL_MAX`]. Ids that are unknown or gone are no
    /// error. A machine keeps its tags while it is stopped. A fault may leave some tagged.
    fn tag(&self, ids: &[InstanceId], tag: Tag) -> impl Future<Output = Result<(), Fault>> + Send;
    /// Every machine with our tag, all pages, whether remembered or not.
    fn list(&self) -> impl Future<Output = Result<Vec<Machine>, Fault>> + Send;
    /// What must be known before anything can be launched, asked from the cloud; nothing where
    /// nothing must be. `born` is kept in it. An answer that is not what is `kept` was asked for just
    /// now.
    fn learn(
        &self,
        born: &str,
        kept: Option<&LaunchSite>,
    ) -> impl Future<Output = Result<Option<LaunchSite>, Fault>> + Send {
        let _ = (born, kept);
        async { Ok(None) }
    }
    /// How long a machine may be there before `list` shows it.
    fn shows_within(&self) -> Duration {
        Duration::ZERO
    }
    /// Makes what launches of these classes need besides, and removes what none needs any more; says
    /// what was done, or what would be.
    fn prepare(
        &self,
        classes: &[RunnerClass],
        really: bool,
    ) -> impl Future<Output = Result<Vec<String>, Fault>> + Send {
        let _ = (classes, really);
        async { Ok(Vec::new()) }
    }
    /// Removes everything that was prepared; says what.
    fn dismantle(&self) -> impl Future<Output = Result<Vec<String>, Fault>> + Send {
        async { Ok(Vec::new()) }
    }
    /// These machines; one that is absent from the answer is gone, or not visible yet.
    fn describe(
        &self,
        ids: &[InstanceId],
    ) -> impl Future<Output = Result<Vec<Machine>, Fault>> + Send;
}
