//! Sweeps: listings of all items, page by page, that may answer from the past.
//!
//! A sweep as of `then` shows the present, with each item that changed since `then` as it was.
//!
//! Not here: drawing `then` (the handle does).

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bullpen_core::creation::Intent;
use bullpen_core::ids::{InstanceId, IntentId, JobId};
use bullpen_core::instance::Record;
use bullpen_core::ports::{Fault, JobRow, Page};
use bullpen_core::time::Timestamp;

use super::state::LedgerState;
use crate::model::Past;

/// Items on a page: few, so that a caller that reads only the first page fails.
const PAGE: usize = 7;

/// The start of a page: after this time, and at the same time after this id.
pub(super) type PageStart<K> = (Timestamp, K);

pub(super) fn due_cursor(after: Option<&str>) -> Result<Option<PageStart<InstanceId>>, Fault> {
    place(after, |id| InstanceId::new(id))
}

pub(super) fn rows_due_cursor(after: Option<&str>) -> Result<Option<PageStart<JobId>>, Fault> {
    place(after, |job| JobId::new(job))
}

fn place<K>(
    after: Option<&str>,
    id: impl FnOnce(&str) -> K,
) -> Result<Option<PageStart<K>>, Fault> {
    let Some(text) = after else { return Ok(None) };
    let parsed = text.split_once('/').and_then(|(millis, rest)| {
        let at = Timestamp::from_millis(millis.parse().ok()?);
        Some((at, id(rest)))
    });
    parsed.map(Some).ok_or_else(|| Fault::Unreadable(format!("the cursor {text:?}")))
}

fn cursor<K: std::fmt::Display>((at, id): &(Timestamp, K)) -> String {
    format!("{}/{id}", at.as_millis())
}

/// The first page of present and past items, in the order of their keys.
pub(super) fn page<K: Ord, T>(
    present: impl IntoIterator<Item = (K, T)>,
    past: impl IntoIterator<Item = (K, T)>,
    cursor: impl FnOnce(&K) -> String,
) -> Page<T> {
    let mut found: Vec<_> = present.into_iter().take(PAGE + 1).chain(past).collect();
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    let more = found.len() > PAGE;
    found.truncate(PAGE);
    let next = found.last().filter(|_| more).map(|(key, _)| cursor(key));
    let items: Vec<T> = found.into_iter().map(|(_, item)| item).collect();
    Page::of(items.into(), next)
}

/// The items that changed since `then`, as they were at `then`.
fn as_it_was<K: Ord + Clone, T>(
    past: &Past<(K, Option<Arc<T>>)>,
    then: Timestamp,
) -> BTreeMap<K, Option<Arc<T>>> {
    let mut was = BTreeMap::new();
    for (key, before) in past.since(then) {
        was.entry(key.clone()).or_insert_with(|| before.clone());
    }
    was
}

pub(super) fn beyond<K: Clone>(after: Option<&K>) -> (Bound<K>, Bound<K>) {
    (after.cloned().map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded)
}

impl LedgerState {
    /// Live records whose deadline is at or before `before`, earliest first.
    pub fn due(
        &self,
        then: Timestamp,
        before: Timestamp,
        after: Option<&PageStart<InstanceId>>,
    ) -> Page<Record> {
        let was = as_it_was(&self.past, then);
        let present = self
            .by_deadline
            .range(beyond(after))
            .take_while(|(deadline, _)| *deadline <= before)
            .filter(|(_, id)| !was.contains_key(id))
            .filter_map(|place| Some((place.clone(), self.read(&place.1)?)));
        let past = was
            .values()
            .flatten()
            .filter(|record| record.state.is_live() && record.state.look_at() <= before)
            .map(|record| ((record.state.look_at(), record.id.clone()), Record::clone(record)))
            .filter(|(place, _)| after.is_none_or(|after| place > after));
        page(present, past, cursor)
    }

    /// All live records.
    pub fn live(&self, then: Timestamp, after: Option<&InstanceId>) -> Page<Record> {
        let was = as_it_was(&self.past, then);
        let present = self
            .live_records()
            .range(beyond(after))
            .filter(|(id, _)| !was.contains_key(id))
            .map(|(id, record)| (id.clone(), Record::clone(record)));
        let past = was
            .values()
            .flatten()
            .filter(|record| record.state.is_live())
            .filter(|record| after.is_none_or(|after| record.id > *after))
            .map(|record| (record.id.clone(), Record::clone(record)));
        page(present, past, ToString::to_string)
    }

    /// The intents with an outstanding reservation.
    pub fn open_intents(&self, then: Timestamp, after: Option<&IntentId>) -> Page<Intent> {
        let was = as_it_was(&self.past_intents, then);
        let present = self
            .open_intents
            .range(beyond(after))
            .filter(|id| !was.contains_key(id))
            .filter_map(|id| Some((id.clone(), self.intent(id)?)));
        let past = was
            .values()
            .flatten()
            .filter(|intent| intent.outstanding > 0)
            .filter(|intent| after.is_none_or(|after| intent.id > *after))
            .map(|intent| (intent.id.clone(), Intent::clone(intent)));
        page(present, past, ToString::to_string)
    }

    /// Rows whose next look is at or before `before`, earliest first.
    pub fn rows_due(
        &self,
        then: Timestamp,
        before: Timestamp,
        after: Option<&PageStart<JobId>>,
    ) -> Page<JobRow> {
        let was = as_it_was(&self.rows.past, then);
        let present = self
            .rows
            .by_look
            .range(beyond(after))
            .take_while(|(look, _)| *look <= before)
            .filter(|(_, job)| !was.contains_key(job))
            .filter_map(|place| Some((place.clone(), self.row(&place.1)?)));
        let past = was
            .values()
            .flatten()
            .filter_map(|row| Some(((row.next_look?, row.job.clone()), JobRow::clone(row))))
            .filter(|(place, _)| place.0 <= before)
            .filter(|(place, _)| after.is_none_or(|after| place > after));
        page(present, past, cursor)
    }
}
