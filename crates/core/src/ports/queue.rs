//! Queues: how work and idle machines are announced. Never the truth.

use std::future::Future;
use std::time::Duration;

use super::Fault;
use crate::ids::{QueueName, Receipt};

/// Ordered or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueKind {
    /// At least once, in no order.
    Standard,
    /// In order within a group, one group's messages one receiver at a time, deduplicated.
    Fifo,
}

/// What a queue is.
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
    /// After so many receives without a deletion a message goes to that queue.
    pub dead_letters: Option<(QueueName, u32)>,
}

/// What FIFO needs to know of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fifo {
    /// Order holds inside a group.
    pub group: String,
    /// The same again within five minutes is swallowed.
    pub deduplication: String,
}

/// A message to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Its text.
    pub body: String,
    /// How long nobody sees it; FIFO queues know no such delay and ignore it.
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

/// A message as it was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Its text, exactly as it was sent.
    pub body: String,
    /// To delete or defer it.
    pub receipt: Receipt,
    /// How often it was received, this time included.
    pub receives: u32,
}

/// How many messages there are, roughly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// To be received now.
    pub visible: u64,
    /// Sent with a delay that has not passed.
    pub delayed: u64,
    /// Received and neither deleted nor visible again.
    pub in_flight: u64,
}

impl Depth {
    /// All of them.
    pub const fn total(self) -> u64 {
        self.visible + self.delayed + self.in_flight
    }
}

/// Queues by name.
///
/// Contract: a message that was sent and answered is delivered at least once within its retention,
/// or lands in the dead-letter queue after its receives are used up. Bodies come back byte for byte.
/// At most [`crate::limits::MESSAGES_PER_CALL_MAX`] per call. Using an unknown queue is
/// [`Fault::NotFound`]. A stale receipt is no error and changes nothing.
///
/// Weak arm: messages of a standard queue may be doubled and reordered; a short poll may be empty
/// although there are messages; `depth` is an estimate; a send without an answer may have landed.
pub trait Queues: Send + Sync {
    /// Makes the queue be as described. Nothing happens if it is.
    fn ensure(&self, spec: &QueueSpec) -> impl Future<Output = Result<(), Fault>> + Send;
    /// Deletes a queue and what is in it.
    fn remove(&self, queue: &QueueName) -> impl Future<Output = Result<(), Fault>> + Send;
    /// Sends; one answer per message, in order. An `Err` means that none was sent; without an answer
    /// from the service each message's own answer is [`Fault::Unavailable`].
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
    /// How full it is.
    fn depth(&self, queue: &QueueName) -> impl Future<Output = Result<Depth, Fault>> + Send;
}
