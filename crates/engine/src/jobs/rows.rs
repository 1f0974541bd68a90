//! Rows: read a row, decide, write over the revision that was read, until one write wins. A process
//! that knows the row begins with what it knows ([`Known`]).
//!
//! After a lost race or a lost answer the loop reloads the row and re-runs the decision on it. That
//! is safe because events carry their own authority and facts join.
//!
//! Not here: what the row allows (`core::job`).

use bullpen_core::ids::{JobId, Revision};
use bullpen_core::job::{Job, JobEvent, JobRefusal};
use bullpen_core::ports::{Fault, ItemKind, JobRow, Ledger, Ports, Unreadable, Written};
use bullpen_core::time::Timestamp;

use crate::Stack;
use crate::retry::{Backoff, retry_until};

/// A job, and the revision of its row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenRow {
    pub(crate) job: Job,
    pub(super) revision: Revision,
    pub(super) next_look: Option<Timestamp>,
}

impl SeenRow {
    /// Whether the row's next look is due.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        self.next_look.is_some_and(|at| now >= at)
    }

    /// Decodes a stored row.
    pub(crate) fn of(row: &JobRow) -> Result<Self, Unreadable> {
        let job = Job::decode(&row.body)
            .map_err(|error| Unreadable::of(ItemKind::Row, &row.job, &row.body, error))?;
        Ok(Self { job, revision: row.revision, next_look: row.next_look })
    }
}

/// The outcome of a change to a row.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RowChange<W> {
    /// The ledger stored this row.
    To(SeenRow),
    /// Nothing was stored, for this reason.
    Not(W),
}

/// Reads one job's row, retrying until `until`.
pub(super) async fn load<P: Ports>(
    stack: &Stack<P>,
    job: &JobId,
    until: Timestamp,
) -> Result<Option<SeenRow>, Fault> {
    let row = retry_until(stack, until, || stack.ports.ledger().row(job)).await?;
    Ok(row.as_ref().map(SeenRow::of).transpose()?)
}

/// What a process knows of a row before it changes it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Known<'r> {
    /// Nothing.
    Nothing,
    /// There is probably no such row yet.
    IsAbsent,
    /// The row was this when the process last read or wrote it.
    Was(&'r SeenRow),
}

/// Stores the job that `change` returns for the stored row.
pub(super) async fn change<P: Ports, W>(
    stack: &Stack<P>,
    id: &JobId,
    until: Timestamp,
    change: impl FnMut(Option<&SeenRow>) -> Result<Job, W>,
) -> Result<RowChange<W>, Fault> {
    change_from(stack, (id, Known::Nothing), until, change).await
}

/// Stores the job that `change` returns for the row as it is known, if it is still that, or else for
/// the stored row. A decision that refuses is believed only of a row that was read now.
pub(super) async fn change_from<P: Ports, W>(
    stack: &Stack<P>,
    (id, mut known): (&JobId, Known<'_>),
    until: Timestamp,
    mut change: impl FnMut(Option<&SeenRow>) -> Result<Job, W>,
) -> Result<RowChange<W>, Fault> {
    let mut backoff = Backoff::default();
    loop {
        let was_known = !matches!(known, Known::Nothing);
        let stored = match std::mem::replace(&mut known, Known::Nothing) {
            Known::Was(seen) => Some(seen.clone()),
            Known::IsAbsent => None,
            Known::Nothing => load(stack, id, until).await?,
        };
        let job = match change(stored.as_ref()) {
            Ok(job) => job,
            Err(_) if was_known => continue,
            Err(why) => return Ok(RowChange::Not(why)),
        };
        let seen = stored.map(|seen| seen.revision);
        let row = job.row(seen, stack.now(), &stack.limits);
        match stack.ports.ledger().write_row(seen, &row).await {
            Ok(Written::Won(row)) => {
                stack.note_row_stored();
                return Ok(RowChange::To(SeenRow::of(&row)?));
            }
            Ok(Written::Lost) if was_known => continue,
            // Another process wrote meanwhile, or our own write landed: read again.
            Ok(Written::Lost | Written::Unknown) => {}
            Err(fault) if fault.is_transient() => {}
            Err(fault) => return Err(fault),
        }
        backoff.wait_until(stack, until).await?;
    }
}

/// Why an event was not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NotMoved {
    /// There is no such row.
    Absent,
    /// The row's state does not allow the event.
    Refused(Box<Job>, JobRefusal),
}

/// Applies an event to a job's current row.
pub(super) async fn apply<P: Ports>(
    stack: &Stack<P>,
    id: &JobId,
    event: &JobEvent,
    until: Timestamp,
) -> Result<RowChange<NotMoved>, Fault> {
    change_from(stack, (id, Known::Nothing), until, |stored| {
        on(stored, std::slice::from_ref(event))
    })
    .await
}

/// Applies events in one write to a row as it was seen before, or as it is now if it has changed.
pub(super) async fn apply_to<P: Ports>(
    stack: &Stack<P>,
    seen: &SeenRow,
    events: &[JobEvent],
    until: Timestamp,
) -> Result<RowChange<NotMoved>, Fault> {
    change_from(stack, (&seen.job.id, Known::Was(seen)), until, |stored| on(stored, events)).await
}

fn on(stored: Option<&SeenRow>, events: &[JobEvent]) -> Result<Job, NotMoved> {
    let mut job = stored.ok_or(NotMoved::Absent)?.job.clone();
    for event in events {
        job = job.on(event).map_err(|refusal| {
            tracing::debug!(job_id = %job.id, event = event.name(), %refusal, "row refused event");
            NotMoved::Refused(Box::new(job), refusal)
        })?;
    }
    Ok(job)
}

/// Writes a row unchanged, which sets its next look and gives it a new revision. Leaves alone a row
/// that another process wrote meanwhile.
pub(super) async fn touch<P: Ports>(
    stack: &Stack<P>,
    seen: &SeenRow,
    until: Timestamp,
) -> Result<(), Fault> {
    let touched = change(stack, &seen.job.id, until, |stored| match stored {
        Some(stored) if stored.revision == seen.revision => Ok(stored.job.clone()),
        _ => Err(()),
    });
    let (RowChange::To(_) | RowChange::Not(())) = touched.await?;
    Ok(())
}
