//! Rows that make this process panic. After `limits.set_aside_after` panics it sets the row aside: it
//! serves the row no more, notes that in the ledger for people, and ends the job at its deadline. A
//! fact that changes the job's phase, or another process, tries the row again.
//!
//! Not here: catching a panic ([`crate::defects`]).

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bullpen_core::ids::{JobId, Revision};
use bullpen_core::job::aside::{COLLECTION, SetAside};
use bullpen_core::ports::{Document, Fault, ItemKind, Ledger, Ports, Unreadable, Written};
use bullpen_core::sabotage;

use super::{Service, ServiceEvent};
use crate::Stack;
use crate::defects::Defect;

/// How many rows a process remembers; beyond that it forgets all, and may panic for one again.
const REMEMBERED_MAX: usize = 10_000;

/// The panics of one process, by row.
#[derive(Debug, Default)]
pub(super) struct PanicCounts(Mutex<BTreeMap<JobId, u32>>);

impl PanicCounts {
    fn counts(&self) -> MutexGuard<'_, BTreeMap<JobId, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, job: &JobId) -> u32 {
        let mut counts = self.counts();
        if counts.len() >= REMEMBERED_MAX && !counts.contains_key(job) {
            counts.clear();
        }
        let count = counts.entry(job.clone()).or_default();
        *count = count.saturating_add(1);
        *count
    }
}

impl<P: Ports, J> Service<'_, P, J> {
    /// Whether this process serves the row no more.
    pub(super) fn is_set_aside(&self, job: &JobId) -> bool {
        let most = self.stack.limits.set_aside_after;
        let is_over = self.panics.counts().get(job).is_some_and(|count| *count >= most);
        is_over && !sabotage!("poison-is-never-set-aside")
    }

    /// Lets this process serve the row again.
    pub(super) fn forgive(&self, job: &JobId) {
        self.panics.counts().remove(job);
    }

    /// Does one thing for a row. A panic is a fault of this row, and counts.
    pub(super) fn attempt<T>(
        &self,
        job: &JobId,
        work: impl Future<Output = Result<T, Fault>>,
    ) -> impl Future<Output = Result<T, Fault>> {
        let work = self.stack.caught("row", job, work);
        async move {
            match work.await {
                Ok(done) => done,
                Err(defect) => {
                    let count = self.panics.add(job);
                    if count == self.stack.limits.set_aside_after {
                        Box::pin(self.note_set_aside(job, &defect, count)).await;
                    }
                    Err(defect.into())
                }
            }
        }
    }

    async fn note_set_aside(&self, job: &JobId, defect: &Defect, times: u32) {
        tracing::error!(job_id = %job, times, %defect, "row set aside");
        (self.watch)(&ServiceEvent::SetAside);
        let note = SetAside { what: defect.to_string(), times, at: self.stack.now() };
        // Only people read the note.
        if let Err(fault) = store(self.stack, job, &note).await {
            tracing::info!(job_id = %job, %fault, "could not note that row is set aside");
        }
    }
}

/// Stores the note over an earlier one; tries once.
async fn store<P: Ports>(stack: &Stack<P>, job: &JobId, note: &SetAside) -> Result<(), Fault> {
    let ledger = stack.ports.ledger();
    let known = ledger.document(COLLECTION, job.as_str()).await?.map(|known| known.revision);
    let document = Document {
        collection: COLLECTION.to_owned(),
        name: job.to_string(),
        revision: Revision(0),
        body: note.encode(),
        forget_at: Some(stack.now().after(stack.limits.job_row_ttl)),
    };
    match ledger.write_document(known, &document).await? {
        Written::Won(_) => Ok(()),
        Written::Lost | Written::Unknown => Err(Fault::unavailable("the note may be missing")),
    }
}

/// The rows that a process has set aside, with the note about each.
pub async fn all<P: Ports>(stack: &Stack<P>) -> Result<Vec<(JobId, SetAside)>, Fault> {
    let listed = stack.readable(stack.ports.ledger().documents(COLLECTION).await?);
    let read = |document: &Document| Some((JobId::new(&document.name), decoded(stack, document)?));
    Ok(listed.iter().filter_map(read).collect())
}

/// The note about one row.
pub async fn note_of<P: Ports>(stack: &Stack<P>, job: &JobId) -> Result<Option<SetAside>, Fault> {
    let stored = stack.ports.ledger().document(COLLECTION, job.as_str()).await?;
    Ok(stored.and_then(|stored| decoded(stack, &stored)))
}

fn decoded<P: Ports>(stack: &Stack<P>, document: &Document) -> Option<SetAside> {
    let Document { collection, name, body, .. } = document;
    let key = format_args!("{collection}/{name}");
    SetAside::decode(body)
        .map_err(|error| Unreadable::of(ItemKind::Document, key, body, error))
        .inspect_err(|bad| stack.unreadable_items.note(bad))
        .ok()
}
