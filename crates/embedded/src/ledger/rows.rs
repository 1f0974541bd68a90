//! Job rows, compared by revision and listed by their waiting place and their next look.
//!
//! Not here: the contents of a row's body (the engine's).

use bullpen_core::ids::{JobId, Repository, Revision};
use bullpen_core::ports::{ItemKind, JobRow, Page, Unreadable, WaitingAt};
use bullpen_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, Params, Row, params};

use super::FORGOTTEN_PER_WRITE_MAX;
use crate::page::{Entry, LIMIT, page, parse_timed, timed};
use crate::statement_fault::StatementFault;

pub(super) fn load(db: &Connection, job: &JobId) -> Result<Option<JobRow>, StatementFault> {
    let row = db
        .prepare_cached(
            "SELECT job, revision, body, lane, repository, next_look, forget_at FROM job_rows \
             WHERE job = ?1",
        )?
        .query_row([job.as_str()], job_row)
        .optional()?;
    Ok(row)
}

/// Stores the row one revision above `seen`, or as the first revision.
pub(super) fn write(
    db: &Connection,
    seen: Option<Revision>,
    row: JobRow,
    now: Timestamp,
) -> Result<Option<JobRow>, StatementFault> {
    match seen {
        Some(seen) => update(db, seen, row),
        None => insert(db, row, now),
    }
}

/// Stores a row if its stored revision is still `seen`.
pub(super) fn update(
    db: &Connection,
    seen: Revision,
    row: JobRow,
) -> Result<Option<JobRow>, StatementFault> {
    let row = JobRow { revision: seen.next(), ..row };
    let changed = db
        .prepare_cached(
            "UPDATE job_rows SET revision = ?2, body = ?3, lane = ?4, repository = ?5, \
             next_look = ?6, forget_at = ?7 WHERE job = ?1 AND revision = ?8",
        )?
        .execute(params![
            row.job.as_str(),
            row.revision.0,
            row.body,
            row.waiting.as_ref().map(|at| at.lane.as_str()),
            row.waiting.as_ref().map(|at| at.repository.as_str()),
            row.next_look.map(Timestamp::as_millis),
            row.forget_at.as_millis(),
            seen.0,
        ])?;
    Ok((changed == 1).then_some(row))
}

/// Removes a few expired rows first: an expired row counts as absent.
fn insert(db: &Connection, row: JobRow, now: Timestamp) -> Result<Option<JobRow>, StatementFault> {
    db.prepare_cached(
        "DELETE FROM job_rows WHERE job IN (SELECT job FROM job_rows WHERE forget_at <= ?1 \
         ORDER BY forget_at LIMIT ?2)",
    )?
    .execute(params![now.as_millis(), FORGOTTEN_PER_WRITE_MAX])?;
    let row = JobRow { revision: Revision(1), ..row };
    let changed = db
        .prepare_cached(
            "INSERT INTO job_rows (job, revision, body, lane, repository, next_look, forget_at) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING",
        )?
        .execute(params![
            row.job.as_str(),
            row.revision.0,
            row.body,
            row.waiting.as_ref().map(|at| at.lane.as_str()),
            row.waiting.as_ref().map(|at| at.repository.as_str()),
            row.next_look.map(Timestamp::as_millis),
            row.forget_at.as_millis(),
        ])?;
    Ok((changed == 1).then_some(row))
}

/// The repositories with rows in a lane. One index lookup per repository, however many rows it has.
pub(super) fn repositories(db: &Connection, lane: &str) -> Result<Vec<Repository>, StatementFault> {
    let mut statement = db.prepare_cached(
        "SELECT repository FROM job_rows WHERE lane = ?1 AND repository > ?2 \
         ORDER BY repository LIMIT 1",
    )?;
    let mut found: Vec<Repository> = Vec::new();
    loop {
        let last = found.last().map_or("", Repository::as_str);
        let next = statement.query_row([lane, last], |row| row.get::<_, String>(0)).optional()?;
        match next {
            Some(repository) => found.push(Repository::new(repository)),
            None => return Ok(found),
        }
    }
}

pub(super) fn waiting(
    db: &Connection,
    at: &WaitingAt,
    after: &str,
) -> Result<Page<JobRow>, StatementFault> {
    let rows = list(
        db,
        "SELECT job, revision, body, lane, repository, next_look, forget_at FROM job_rows \
         WHERE lane = ?1 AND repository = ?2 AND job > ?3 ORDER BY job LIMIT ?4",
        params![at.lane, at.repository.as_str(), after, LIMIT],
        |_, job| Ok(job.to_owned()),
    )?;
    Ok(page(rows))
}

/// Earliest first.
pub(super) fn due(
    db: &Connection,
    before: Timestamp,
    after: Option<&str>,
) -> Result<Page<JobRow>, StatementFault> {
    let (millis, job) = parse_timed(after)?;
    let rows = list(
        db,
        "SELECT job, revision, body, lane, repository, next_look, forget_at FROM job_rows \
         WHERE next_look <= ?1 AND (next_look, job) > (?2, ?3) ORDER BY next_look, job LIMIT ?4",
        params![before.as_millis(), millis, job, LIMIT],
        |row, job| Ok(timed(row.get(5)?, job)),
    )?;
    Ok(page(rows))
}

/// Lists rows; `cursor` makes an entry's cursor from its columns and its job.
fn list(
    db: &Connection,
    sql: &str,
    values: impl Params,
    cursor: impl Fn(&Row<'_>, &str) -> rusqlite::Result<String>,
) -> Result<Vec<Entry<JobRow>>, StatementFault> {
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query(values)?;
    let mut entries = Vec::new();
    while let Some(row) = rows.next()? {
        let job: String = row.get(0)?;
        // A column of invalid bytes makes this row alone unreadable.
        let read = job_row(row).map_err(|error| Unreadable::of(ItemKind::Row, &job, "", error));
        entries.push((cursor(row, &job)?, read));
    }
    Ok(entries)
}

fn job_row(row: &Row<'_>) -> rusqlite::Result<JobRow> {
    let waiting = match (row.get::<_, Option<String>>(3)?, row.get::<_, Option<String>>(4)?) {
        (Some(lane), Some(repository)) => {
            Some(WaitingAt { lane, repository: Repository::new(repository) })
        }
        // The table's check allows both or neither.
        _ => None,
    };
    Ok(JobRow {
        job: JobId::new(row.get::<_, String>(0)?),
        revision: Revision(row.get(1)?),
        body: row.get(2)?,
        waiting,
        next_look: row.get::<_, Option<i64>>(5)?.map(Timestamp::from_millis),
        forget_at: Timestamp::from_millis(row.get(6)?),
    })
}
