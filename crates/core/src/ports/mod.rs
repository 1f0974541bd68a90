//! The ports: what the engine needs from outside, in our own words.
//!
//! A port promises only what AWS can keep. Each trait's documentation is its contract, and says
//! where its *weak arm* is: what a correct adapter may do that is unpleasant. The engine must be
//! right under the weak arm, because no emulator shows it; the models in `bullpen-sim` play it, and
//! one contract suite per port (`bullpen_sim::contract`) holds every adapter to the rest.
//!
//! No method blocks for longer than the adapter's own timeout. Nothing here names a vendor's type.
//!
//! Not here: any implementation.

use std::future::Future;
use std::time::Duration;

use crate::ids::{ClaimId, HolderId, StopOp};
use crate::time::Timestamp;

mod demand;
mod fleet;
mod forge;
mod job_forge;
mod ledger;
mod mailbox;
mod queue;

pub use demand::{Demand, DemandSource};
pub use fleet::{Fleet, Launched, Machine, MachineState, StartOutcome, StopOrder, Tag, Tags};
pub use forge::{Forge, Runner, RunnerSpec, RunnerTokens};
pub use job_forge::{FileRead, JobForge, LostDelivery, Notice};
pub use ledger::{
    ClaimWrite, Document, JobRow, Ledger, Page, Recorded, Reserved, RowSwap, Swap, WaitingAt,
};
pub use mailbox::{Consistency, Mailbox};
pub use queue::{Delivery, Depth, Fifo, Outgoing, QueueKind, QueueSpec, Queues};

/// What can go wrong at a port. Closed: the engine matches on it and never on text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Too many calls; later ones will do.
    #[error("throttled")]
    Throttled,
    /// The service did not answer, or answered that it is down. A write may or may not have landed,
    /// unless the method says otherwise. The text is for people: who did not answer, and how.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// The cloud has no such machine to give now.
    #[error("no capacity")]
    NoCapacity,
    /// What was asked about is not there.
    #[error("not found")]
    NotFound,
    /// We are not allowed to; asking again will not help.
    #[error("denied: {0}")]
    Denied(String),
    /// The store holds something this program cannot read; nothing was changed.
    #[error("unreadable: {0}")]
    Unreadable(String),
    /// A vendor's code that has no place above, kept verbatim.
    #[error("unclassified: {0}")]
    Unclassified(String),
}

impl Fault {
    /// Somebody did not answer; `what` says who, and how.
    pub fn unavailable(what: &str) -> Self {
        Self::Unavailable(what.to_owned())
    }

    /// Whether the same call may succeed later without anyone doing anything.
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Throttled | Self::Unavailable(_) | Self::NoCapacity => true,
            Self::NotFound | Self::Denied(_) | Self::Unreadable(_) | Self::Unclassified(_) => false,
        }
    }
}

/// The answer to a conditional write. An `Err(Fault)` beside it means that it certainly did not land.
#[must_use = "losing is ordinary and unknown must be settled by reading"]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written<T> {
    /// It landed; this is what is stored now.
    Won(T),
    /// The condition did not hold.
    Lost,
    /// It may have landed. Only a read can tell, and only by something that is ours alone.
    Unknown,
}

/// The wall clock and a monotonic one.
pub trait Clock: Send + Sync {
    /// The time of day. May jump; may differ from other machines' by the tolerated skew.
    fn now(&self) -> Timestamp;
    /// Time since some fixed point of this process. Never jumps.
    fn monotonic(&self) -> Duration;
    /// Returns after `wait`. Only ever used to wake, never to decide.
    fn sleep(&self, wait: Duration) -> impl Future<Output = ()> + Send;
}

/// New ids. Never repeats one, across all processes of a stack.
pub trait Ids: Send + Sync {
    /// A claim's nonce.
    fn claim(&self) -> ClaimId;
    /// A stop call's nonce.
    fn stop_op(&self) -> StopOp;
    /// This process as a holder of leases.
    fn holder(&self) -> HolderId;
    /// 128 bits that nobody outside this process can guess: what makes a label a secret.
    fn label_bits(&self) -> u128;
    /// A number below `bound` (at least 1), for jitter.
    fn jitter(&self, bound: u64) -> u64;
}

/// All ports of one stack, so that the engine has one type parameter.
pub trait Ports: Send + Sync {
    /// Who owns what.
    type Ledger: Ledger;
    /// Wake-ups.
    type Queues: Queues;
    /// Words to and from agents.
    type Mailbox: Mailbox;
    /// Machines.
    type Fleet: Fleet;
    /// GitHub.
    type Forge: Forge;
    /// Time.
    type Clock: Clock;
    /// New ids.
    type Ids: Ids;

    /// Who owns what.
    fn ledger(&self) -> &Self::Ledger;
    /// Wake-ups.
    fn queues(&self) -> &Self::Queues;
    /// Words to and from agents.
    fn mailbox(&self) -> &Self::Mailbox;
    /// Machines.
    fn fleet(&self) -> &Self::Fleet;
    /// GitHub.
    fn forge(&self) -> &Self::Forge;
    /// Time.
    fn clock(&self) -> &Self::Clock;
    /// New ids.
    fn ids(&self) -> &Self::Ids;
}
