//! Standard and FIFO queues in SQLite, in the ledger's file.
//!
//! A message is *ready* if its time has come and no earlier message of its group exists (it is not
//! `blocked`). A receive moves its time; a deletion unblocks the next of its group. A receipt has
//! the count of receives, so that a later receive makes it stale. Receivers do not poll: sends,
//! deletions and deferrals of every process wake them ([`crate::wake`]), and the clock does.
//!
//! Not here: the contents of messages, or their senders.

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bullpen_core::ids::{QueueName, Receipt};
use bullpen_core::limits::MESSAGES_PER_CALL_MAX;
use bullpen_core::ports::{Clock, Delivery, Depth, Fault, Outgoing, QueueSpec, Queues};
use bullpen_core::time::Timestamp;

use crate::SqliteLedger;
use crate::open::{LEDGER, OpenError};
use crate::statement_fault::WriteOutcome;
use crate::store::Store;
use crate::wait::{First, first};
use crate::wake::{Topic, TopicWatch, WakeListener};
use crate::write_gate::PATIENCE_MAX;

mod messages;
mod receive;
mod specs;

/// The queues in one SQLite file.
pub struct SqliteQueues<C> {
    store: Arc<Store>,
    listener: WakeListener,
    clock: Arc<C>,
}

/// When a queue has a ready message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Now,
    At(Timestamp),
    Never,
}

impl<C: Clock> SqliteQueues<C> {
    /// Opens the ledger's file at `path`; makes or migrates it if necessary. By the clock messages
    /// become due and expire.
    pub fn open(path: &Path, clock: Arc<C>) -> Result<Self, OpenError> {
        let store = Arc::new(Store::open(path, &LEDGER, PATIENCE_MAX)?);
        Ok(Self { listener: WakeListener::new(path)?, store, clock })
    }

    /// The queues of an open ledger. Both then write through one writer.
    pub fn beside(ledger: &SqliteLedger<C>) -> Result<Self, OpenError> {
        let (store, clock) = (Arc::clone(ledger.store()), Arc::clone(ledger.clock()));
        Ok(Self { listener: WakeListener::new(store.path())?, store, clock })
    }

    /// Takes ready messages in one write.
    async fn take(&self, queue: &QueueName, max: usize) -> Result<Vec<Delivery>, Fault> {
        let (queue, now) = (queue.clone(), self.clock.now());
        self.store.write(move |writing| receive::take(writing, &queue, max, now)).await.plain()
    }

    async fn next(&self, queue: &QueueName) -> Result<Next, Fault> {
        let (queue, now) = (queue.clone(), self.clock.now());
        self.store.read(move |db| receive::next(db, &queue, now)).await
    }

    /// Waits until there may be a ready message, at most until `next`.
    async fn wait_for(&self, watch: &TopicWatch, next: Next) {
        match next {
            Next::Now => {}
            Next::Never => watch.woken().await,
            Next::At(at) => {
                let due = self.clock.sleep(at.since(self.clock.now()));
                first(pin!(watch.woken()), pin!(due)).await;
            }
        }
    }
}

fn topic(queue: &QueueName) -> Topic {
    Topic::new("queue", queue.as_str())
}

/// Checks the limit that SQS also has, so that a batch that works here works in the cloud.
fn within_limit(count: usize) -> Result<(), Fault> {
    if count > MESSAGES_PER_CALL_MAX {
        return Err(Fault::Denied(format!(
            "{count} messages in one call; at most {MESSAGES_PER_CALL_MAX} are allowed"
        )));
    }
    Ok(())
}

impl<C: Clock> Queues for SqliteQueues<C> {
    async fn ensure(&self, spec: &QueueSpec) -> Result<(), Fault> {
        let spec = spec.clone();
        self.store.write(move |writing| specs::ensure(writing.db, &spec)).await.plain()
    }

    async fn remove(&self, queue: &QueueName) -> Result<(), Fault> {
        let queue = queue.clone();
        self.store.write(move |writing| specs::remove(writing, &queue)).await.plain()
    }

    async fn send(
        &self,
        queue: &QueueName,
        messages: &[Outgoing],
    ) -> Result<Vec<Result<(), Fault>>, Fault> {
        within_limit(messages.len())?;
        let (queue, outgoing, now) = (queue.clone(), messages.to_vec(), self.clock.now());
        let sent =
            self.store.write(move |writing| messages::send(writing, &queue, outgoing, now)).await;
        match sent {
            WriteOutcome::Done(answers) => Ok(answers),
            WriteOutcome::Refused(fault) => Err(fault),
            // An error for the whole call would mean that no message was sent.
            WriteOutcome::Unknown => {
                Ok(vec![Err(WriteOutcome::<()>::unconfirmed()); messages.len()])
            }
        }
    }

    async fn receive(
        &self,
        queue: &QueueName,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<Delivery>, Fault> {
        let max = max.min(MESSAGES_PER_CALL_MAX);
        // Register before the first look: every later send then wakes this receiver.
        let watch = match wait {
            Duration::ZERO => None,
            _ => Some(
                self.listener
                    .watch(topic(queue))
                    .map_err(|error| Fault::Unavailable(error.to_string()))?,
            ),
        };
        let mut end = pin!(self.clock.sleep(wait));
        loop {
            let next = self.next(queue).await?;
            if next == Next::Now {
                let taken = self.take(queue, max).await?;
                if !taken.is_empty() || watch.is_none() || max == 0 {
                    return Ok(taken);
                }
                // Another receiver was faster, or the ready messages were expired or dead letters.
                continue;
            }
            let Some(watch) = &watch else { return Ok(Vec::new()) };
            if first(pin!(self.wait_for(watch, next)), end.as_mut()).await == First::Right {
                return Ok(Vec::new());
            }
        }
    }

    async fn delete(&self, queue: &QueueName, receipts: &[Receipt]) -> Result<(), Fault> {
        within_limit(receipts.len())?;
        let (queue, receipts) = (queue.clone(), receipts.to_vec());
        self.store.write(move |writing| messages::delete(writing, &queue, &receipts)).await.plain()
    }

    async fn defer(
        &self,
        queue: &QueueName,
        receipt: &Receipt,
        hidden: Duration,
    ) -> Result<(), Fault> {
        let (queue, receipt) = (queue.clone(), receipt.clone());
        let visible_at = self.clock.now().after(hidden);
        self.store
            .write(move |writing| messages::defer(writing, &queue, &receipt, visible_at))
            .await
            .plain()
    }

    async fn depth(&self, queue: &QueueName) -> Result<Depth, Fault> {
        let (queue, now) = (queue.clone(), self.clock.now());
        self.store.read(move |db| messages::depth(db, &queue, now)).await
    }
}

#[cfg(test)]
mod tests;
