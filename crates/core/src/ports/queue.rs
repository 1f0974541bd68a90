//! The port to queues, which announce work and idle machines. The ledger alone is the truth.
//!
//! Not here: the text of messages (`message`).

use std::future::Future;
use std::time::Duration;

use super::Fault;
use crate::ids::{QueueName, Receipt};

/// The kind of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueKind {
    /// Delivers at least once, in no order.
    Standard,
    /// Delivers in order within a group, to one receiver of a group at a time, and deduplicates.
    Fifo,
}

/// The definition of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueSpec {
    /// Its name.
    pub name: QueueName,
    /// Its kind.
    pub kind: QueueKind,
    /// How long a received message stays hidden.
    pub visibility: Duration,
    /// How long a message is kept.
    pub retention: Duration,
    /// The dead-letter queue, and after how many receives without a deletion a message goes there.
    pub dead_letters: Option<(QueueName, u32)>,
}

/// The fields that a FIFO queue needs with a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fifo {
    /// The group in which messages keep their order.
    pub group: String,
    /// The queue drops a message with the same id as another within five minutes.
    pub deduplication: String,
}

/// A message to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Its text.
    pub body: String,
    /// How long no receiver gets it; FIFO queues ignore it.
    pub delay: Duration,
    /// For a FIFO queue.
    pub fifo: Option<Fifo>,
}

impl Outgoing {
    /// A message for a standard queue, visible at once.
    pub fn now(body: String) -> Self {
        Self { body, delay: Duration::ZERO, fifo: None }
    }
}

/// A received message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Its text, exactly as it was sent.
    pub body: String,
    /// The handle to delete or defer it.
    pub receipt: Receipt,
    /// How many times it was received, this time included.
    pub receives: u32,
}

/// How many messages there are, roughly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Ready to be received.
    pub visible: u64,
    /// Sent with a delay that has not passed.
    pub delayed: u64,
    /// Received, and neither deleted nor visible again.
    pub in_flight: u64,
}

impl Depth {
    /// The sum of the three.
    pub const fn total(self) -> u64 {
        self.visible + self.delayed + self.in_flight
    }
}

/// Queues by name.
///
/// Contract: after a successful send, a message is delivered at least once within its retention, or
/// goes to the dead-letter queue after its last permitted receive. Bodies come back byte for byte.
/// At most [`crate::limits::MESSAGES_PER_CALL_MAX`] per call. Using an unknown queue is
/// [`Fault::NotFound`]. A stale receipt is no error and changes nothing.
///
/// Weak arm: messages of a standard queue may be doubled and reordered; a short poll may be empty
/// although there are messages; `depth` is an estimate; a send without an answer may have landed.
pub trait Queues: Send + Sync {
    /// Creates or changes the queue to match `spec`; does nothing if it matches already.
    fn ensure(&self, spec: &QueueSpec) -> impl Future<Output = Result<(), Fault>> + Send;
    /// Deletes a queue and its messages.
    fn remove(&self, queue: &QueueName) -> impl Future<Output = Result<(), Fault>> + Send;
    /// Sends; one answer per message, in order. An `Err` means that none was sent; without an
    /// answer from the service each message's own answer is [`Fault::Unavailable`].
    fn send(
        &self,
        queue: &QueueName,
        messages: &[Outgoing],
    ) -> impl Future<Output = Result<Vec<Result<(), Fault>>, Fault>> + Send;
    /// Receives up to `max`, waiting at most `wait` for the first. Zero is a short poll.
    fn receive(
        &self,
        queue: &QueueName,
        max: usize,
        wait: Duration,
    ) -> impl Future<Output = Result<Vec<Delivery>, Fault>> + Send;
    /// Deletes received messages.
    fn delete(
        &self,
        queue: &QueueName,
        receipts: &[Receipt],
    ) -> impl Future<Output = Result<(), Fault>> + Send;
    /// Hides a received message for this long from now; zero shows it at once.
    fn defer(
        &self,
        queue: &QueueName,
        receipt: &Receipt,
        hidden: Duration,
    ) -> impl Future<Output = Result<(), Fault>> + Send;
    /// How many messages a queue holds.
    fn depth(&self, queue: &QueueName) -> impl Future<Output = Result<Depth, Fault>> + Send;
}
