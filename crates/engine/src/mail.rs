//! Posting orders to agents, retried until it is known whether the order is stored.
//!
//! Not here: what the orders mean (`core::mailbox`).

use std::cmp::Ordering;

use bullpen_core::ids::MailboxKey;
use bullpen_core::mailbox::{Inbox, Order};
use bullpen_core::ports::{Consistency, Fault, Mailbox, Ports, Written};
use bullpen_core::time::Timestamp;

use crate::Stack;
use crate::retry::{Backoff, retry_until};

/// What became of a posted order.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PostOutcome {
    /// The order is stored, or was stored a moment ago; this is the inbox.
    Stored(Inbox),
    /// A newer order is stored, so ours never will be; this is the inbox.
    Overtaken(Inbox),
}

/// Stores an order. No other process writes an order of the same rank with other contents, because
/// the generation in the rank belongs to the process that raised it. So finding the rank stored
/// settles a lost answer.
pub async fn post<P: Ports>(
    stack: &Stack<P>,
    key: &MailboxKey,
    order: &Order,
    until: Timestamp,
) -> Result<PostOutcome, Fault> {
    let mut backoff = Backoff::default();
    loop {
        match stack.ports.mailbox().post(key, order).await {
            Ok(Written::Won(inbox)) => return Ok(PostOutcome::Stored(inbox)),
            Ok(Written::Lost | Written::Unknown) => {
                if let Some(stored) = inbox(stack, key, until).await? {
                    match stored.order.rank().cmp(&order.rank()) {
                        Ordering::Equal => return Ok(PostOutcome::Stored(stored)),
                        Ordering::Greater => return Ok(PostOutcome::Overtaken(stored)),
                        Ordering::Less => {}
                    }
                }
            }
            Err(fault) if fault.is_transient() => {}
            Err(fault) => return Err(fault),
        }
        backoff.wait_until(stack, until).await?;
    }
}

/// Reads an agent's inbox consistently, retrying until `until`.
pub async fn inbox<P: Ports>(
    stack: &Stack<P>,
    key: &MailboxKey,
    until: Timestamp,
) -> Result<Option<Inbox>, Fault> {
    retry_until(stack, until, || stack.ports.mailbox().inbox(key, Consistency::Consistent)).await
}
