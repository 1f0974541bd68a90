//! Job rows, compared by revision, listed by lane and repository and by the time they are due.
//!
//! Not here: the contents of a row's body (`bullpen_core::job`).

use std::collections::BTreeSet;

use bullpen_core::ids::{JobId, Repository, Revision};
use bullpen_core::ports::{Fault, ItemKind, JobRow, Page, WaitingAt, Written};
use bullpen_core::time::Timestamp;
use futures_util::future::try_join_all;

use super::keys::{self, Kind, SHARDS};
use super::listing::{self, Freshness};
use super::write::{item_of, landed, put};
use crate::table::{Item, Stored, Table, n, s, seconds};

fn item(row: &JobRow) -> Item {
    let waiting = row.waiting.as_ref();
    item_of(
        &keys::row(&row.job),
        [
            ("v", Some(n(ItemKind::Row.version()))),
            ("rev", Some(n(row.revision))),
            ("body_doc", Some(s(&row.body))),
            ("lane_name", waiting.map(|at| s(&at.lane))),
            ("repository_name", waiting.map(|at| s(at.repository.as_str()))),
            ("next_look", row.next_look.map(|at| n(at.as_millis()))),
            ("keep_until", Some(n(row.forget_at.as_millis()))),
            ("forget_at", Some(seconds(row.forget_at))),
            ("by_place", keys::waiting(row).map(s)),
            ("by_due", row.next_look.map(|at| s(keys::timed(at, &row.job)))),
        ],
    )
}

fn decode(stored: &Stored) -> Result<JobRow, Fault> {
    let waiting = match (stored.maybe("lane_name"), stored.maybe("repository_name")) {
        (Some(lane), Some(repository)) => {
            Some(WaitingAt { lane: lane.to_owned(), repository: Repository::new(repository) })
        }
        _ => None,
    };
    Ok(JobRow {
        job: JobId::new(stored.text("sk")?),
        revision: Revision(stored.number("rev")?),
        body: stored.text("body_doc")?.to_owned(),
        waiting,
        next_look: stored.maybe_number("next_look")?.map(Timestamp::from_millis),
        forget_at: Timestamp::from_millis(stored.number("keep_until")?),
    })
}

pub(super) async fn load(table: &Table, job: &JobId) -> Result<Option<JobRow>, Fault> {
    let stored = table.get(ItemKind::Row, &keys::row(job), true).await?;
    stored.as_ref().map(decode).transpose()
}

/// Stores the row with the revision after `seen`, or with the first revision.
pub(super) async fn write(
    table: &Table,
    seen: Option<Revision>,
    row: &JobRow,
) -> Result<Written<JobRow>, Fault> {
    let next = JobRow { revision: seen.unwrap_or_default().next(), ..row.clone() };
    Ok(landed(&put(table, item(&next), seen).await?, next))
}

/// The repositories with rows in a lane.
pub(super) async fn repositories(table: &Table, lane: &str) -> Result<Vec<Repository>, Fault> {
    let shards = (0..SHARDS).map(|shard| repositories_of(table, shard, lane));
    let found: BTreeSet<_> = try_join_all(shards).await?.into_iter().flatten().collect();
    Ok(found.into_iter().collect())
}

/// The repositories in one shard. It reads a few rows at a time and then skips to the next
/// repository, so a repository with many rows costs no more calls.
async fn repositories_of(
    table: &Table,
    shard: u64,
    lane: &str,
) -> Result<BTreeSet<Repository>, Fault> {
    let mut found = BTreeSet::new();
    let mut last: Option<Repository> = None;
    // Every query begins after the last repository found, so the loop ends.
    loop {
        let range = keys::lane(lane, last.as_ref().map(Repository::as_str));
        let places = listing::first_of(table, Kind::Row, shard, &range).await?;
        last = places.last().and_then(|place| keys::repository(place));
        if last.is_none() {
            return Ok(found);
        }
        found.extend(places.iter().filter_map(|place| keys::repository(place)));
    }
}

pub(super) async fn waiting(
    table: &Table,
    at: &WaitingAt,
    after: Option<&str>,
) -> Result<Page<JobRow>, Fault> {
    let range = keys::waiting_at(at);
    let place = (after, Freshness::Directory);
    let (rows, next) = listing::page(table, Kind::Row, range, place, decode).await?.split();
    // Drop rows that have left this lane since the index was read.
    let waits = |row: JobRow| (row.waiting.as_ref() == Some(at)).then_some(row);
    Ok(Page::of(rows.filter_map(waits), next))
}

/// Earliest first.
pub(super) async fn due(
    table: &Table,
    before: Timestamp,
    after: Option<&str>,
) -> Result<Page<JobRow>, Fault> {
    let range = keys::due_by(before);
    let place = (after, Freshness::Sweep);
    let (rows, next) = listing::page(table, Kind::Row, range, place, decode).await?.split();
    let is_due = |row: JobRow| row.next_look.is_some_and(|look| look <= before).then_some(row);
    Ok(Page::of(rows.filter_map(is_due), next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::fixture::{is_written_as, stored};

    #[test]
    fn a_row_matches_its_fixture() {
        let file = include_str!("../../fixtures/v1/row.json");
        let row = JobRow {
            job: "41234567890".into(),
            revision: Revision(7),
            body: r#"{"v":1}"#.to_owned(),
            waiting: Some(WaitingAt { lane: "pool/linux".into(), repository: "octo/repo".into() }),
            next_look: Some(Timestamp::from_millis(1_767_600_000_123)),
            forget_at: Timestamp::from_millis(1_768_809_600_123),
        };
        is_written_as(&item(&row), file);
        assert_eq!(decode(&stored(ItemKind::Row, file)).unwrap(), row);
    }
}
