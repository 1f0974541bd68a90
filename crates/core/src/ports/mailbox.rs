//! The port to the mailboxes: orders to agents, reports from them.
//!
//! Not here: which orders and reports are accepted (`mailbox`).

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

/// The two records of each instance: the inbox and the report.
///
/// Contract: `post` stores an order, atomically, if and only if [`Inbox::accept`] takes it. A
/// report's attributes (the beat, each kind of signal) are written one by one and never overwrite
/// another. The mailbox drops a beat that does not follow the stored one ([`Beat::follows`]), and a
/// signal of an earlier generation than the stored signal of its kind. A user with root on a
/// machine can write anything into its report: a report that [`RawReport::read`] refuses is
/// unreadable under its own key alone. `wait` returns early when the inbox changes, where the
/// adapter can.
///
/// [`RawReport::read`]: crate::mailbox::RawReport::read
///
/// Weak arm: an eventual read may show any earlier value; `wait` may always time out.
pub trait Mailbox: Send + Sync {
    /// Stores an order; [`Written::Lost`] if the inbox has a newer one.
    fn post(
        &self,
        key: &MailboxKey,
        order: &Order,
    ) -> impl Future<Output = Result<Written<Inbox>, Fault>> + Send;
    /// Stores orders to different agents, each as [`Mailbox::post`] would, in as few calls as the
    /// adapter needs; one answer for each, in their order.
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
    /// Removes the credential from the assignment of this generation, if it is the latest
    /// assignment.
    fn redact(
        &self,
        key: &MailboxKey,
        generation: Generation,
    ) -> impl Future<Output = Result<(), Fault>> + Send;
    /// Reads the inbox.
    fn inbox(
        &self,
        key: &MailboxKey,
        read: Consistency,
    ) -> impl Future<Output = Result<Option<Inbox>, Fault>> + Send;
    /// The agents' reports under these keys, in their order; consistent. Each key has its own
    /// answer, so an unreadable report spoils no other. An `Err` is a fault of the store.
    fn reports(
        &self,
        keys: &[MailboxKey],
    ) -> impl Future<Output = Result<Vec<ReportRead>, Fault>> + Send;
    /// Stores the agent's heartbeat.
    fn beat(&self, key: &MailboxKey, beat: &Beat)
    -> impl Future<Output = Result<(), Fault>> + Send;
    /// Stores one signal of the agent.
    fn signal(
        &self,
        key: &MailboxKey,
        kind: SignalKind,
        signal: &Signal,
    ) -> impl Future<Output = Result<(), Fault>> + Send;
    /// Returns when the inbox or report under `key` may have changed, or after `at_most`.
    fn wait(&self, key: &MailboxKey, at_most: Duration) -> impl Future<Output = ()> + Send;
}
