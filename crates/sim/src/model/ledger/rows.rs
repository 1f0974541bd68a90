//! Job rows and their listings.
//!
//! Not here: reading a row's document; only the engine reads it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bullpen_core::ids::{JobId, Repository, Revision};
use bullpen_core::ports::{JobRow, Page, WaitingAt, Written};
use bullpen_core::time::Timestamp;

use super::state::{LedgerState, LedgerWrite};
use super::sweeps::{beyond, page};
use crate::model::Past;

#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) stored: BTreeMap<JobId, Arc<JobRow>>,
    waiting: BTreeMap<WaitingAt, BTreeSet<JobId>>,
    pub(super) by_look: BTreeSet<(Timestamp, JobId)>,
    forgettable: BTreeSet<(Timestamp, JobId)>,
    pub(super) past: Past<(JobId, Option<Arc<JobRow>>)>,
}

impl Rows {
    pub(super) fn is_at(&self, job: &JobId, seen: Option<Revision>) -> bool {
        self.stored.get(job).map(|row| row.revision) == seen
    }

    fn unlist(&mut self, row: &JobRow) {
        let job = &row.job;
        if let Some(at) = &row.waiting
            && let Some(listed) = self.waiting.get_mut(at)
        {
            listed.remove(job);
            if listed.is_empty() {
                self.waiting.remove(at);
            }
        }
        if let Some(look) = row.next_look {
            self.by_look.remove(&(look, job.clone()));
        }
        self.forgettable.remove(&(row.forget_at, job.clone()));
    }

    fn list(&mut self, row: &JobRow) {
        let job = &row.job;
        if let Some(at) = &row.waiting {
            self.waiting.entry(at.clone()).or_default().insert(job.clone());
        }
        if let Some(look) = row.next_look {
            self.by_look.insert((look, job.clone()));
        }
        self.forgettable.insert((row.forget_at, job.clone()));
    }

    /// Forgets expired rows; runs when the next row is written.
    fn forget(&mut self, now: Timestamp) {
        while let Some((forget_at, job)) = self.forgettable.first().cloned() {
            if forget_at > now {
                return;
            }
            match self.stored.remove(&job) {
                Some(row) => self.unlist(&row),
                None => drop(self.forgettable.pop_first()),
            }
        }
    }
}

impl LedgerState {
    /// One job's row.
    pub fn row(&self, job: &JobId) -> Option<JobRow> {
        self.rows.stored.get(job).map(|row| JobRow::clone(row))
    }

    /// Stores a row unless another write came after `seen`.
    pub fn write_row(
        &mut self,
        now: Timestamp,
        seen: Option<Revision>,
        row: JobRow,
    ) -> Written<JobRow> {
        if self.rows.is_at(&row.job, seen) {
            Written::Won(self.store_row(now, row))
        } else {
            Written::Lost
        }
    }

    pub(super) fn store_row(&mut self, now: Timestamp, next: JobRow) -> JobRow {
        let job = next.job.clone();
        let before = self.rows.stored.remove(&job);
        if let Some(before) = &before {
            self.rows.unlist(before);
        }
        self.rows.forget(now);
        let revision = before.as_ref().map_or(Revision(1), |before| before.revision.next());
        let after = Arc::new(JobRow { revision, ..next });
        self.rows.list(&after);
        self.rows.stored.insert(job.clone(), Arc::clone(&after));
        self.tell(&LedgerWrite::Row { at: now, before: before.as_deref(), after: &after });
        self.rows.past.note(now, (job, before));
        JobRow::clone(&after)
    }

    /// The repositories with rows that wait in this lane (a pool or a class).
    pub fn waiting_repositories(&self, lane: &str) -> Vec<Repository> {
        let first = WaitingAt { lane: lane.to_owned(), repository: Repository::new("") };
        let from_lane = self.rows.waiting.range(first..).map(|(at, _)| at);
        from_lane.take_while(|at| at.lane == lane).map(|at| at.repository.clone()).collect()
    }

    /// The rows that wait there, in the order of their job ids.
    pub fn waiting(&self, at: &WaitingAt, after: Option<&JobId>) -> Page<JobRow> {
        let listed = self.rows.waiting.get(at).into_iter();
        let rest = listed.flat_map(|listed| listed.range(beyond(after)));
        let rows = rest.filter_map(|job| Some((job.clone(), self.row(job)?)));
        page(rows, [], ToString::to_string)
    }
}
