//! Batches: cloud calls that workers of one process make for one machine each are merged into one.
//!
//! A caller joins the open batch. Its first caller waits a moment for others and makes the call,
//! the others wait for the answer, which is never older than their question. If the first caller is
//! dropped, the next one makes the call, perhaps again, so only idempotent calls may be batched.
//!
//! Not here: the calls ([`crate::pace`]), stopping (each stop order has its own fence), or what
//! follows from an answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bullpen_core::ids::InstanceId;
use bullpen_core::limits::IDS_PER_CALL_MAX;
use bullpen_core::ports::{Clock, Fault, Machine, Ports, StartOutcome, Unreadable};
use tokio::sync::{Notify, OnceCell};

use crate::Stack;

/// The batches of one process, one batcher for each kind of call.
#[derive(Debug, Default)]
pub(crate) struct Batches {
    /// Calls that start machines.
    pub(crate) starts: Batcher<StartOutcome>,
    /// Calls that terminate machines.
    pub(crate) terminates: Batcher<()>,
    /// Calls that describe machines.
    pub(crate) describes: Batcher<Result<Machine, Unreadable>>,
}

/// The batches of one kind of call. `A` is the answer for one machine.
#[derive(Debug)]
pub(crate) struct Batcher<A> {
    /// The batch that callers join now.
    open: Mutex<Option<Arc<Batch<A>>>>,
}

impl<A> Default for Batcher<A> {
    fn default() -> Self {
        Self { open: Mutex::default() }
    }
}

/// What one call answered, by machine. A machine that the answer left out is absent.
pub(crate) type Answers<A> = BTreeMap<InstanceId, A>;

/// The machines of one call.
#[derive(Debug)]
struct Batch<A> {
    /// When it was opened, on this process's monotonic clock.
    opened: Duration,
    /// The machine of each caller that waits; two callers may ask for the same one.
    ids: Mutex<Vec<InstanceId>>,
    joined: Notify,
    /// The answer of the call, for all callers.
    answers: OnceCell<Result<Answers<A>, Fault>>,
}

impl<A> Batch<A> {
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

    /// Waits until another caller joins; false if none does in time, or if the batch was open for
    /// long enough.
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

/// One caller's place in a batch. A caller that stops waiting takes its machine out of the batch,
/// unless the call is already under way.
struct Place<A> {
    batch: Arc<Batch<A>>,
    id: InstanceId,
}

impl<A> Drop for Place<A> {
    fn drop(&mut self) {
        let mut ids = self.batch.ids();
        if let Some(own) = ids.iter().position(|id| *id == self.id) {
            ids.swap_remove(own);
        }
    }
}

impl<A: Clone> Batcher<A> {
    /// Makes `call` for this machine together with the machines of other callers. None if the
    /// answer leaves this machine out.
    pub(crate) async fn ask<P: Ports>(
        &self,
        stack: &Stack<P>,
        id: &InstanceId,
        call: impl AsyncFn(&[InstanceId]) -> Result<Answers<A>, Fault>,
    ) -> Result<Option<A>, Fault> {
        let place = self.join(id, stack.ports.clock().monotonic());
        // The first caller makes the call. If it is dropped meanwhile, the next caller makes it.
        let send = async || {
            self.fill(stack, &place.batch).await;
            call(&self.close(&place.batch)).await
        };
        let answers = place.batch.answers.get_or_init(send).await;
        Ok(answers.as_ref().map_err(Clone::clone)?.get(id).cloned())
    }

    fn open(&self) -> MutexGuard<'_, Option<Arc<Batch<A>>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn join(&self, id: &InstanceId, now: Duration) -> Place<A> {
        let mut open = self.open();
        // A batch that all its callers have left may be old, so a new one is opened.
        let known = open.take().filter(|batch| !batch.ids().is_empty());
        let batch = known.unwrap_or_else(|| Arc::new(Batch::new(now)));
        batch.ids().push(id.clone());
        batch.joined.notify_one();
        *open = (!batch.is_full()).then(|| Arc::clone(&batch));
        Place { batch, id: id.clone() }
    }

    /// Waits for more callers, until the batch is full or its time is up.
    async fn fill<P: Ports>(&self, stack: &Stack<P>, batch: &Arc<Batch<A>>) {
        while self.is_open(batch) && batch.is_joined(stack).await {}
    }

    fn is_open(&self, batch: &Arc<Batch<A>>) -> bool {
        self.open().as_ref().is_some_and(|open| Arc::ptr_eq(open, batch))
    }

    /// Closes the batch to further callers and returns its machines.
    fn close(&self, batch: &Arc<Batch<A>>) -> Vec<InstanceId> {
        let mut open = self.open();
        if open.as_ref().is_some_and(|open| Arc::ptr_eq(open, batch)) {
            *open = None;
        }
        let ids: BTreeSet<InstanceId> = batch.ids().iter().cloned().collect();
        ids.into_iter().collect()
    }
}
