//! Batching orders: orders that several workers of one process post at the same time share a call.
//!
//! No order waits to fill a batch: a single order is posted at once, and orders that arrive during
//! a call go with the next one.
//!
//! Not here: settling an order whose answer was lost ([`crate::mail`]).

use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bullpen_core::ids::MailboxKey;
use bullpen_core::limits::IDS_PER_CALL_MAX;
use bullpen_core::mailbox::{Inbox, Order};
use bullpen_core::ports::{Fault, Mailbox, Ports, Written};
use tokio::sync::{Notify, oneshot};

use crate::Stack;

/// The orders that wait for the next call.
#[derive(Debug, Default)]
pub struct OrderBatcher {
    waiting: Mutex<Vec<BatchedOrder>>,
    arrived: Notify,
}

#[derive(Debug)]
struct BatchedOrder {
    key: MailboxKey,
    order: Order,
    answer: oneshot::Sender<Result<Written<Inbox>, Fault>>,
}

impl OrderBatcher {
    /// Posts an order together with the others that wait. The caller must poll
    /// [`OrderBatcher::deliver`] meanwhile.
    pub async fn post(&self, key: &MailboxKey, order: &Order) -> Result<Written<Inbox>, Fault> {
        let (answer, posted) = oneshot::channel();
        self.waiting().push(BatchedOrder { key: key.clone(), order: order.clone(), answer });
        self.arrived.notify_one();
        // The delivery was dropped: it is not known whether this order was posted.
        posted.await.unwrap_or(Ok(Written::Unknown))
    }

    /// Posts the waiting orders, batch after batch. Its request drops it.
    pub async fn deliver<P: Ports>(&self, stack: &Stack<P>) -> Infallible {
        loop {
            let batch = self.take();
            if batch.is_empty() {
                self.arrived.notified().await;
                continue;
            }
            let orders: Vec<_> =
                batch.iter().map(|each| (each.key.clone(), each.order.clone())).collect();
            let answers = stack.ports.mailbox().post_all(&orders).await;
            for (each, answer) in batch.into_iter().zip(answers) {
                // The caller of `post` may have stopped waiting.
                let _ = each.answer.send(answer);
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<BatchedOrder>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes as many orders as one call carries, at most one for each agent.
    fn take(&self) -> Vec<BatchedOrder> {
        let mut waiting = self.waiting();
        let mut taken: Vec<BatchedOrder> = Vec::new();
        let mut left = Vec::new();
        for each in waiting.drain(..) {
            let fits =
                taken.len() < IDS_PER_CALL_MAX && taken.iter().all(|other| other.key != each.key);
            if fits { taken.push(each) } else { left.push(each) }
        }
        *waiting = left;
        taken
    }
}
