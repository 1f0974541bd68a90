//! Words to and from agents.

use std::future::Future;
use std::time::Duration;

use super::{Fault, Written};
use crate::ids::{Generation, MailboxKey};
use crate::mailbox::{Beat, Inbox, Order, ReportRead, Signal, SignalKind};

/// How fresh a read must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// May be a little old.
    Eventual,
    /// Sees every write that was answered before it.
    Consistent,
}

/// The two records of each instance.
///
/// Contract: `post` stores an order exactly if [`Inbox::accept`] takes it, atomically. A report's
/// attributes (the beat, each kind of signal) are written one by one and never overwrite another;
/// a beat that does not follow the stored one ([`Beat::follows`]), and a signal of an earlier
/// generation than the stored one of its kind, is dropped. Whoever has root on a machine can write
/// anything into its report: what [`RawReport::read`] does not take is unreadable, under its own key
/// alone. `wait` returns early when the inbox changes, where the adapter can.
///
/// [`RawReport::read`]: crate::mailbox::RawReport::read
///
/// Weak arm: an eventual read may show any earlier value; `wait` may only ever time out.
pub trait Mailbox: Send + Sync {
    /// Stores an order; [`Written::Lost`] if a newer one is there.
    fn post(
        &self,
        key: &MailboxKey,
        order: &Order,
    ) -> impl Future<Output = Result<Written<Inbox>, Fault>> + Send;
    /// Stores orders to different agents, each as [`Mailbox::post`] would, in as few calls as the
    /// adapter can make of it; one answer for each, in their order.
    fn post_all(
        &self,
        orders: &[(MailboxKey, Order)],
    ) -> impl Future<Output = Vec<Result<Written<Inbox>, Fault>>> + Send {
        async move {
            let mut answers = Vec::with_capacity(orders.len());
            for (key, order) in orders {
                answers.push(self.post(key, order).await);
            }
            answers
        }
    }
    /// Removes the credential of the assignment of this generation; nothing if it is not the latest.
    fn redact(
        &self,
        key: &MailboxKey,
        generation: Generation,
    ) -> impl Future<Output = Result<(), Fault>> + Send;
    /// The inbox.
    fn inbox(
        &self,
        key: &MailboxKey,
        read: Consistency,
    ) -> impl Future<Output = Result<Option<Inbox>, Fault>> + Send;
    /// What agents reported under these keys, in their order; consistent. Each key has an answer of its
    /// own: whatever is stored under one, the others are answered. A fault is the store's.
    fn reports(
        &self,
        keys: &[MailboxKey],
    ) -> impl Future<Output = Result<Vec<ReportRead>, Fault>> + Send;
    /// The agent's sign of life.
    fn beat(&self, key: &MailboxKey, beat: &Beat)
    -> impl Future<Output = Result<(), Fault>> + Send;
    /// One signal of the agent's.
    fn signal(
        &self,
        key: &MailboxKey,
        kind: SignalKind,
        signal: &Signal,
    ) -> impl Future<Output = Result<(), Fault>> + Send;
    /// Returns when the inbox or report under `key` may have changed, or after `at_most`.
    fn wait(&self, key: &MailboxKey, at_most: Duration) -> impl Future<Output = ()> + Send;
}
