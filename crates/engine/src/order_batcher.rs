//! The order_batcher: orders that several workers of one process have to post at once go together.
//!
//! Nobody waits for company: what comes while a call is under way goes with the next. A lone order
//! goes alone and at once.
//!
//! Not here: settling an order whose answer did not come ([`crate::mail`]).

use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bullpen_core::ids::MailboxKey;
use bullpen_core::limits::IDS_PER_CALL_MAX;
use bullpen_core::mailbox::{Inbox, Order};
use bullpen_core::ports::{Fault, Mailbox, Ports, Written};
use tokio::sync::{Notify, oneshot};

use crate::Stack;

/// Orders that wait to be taken along.
#[derive(Debug, Default)]
pub struct OrderBatcher {
    letters: Mutex<Vec<BatchedOrder>>,
    came: Notify,
}

#[derive(Debug)]
struct BatchedOrder {
    key: MailboxKey,
    order: Order,
    answer: oneshot::Sender<Result<Written<Inbox>, Fault>>,
}

impl OrderBatcher {
    /// Posts an order with whatever goes at the same time. Somebody must be delivering meanwhile
    /// ([`OrderBatcher::deliver`]).
    pub async fn post(&self, key: &MailboxKey, order: &Order) -> Result<Written<Inbox>, Fault> {
        let (answer, posted) = oneshot::channel();
        self.letters().push(BatchedOrder { key: key.clone(), order: order.clone(), answer });
        self.came.notify_one();
        // Nobody delivers any more: whether this one went is not known.
        posted.await.unwrap_or(Ok(Written::Unknown))
    }

    /// Delivers whatever comes. Ends with its request.
    pub async fn deliver<P: Ports>(&self, stack: &Stack<P>) -> Infallible {
        loop {
            let letters = self.take();
            if letters.is_empty() {
                self.came.notified().await;
                continue;
            }
            let orders: Vec<_> =
                letters.iter().map(|letter| (letter.key.clone(), letter.order.clone())).collect();
            let answers = stack.ports.mailbox().post_all(&orders).await;
            for (letter, answer) in letters.into_iter().zip(answers) {
                // Whoever asked may have stopped waiting.
                let _ = letter.answer.send(answer);
            }
        }
    }

    fn letters(&self) -> MutexGuard<'_, Vec<BatchedOrder>> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As many as go with one call, to different agents.
    fn take(&self) -> Vec<BatchedOrder> {
        let mut waiting = self.letters();
        let mut taken: Vec<BatchedOrder> = Vec::new();
        let mut left = Vec::new();
        for letter in waiting.drain(..) {
            let fits =
                taken.len() < IDS_PER_CALL_MAX && taken.iter().all(|other| other.key != letter.key);
            if fits { taken.push(letter) } else { left.push(letter) }
        }
        *waiting = left;
        taken
    }
}
