//! Batches: what several workers of one process ask of the cloud, each for one machine, goes together.
//!
//! Whoever asks joins the batch that is open. The first of a batch waits a moment for company and makes
//! the call; the others wait for its answer. Nobody has an answer from a call that was made before it
//! asked. If the first goes away, the next of them makes the call, perhaps a second time: what goes
//! through here does nothing where it is done already.
//!
//! Not here: the calls ([`crate::pace`]), stopping (an order has its own fence, and orders come
//! together), or what follows from an answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bullpen_core::ids::InstanceId;
use bullpen_core::limits::IDS_PER_CALL_MAX;
use bullpen_core::ports::{Clock, Fault, Machine, Ports, StartOutcome};
use tokio::sync::{Notify, OnceCell};

use crate::Stack;

/// The batches of one process: each kind of call has its own.
#[derive(Debug, Default)]
pub(crate) struct Batches {
    /// Starting.
    pub(crate) starts: Batcher<StartOutcome>,
    /// Ending.
    pub(crate) ends: Batcher<()>,
    /// Describing.
    pub(crate) looks: Batcher<Machine>,
}

/// One kind of call. `A` is what one machine's answer is.
#[derive(Debug)]
pub(crate) struct Batcher<A> {
    /// The batch that can be joined.
    open: Mutex<Option<Arc<Batch<A>>>>,
}

impl<A> Default for Batcher<A> {
    fn default() -> Self {
        Self { open: Mutex::default() }
    }
}

/// What one call answered of each machine; one that it said nothing of is absent.
pub(crate) type Answers<A> = BTreeMap<InstanceId, A>;

/// Machines that one call is about.
#[derive(Debug)]
struct Batch<A> {
    /// When it was opened, on this process's monotonic clock.
    opened: Duration,
    /// Whoever waits for it; a machine may be wanted twice.
    ids: Mutex<Vec<InstanceId>>,
    joined: Notify,
    /// What the call came to, for all of them.
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

/// A place in a batch. Whoever stops waiting leaves it: a machine that nobody asks about any more is
/// left out, if it can still be helped.
struct Seat<A> {
    batch: Arc<Batch<A>>,
    id: InstanceId,
}

impl<A> Drop for Seat<A> {
    fn drop(&mut self) {
        let mut ids = self.batch.ids();
        if let Some(own) = ids.iter().position(|id| *id == self.id) {
            ids.swap_remove(own);
        }
    }
}

impl<A: Clone> Batcher<A> {
    /// Asks about a machine, with whatever others are asked about at the same time; `call` asks about
    /// all of them. None if the answer has nothing of this one.
    pub(crate) async fn ask<P: Ports>(
        &self,
        stack: &Stack<P>,
        id: &InstanceId,
        call: impl AsyncFn(&[InstanceId]) -> Result<Answers<A>, Fault>,
    ) -> Result<Option<A>, Fault> {
        let seat = self.join(id, stack.ports.clock().monotonic());
        // Whoever asks first makes the call. If it goes away meanwhile, the next one does.
        let send = async || {
            self.fill(stack, &seat.batch).await;
            call(&self.close(&seat.batch)).await
        };
        let answers = seat.batch.answers.get_or_init(send).await;
        Ok(answers.as_ref().map_err(Clone::clone)?.get(id).cloned())
    }

    fn open(&self) -> MutexGuard<'_, Option<Arc<Batch<A>>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn join(&self, id: &InstanceId, now: Duration) -> Seat<A> {
        let mut open = self.open();
        // One that everybody has left may have been open for long.
        let known = open.take().filter(|batch| !batch.ids().is_empty());
        let batch = known.unwrap_or_else(|| Arc::new(Batch::new(now)));
        batch.ids().push(id.clone());
        batch.joined.notify_one();
        *open = (!batch.is_full()).then(|| Arc::clone(&batch));
        Seat { batch, id: id.clone() }
    }

    /// Waits for company.
    async fn fill<P: Ports>(&self, stack: &Stack<P>, batch: &Arc<Batch<A>>) {
        while self.is_open(batch) && batch.is_joined(stack).await {}
    }

    fn is_open(&self, batch: &Arc<Batch<A>>) -> bool {
        self.open().as_ref().is_some_and(|open| Arc::ptr_eq(open, batch))
    }

    /// Nobody joins from now on; returns whoever did.
    fn close(&self, batch: &Arc<Batch<A>>) -> Vec<InstanceId> {
        let mut open = self.open();
        if open.as_ref().is_some_and(|open| Arc::ptr_eq(open, batch)) {
            *open = None;
        }
        let ids: BTreeSet<InstanceId> = batch.ids().iter().cloned().collect();
        ids.into_iter().collect()
    }
}
