//! Rows at which this process fails again and again. After `limits.set_aside_after` failures it sets the
//! row aside: it tries the row only every `limits.set_aside_for`, notes that in the ledger for people, and
//! ends the job at its deadline. A fact that changes the job's phase, or another process, tries the row
//! at once.
//!
//! Not here: which failures count (`core::job::aside`), or catching a panic ([`crate::defects`]).

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bullpen_core::ids::{JobId, Revision};
use bullpen_core::job::aside::{COLLECTION, RowFailure, RowFailures, SetAside};
use bullpen_core::ports::{Clock, Document, Fault, ItemKind, Ledger, Ports, Unreadable, Written};

use super::{Service, ServiceEvent};
use crate::Stack;

/// How many rows a process remembers; beyond that it forgets all, and may fail at one again.
const REMEMBERED_MAX: usize = 10_000;
/// For how many intervals between two tries a note is kept: the row may be tried a little late.
const NOTE_KEPT: u32 = 2;

/// The failures of one process, by row.
#[derive(Debug, Default)]
pub(super) struct FailedRows(Mutex<BTreeMap<JobId, RowFailures>>);

impl FailedRows {
    fn rows(&self) -> MutexGuard<'_, BTreeMap<JobId, RowFailures>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: Ports, J> Service<'_, P, J> {
    /// Whether this process leaves the row alone now.
    pub(super) fn is_set_aside(&self, job: &JobId) -> bool {
        let now = self.stack.ports.clock().monotonic();
        let rows = self.failed_rows.rows();
        rows.get(job).is_some_and(|failures| failures.is_set_aside(now, &self.stack.limits))
    }

    /// Lets this process serve the row again, because it has changed or was served.
    pub(super) fn forgive(&self, job: &JobId) {
        self.failed_rows.rows().remove(job);
    }

    /// Serves a row; a success forgives earlier failures.
    pub(super) async fn serve_row<T>(
        &self,
        job: &JobId,
        work: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let served = self.attempt(job, work).await?;
        self.forgive(job);
        Ok(served)
    }

    /// Does one thing for a row. A panic is a fault of this row.
    pub(super) fn attempt<T>(
        &self,
        job: &JobId,
        work: impl Future<Output = Result<T, Fault>>,
    ) -> impl Future<Output = Result<T, Fault>> {
        let work = self.stack.caught("row", job, work);
        async move {
            match work.await {
                Ok(Ok(done)) => Ok(done),
                Ok(Err(fault)) => {
                    if let Some(failure) = RowFailure::of(&fault) {
                        self.note_failure(job, failure, &fault.to_string()).await;
                    }
                    Err(fault)
                }
                Err(defect) => {
                    self.note_failure(job, RowFailure::Panic, &defect.to_string()).await;
                    Err(defect.into())
                }
            }
        }
    }

    async fn note_failure(&self, job: &JobId, failure: RowFailure, what: &str) {
        let (stack, now) = (self.stack, self.stack.ports.clock().monotonic());
        let noted = {
            let mut rows = self.failed_rows.rows();
            if rows.len() >= REMEMBERED_MAX && !rows.contains_key(job) {
                rows.clear();
            }
            let failures = rows.entry(job.clone()).or_default();
            failures.note(failure, stack.rows_stored(), now, &stack.limits)
        };
        if let Some(times) = noted {
            Box::pin(self.note_set_aside(job, what, times)).await;
        }
    }

    async fn note_set_aside(&self, job: &JobId, what: &str, times: u32) {
        tracing::error!(job_id = %job, times, what, "row set aside");
        if times == self.stack.limits.set_aside_after {
            (self.watch)(&ServiceEvent::SetAside);
        }
        let note = SetAside { what: what.to_owned(), times, at: self.stack.now() };
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
        forget_at: Some(stack.now().after(stack.limits.set_aside_for * NOTE_KEPT)),
    };
    match ledger.write_document(known, &document).await? {
        Written::Won(_) => Ok(()),
        Written::Lost | Written::Unknown => Err(Fault::unavailable("the note may be missing")),
    }
}

/// The rows that a process leaves alone now, with the note about each.
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
    let Document { collection, name, body, forget_at, .. } = document;
    if forget_at.is_some_and(|at| at <= stack.now()) {
        // The row was served since, or no process tries it.
        return None;
    }
    let key = format_args!("{collection}/{name}");
    SetAside::decode(body)
        .map_err(|error| Unreadable::of(ItemKind::Document, key, body, error))
        .inspect_err(|bad| stack.unreadable_items.note(bad))
        .ok()
}
