//! The ports: one trait for each outside service that the engine uses, without any vendor's type.
//!
//! A port promises only guarantees that AWS gives. A trait's documentation is its contract; its
//! *weak arm* lists the unpleasant things that a correct adapter may do. Emulators do not do them,
//! but the models in `bullpen-sim` do, and the engine must be right nevertheless. One contract
//! suite per port (`bullpen_sim::contract`) tests every adapter. No method blocks longer than its
//! adapter's timeout.
//!
//! Not here: any implementation.

use std::future::Future;
use std::time::Duration;

use crate::ids::{ClaimId, HolderId, StopOp};
use crate::time::Timestamp;

mod fleet;
mod forge;
mod job_forge;
mod ledger;
mod listing;
mod mailbox;
mod queue;
mod site;

pub use fleet::{Fleet, Launched, Machine, MachineState, StartOutcome, StopOrder, Tag, Tags};
pub use forge::{Forge, Runner, RunnerSpec, RunnerTokens};
pub use job_forge::{FileRead, JobForge, LostDelivery, Notice, UnfinishedRun};
pub use ledger::{ClaimWrite, Document, JobRow, Ledger, Recorded, Reserved, WaitingAt};
pub use listing::{ItemKind, Listing, Page, Unreadable, read_text};
pub use mailbox::{Consistency, Mailbox};
pub use queue::{Delivery, Depth, Fifo, Outgoing, QueueKind, QueueSpec, Queues};
pub use site::{LearnedSite, Site};

/// A failed call to a port. The set is closed: the engine matches on it and never on text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The service refused because of too many calls; a later call may succeed.
    #[error("throttled")]
    Throttled,
    /// The service did not answer, or answered that it is down. A write may or may not have landed,
    /// unless the method says otherwise. The text names the service and the failure, for people.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// The cloud has no capacity for such a machine now.
    #[error("no capacity")]
    NoCapacity,
    /// The service does not know the thing asked for.
    #[error("not found")]
    NotFound,
    /// The service refuses us; another try will not help.
    #[error("denied: {0}")]
    Denied(String),
    /// The store holds a value that this program cannot read; the call changed nothing.
    #[error("unreadable: {0}")]
    Unreadable(String),
    /// A vendor's error code without a variant above, verbatim.
    #[error("unclassified: {0}")]
    Unclassified(String),
}

impl Fault {
    /// [`Fault::Unavailable`] with a text that names the service and the failure.
    pub fn unavailable(what: &str) -> Self {
        Self::Unavailable(what.to_owned())
    }

    /// Whether the same call may succeed later without any change by a person.
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Throttled | Self::Unavailable(_) | Self::NoCapacity => true,
            Self::NotFound | Self::Denied(_) | Self::Unreadable(_) | Self::Unclassified(_) => false,
        }
    }
}

/// The answer to a conditional write. If the call returns `Err(Fault)`, it certainly did not land.
#[must_use = "losing is ordinary and unknown must be settled by reading"]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written<T> {
    /// The write landed; this is the stored value.
    Won(T),
    /// The condition did not hold.
    Lost,
    /// The write may have landed. Only a read can tell, by a value that only this caller writes.
    Unknown,
}

/// The wall clock and a monotonic clock.
pub trait Clock: Send + Sync {
    /// The wall clock's time. May jump; may differ from other machines' clocks by the tolerated
    /// skew.
    fn now(&self) -> Timestamp;
    /// Time since some fixed point of this process. Never jumps.
    fn monotonic(&self) -> Duration;
    /// Returns after `wait`. Callers use it to wake, never to decide.
    fn sleep(&self, wait: Duration) -> impl Future<Output = ()> + Send;
}

/// Generates ids that no other call returns, in any process of the stack.
pub trait Ids: Send + Sync {
    /// A claim's nonce.
    fn claim(&self) -> ClaimId;
    /// A stop call's nonce.
    fn stop_op(&self) -> StopOp;
    /// The id of this process as a holder of leases.
    fn holder(&self) -> HolderId;
    /// 128 bits that cannot be guessed outside this process; they make a label a secret.
    fn label_bits(&self) -> u128;
    /// A number below `bound` (at least 1), for jitter.
    fn jitter(&self, bound: u64) -> u64;
}

/// All ports of one stack, so that the engine has one type parameter.
pub trait Ports: Send + Sync {
    /// Which owner has which machine.
    type Ledger: Ledger;
    /// Wake-ups.
    type Queues: Queues;
    /// Orders to agents and reports from them.
    type Mailbox: Mailbox;
    /// Machines.
    type Fleet: Fleet;
    /// What the fleet needs before a launch.
    type Site: Site;
    /// GitHub.
    type Forge: Forge;
    /// Time.
    type Clock: Clock;
    /// New ids.
    type Ids: Ids;

    /// Which owner has which machine.
    fn ledger(&self) -> &Self::Ledger;
    /// Wake-ups.
    fn queues(&self) -> &Self::Queues;
    /// Orders to agents and reports from them.
    fn mailbox(&self) -> &Self::Mailbox;
    /// Machines.
    fn fleet(&self) -> &Self::Fleet;
    /// What the fleet needs before a launch.
    fn site(&self) -> &Self::Site;
    /// GitHub.
    fn forge(&self) -> &Self::Forge;
    /// Time.
    fn clock(&self) -> &Self::Clock;
    /// New ids.
    fn ids(&self) -> &Self::Ids;
}
