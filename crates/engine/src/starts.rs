//! Starts: machines that several workers of one process want started go together.
//!
//! Whoever wants a machine started joins the batch that is open. The first of a batch waits a moment
//! for company and makes the call; the others wait for its answer. If the first goes away, the next
//! of them makes the call, perhaps a second time: starting what runs does nothing.
//!
//! Not here: what follows from an answer (`core::claim`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bullpen_core::ids::InstanceId;
use bullpen_core::limits::IDS_PER_CALL_MAX;
use bullpen_core::ports::{Clock, Fault, Ports, Started};
use tokio::sync::{Notify, OnceCell};

use crate::Stack;

/// The starts of one process.
#[derive(Debug, Default)]
pub struct Starts {
    /// The batch that can be joined.
    open: Mutex<Option<Arc<Batch>>>,
}

/// Machines that are started with one call.
#[derive(Debug)]
struct Batch {
    /// When it was opened, on this process's monotonic clock.
    opened: Duration,
    /// Whoever waits for it; a machine may be wanted twice.
    ids: Mutex<Vec<InstanceId>>,
    joined: Notify,
    /// What the call came to, for all of them.
    answers: OnceCell<Result<BTreeMap<InstanceId, Started>, Fault>>,
}

impl Batch {
    fn new(opened: Duration) -> Self {
        let (ids, joined, answers) = (Mutex::default(), Notify::new(), OnceCell::new());
        Self { opened, ids, joined, answers }
    }

    fn ids(&self) -> MutexGuard<'_, Vec<InstanceId>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_full(&self) -> bool {
        self.ids().len() >= IDS_PER_CALL_MAX
    }

    /// Waits until somebody joins; false if nobody does, or it has been open for long enough.
    async fn is_joined<P: Ports>(&self, stack: &Stack<P>) -> bool {
        let (clock, limits) = (stack.ports.clock(), &stack.limits);
        let left = (self.opened + limits.coalesce_max).saturating_sub(clock.monotonic());
        tokio::select! {
            biased;
            () = clock.sleep(limits.coalesce_idle.min(left)) => false,
            () = self.joined.notified() => true,
        }
    }
}

/// A place in a batch. Whoever stops waiting leaves it: a machine that nobody wants any more is not
/// started, if it can still be helped.
struct Seat {
    batch: Arc<Batch>,
    id: InstanceId,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut ids = self.batch.ids();
        if let Some(own) = ids.iter().position(|id| *id == self.id) {
            ids.swap_remove(own);
        }
    }
}

impl Starts {
    /// Starts a machine, with whatever others are to be started at the same time.
    pub async fn start<P: Ports>(
        &self,
        stack: &Stack<P>,
        id: &InstanceId,
    ) -> Result<Started, Fault> {
        let seat = self.join(id, stack.ports.clock().monotonic());
        // Whoever asks first makes the call. If it goes away meanwhile, the next one does.
        let answers = seat.batch.answers.get_or_init(|| self.send(stack, &seat.batch)).await;
        let answers = answers.as_ref().map_err(Clone::clone)?;
        Ok(answers.get(id).cloned().unwrap_or(Started::Failed(Fault::NotFound)))
    }

    fn open(&self) -> MutexGuard<'_, Option<Arc<Batch>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn join(&self, id: &InstanceId, now: Duration) -> Seat {
        let mut open = self.open();
        // One that everybody has left may have been open for long.
        let known = open.take().filter(|batch| !batch.ids().is_empty());
        let batch = known.unwrap_or_else(|| Arc::new(Batch::new(now)));
        batch.ids().push(id.clone());
        batch.joined.notify_one();
        *open = (!batch.is_full()).then(|| Arc::clone(&batch));
        Seat { batch, id: id.clone() }
    }

    async fn send<P: Ports>(
        &self,
        stack: &Stack<P>,
        batch: &Arc<Batch>,
    ) -> Result<BTreeMap<InstanceId, Started>, Fault> {
        while self.is_open(batch) && batch.is_joined(stack).await {}
        let ids = self.close(batch);
        let answers = stack.fleet().start(&ids).await?;
        Ok(answers.into_iter().collect())
    }

    fn is_open(&self, batch: &Arc<Batch>) -> bool {
        self.open().as_ref().is_some_and(|open| Arc::ptr_eq(open, batch))
    }

    /// Nobody joins from now on; returns whoever did.
    fn close(&self, batch: &Arc<Batch>) -> Vec<InstanceId> {
        let mut open = self.open();
        if open.as_ref().is_some_and(|open| Arc::ptr_eq(open, batch)) {
            *open = None;
        }
        let ids: BTreeSet<InstanceId> = batch.ids().iter().cloned().collect();
        ids.into_iter().collect()
    }
}
