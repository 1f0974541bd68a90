//! Batching orders: orders that several workers of one process post at the same time share a call.
//!
//! No order waits to fill a batch: if no call is under way, an order is posted at once. Orders that
//! arrive during a call go together with the next one, which does not wait for a call that is slow.
//!
//! Not here: settling an order whose answer was lost ([`crate::mail`]).

use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bullpen_core::ids::MailboxKey;
use bullpen_core::limits::IDS_PER_CALL_MAX;
use bullpen_core::mailbox::{Inbox, Order};
use bullpen_core::ports::{Clock, Fault, Mailbox, Ports, Written};
use tokio::sync::{Semaphore, oneshot};

use crate::Stack;

/// How long the next call waits for the one under way: a call that hangs must not hold up all orders
/// of the process.
const CALL_IS_SLOW: Duration = Duration::from_millis(100);

/// The orders that wait for the next call.
#[derive(Debug)]
pub(crate) struct OrderBatcher {
    waiting: Mutex<Vec<BatchedOrder>>,
    next: Semaphore,
}

impl Default for OrderBatcher {
    fn default() -> Self {
        Self { waiting: Mutex::default(), next: Semaphore::new(1) }
    }
}

#[derive(Debug)]
struct BatchedOrder {
    key: MailboxKey,
    order: Order,
    answer: oneshot::Sender<Result<Written<Inbox>, Fault>>,
}

impl OrderBatcher {
    /// Posts an order together with the others that wait.
    pub(crate) async fn post<P: Ports>(
        &self,
        stack: &Stack<P>,
        key: &MailboxKey,
        order: &Order,
    ) -> Result<Written<Inbox>, Fault> {
        let (answer, posted) = oneshot::channel();
        self.waiting().push(BatchedOrder { key: key.clone(), order: order.clone(), answer });
        tokio::select! {
            biased;
            // The caller that posted this order was dropped: it is not known whether it is stored.
            posted = posted => posted.unwrap_or(Ok(Written::Unknown)),
            never = self.deliver(stack, key, order) => match never {},
        }
    }

    /// Posts the next batch when it is its turn, unless another caller took this order into its own
    /// batch. Never returns: the answer goes to each order's caller.
    async fn deliver<P: Ports>(
        &self,
        stack: &Stack<P>,
        key: &MailboxKey,
        order: &Order,
    ) -> Infallible {
        loop {
            // The semaphore is never closed.
            let turn = self.next.acquire().await;
            let waits = |each: &BatchedOrder| each.key == *key && each.order == *order;
            if !self.waiting().iter().any(waits) {
                break;
            }
            let batch = self.take();
            let orders: Vec<_> =
                batch.iter().map(|each| (each.key.clone(), each.order.clone())).collect();
            let mut call = pin!(stack.ports.mailbox().post_all(&orders));
            let answers = tokio::select! {
                biased;
                answers = &mut call => {
                    drop(turn);
                    answers
                }
                () = stack.ports.clock().sleep(CALL_IS_SLOW) => {
                    drop(turn);
                    call.await
                }
            };
            for (each, answer) in batch.into_iter().zip(answers) {
                // The caller of `post` may have stopped waiting.
                let _ = each.answer.send(answer);
            }
        }
        pending().await
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<BatchedOrder>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes as many orders as one call carries, at most one for each agent, and forgets those whose
    /// callers do not wait any more: nothing is known of their machines by now.
    fn take(&self) -> Vec<BatchedOrder> {
        let mut waiting = self.waiting();
        let mut taken: Vec<BatchedOrder> = Vec::new();
        let mut left = Vec::new();
        for each in waiting.drain(..).filter(|each| !each.answer.is_closed()) {
            let fits =
                taken.len() < IDS_PER_CALL_MAX && taken.iter().all(|other| other.key != each.key);
            if fits { taken.push(each) } else { left.push(each) }
        }
        *waiting = left;
        taken
    }
}
