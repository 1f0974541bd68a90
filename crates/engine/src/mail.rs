//! Posting orders to agents, settled until the answer is known.
//!
//! Not here: what the orders mean (`core::mailbox`).

use bullpen_core::ids::MailboxKey;
use bullpen_core::mailbox::{Inbox, Order};
use bullpen_core::ports::{Fault, Mailbox, Ports, Read, Written};
use bullpen_core::time::Timestamp;

use crate::Stack;
use crate::patience::{Waits, patiently};

/// Whether an order is stored.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Posted {
    /// It is, or was a moment ago; this is the inbox.
    Stored(Inbox),
    /// Something newer is, and ours will never be.
    Overtaken(Option<Inbox>),
}

/// Stores an order. Nobody else ever writes one of the same rank with other contents: a rank's
/// generation belongs to whoever raised it, so finding it stored settles a lost answer.
pub async fn post<P: Ports>(
    stack: &Stack<P>,
    key: &MailboxKey,
    order: &Order,
    until: Timestamp,
) -> Result<Posted, Fault> {
    let mut waits = Waits::default();
    loop {
        match stack.ports.mailbox().post(key, order).await {
            Ok(Written::Won(inbox)) => return Ok(Posted::Stored(inbox)),
            Ok(Written::Lost | Written::Unknown) => {
                let stored = inbox(stack, key, until).await?;
                match stored.as_ref().map(|inbox| inbox.order.rank().cmp(&order.rank())) {
                    Some(std::cmp::Ordering::Equal) => {
                        return Ok(stored.map_or(Posted::Overtaken(None), Posted::Stored));
                    }
                    Some(std::cmp::Ordering::Greater) => return Ok(Posted::Overtaken(stored)),
                    Some(std::cmp::Ordering::Less) | None => {}
                }
            }
            Err(fault) if fault.is_transient() => {}
            Err(fault) => return Err(fault),
        }
        if stack.now() >= until {
            return Err(Fault::Unavailable);
        }
        waits.wait(stack).await;
    }
}

/// The inbox, consistently and patiently.
pub async fn inbox<P: Ports>(
    stack: &Stack<P>,
    key: &MailboxKey,
    until: Timestamp,
) -> Result<Option<Inbox>, Fault> {
    patiently(stack, until, || stack.ports.mailbox().inbox(key, Read::Consistent)).await
}
