//! Reads, claims, replaces and lists instances' records.
//!
//! Not here: a machine's first record, which takes its reservation from an intent
//! ([`super::creation`]).

use bullpen_core::ids::{ClassName, InstanceId, PoolName, Revision};
use bullpen_core::instance::{InstanceEvent, Owner, Record, State};
use bullpen_core::message::Advert;
use bullpen_core::ports::{ClaimWrite, ItemKind, Listing, Page};
use bullpen_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, Params, Row, params};

use super::FORGOTTEN_PER_WRITE_MAX;
use crate::page::{Entry, LIMIT, page, parse_timed, timed};
use crate::statement_fault::{StatementFault, decode};

pub(super) fn load(db: &Connection, id: &InstanceId) -> Result<Option<Record>, StatementFault> {
    db.prepare_cached("SELECT body FROM records WHERE id = ?1")?
        .query_row([id.as_str()], |row| Ok(decode(ItemKind::Record, id.as_str(), row.get(0))))
        .optional()?
        .transpose()
        .map_err(StatementFault::from)
}

/// Moves a record from idle to claimed, if its current state allows that.
pub(super) fn claim(db: &Connection, write: &ClaimWrite) -> Result<Option<Record>, StatementFault> {
    let Some(record) = load(db, &write.id)? else { return Ok(None) };
    let event = InstanceEvent::Claimed {
        owner: write.owner.clone(),
        claim: write.claim.clone(),
        trust: write.trust.clone(),
        seen: write.seen,
        at: write.at,
        margin: write.margin,
        lease: write.lease,
    };
    match record.on(&event) {
        Ok(next) => replace(db, record.revision, next),
        Err(refusal) => {
            tracing::debug!(instance_id = %write.id, %refusal, "claim lost");
            Ok(None)
        }
    }
}

/// Stores `next` one revision above `seen`, if `seen` is the stored revision.
pub(super) fn replace(
    db: &Connection,
    seen: Revision,
    next: Record,
) -> Result<Option<Record>, StatementFault> {
    let next = Record { revision: seen.next(), ..next };
    let changed = db
        .prepare_cached(
            "UPDATE records SET revision = ?2, state = ?3, live = ?4, owner = ?5, idle_since = ?6, \
             deadline = ?7, body = ?8 WHERE id = ?1 AND revision = ?9",
        )?
        .execute(params![
            next.id.as_str(),
            next.revision.0,
            next.state.name().as_str(),
            next.state.is_live(),
            next.state.listed_under().map(owner_key),
            idle_since(&next),
            next.state.look_at().as_millis(),
            encode(&next),
            seen.0,
        ])?;
    Ok((changed == 1).then_some(next))
}

/// Removes a few expired tombstones, and stores a record that the caller knows to be absent.
pub(super) fn insert(
    db: &Connection,
    record: &Record,
    now: Timestamp,
) -> Result<(), StatementFault> {
    db.prepare_cached(
        "DELETE FROM records WHERE id IN (SELECT id FROM records \
         WHERE live = 0 AND deadline <= ?1 ORDER BY deadline LIMIT ?2)",
    )?
    .execute(params![now.as_millis(), FORGOTTEN_PER_WRITE_MAX])?;
    db.prepare_cached(
        "INSERT INTO records \
         (id, revision, state, live, class, pool, owner, idle_since, deadline, body) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?
    .execute(params![
        record.id.as_str(),
        record.revision.0,
        record.state.name().as_str(),
        record.state.is_live(),
        record.facts.class.as_str(),
        record.facts.pool.as_ref().map(PoolName::as_str),
        record.state.listed_under().map(owner_key),
        idle_since(record),
        record.state.look_at().as_millis(),
        encode(record),
    ])?;
    Ok(())
}

pub(super) fn owned_by(db: &Connection, owner: &Owner) -> Result<Listing<Record>, StatementFault> {
    const SQL: &str = "SELECT id, body FROM records WHERE owner = ?1 ORDER BY id";
    directory(db, SQL, [owner_key(owner)])
}

/// Oldest first.
pub(super) fn idle_in(
    db: &Connection,
    class: &ClassName,
) -> Result<Listing<Advert>, StatementFault> {
    let records = directory(
        db,
        "SELECT id, body FROM records WHERE class = ?1 AND idle_since IS NOT NULL \
         ORDER BY idle_since, id",
        [class.as_str()],
    )?;
    Ok(records.filter_map(|record| record.advert()))
}

pub(super) fn standing_by(
    db: &Connection,
    pool: &PoolName,
) -> Result<Listing<Record>, StatementFault> {
    directory(
        db,
        "SELECT id, body FROM records WHERE pool = ?1 AND live = 1 ORDER BY id",
        [pool.as_str()],
    )
}

/// Earliest first.
pub(super) fn due(
    db: &Connection,
    before: Timestamp,
    after: Option<&str>,
) -> Result<Page<Record>, StatementFault> {
    let (millis, id) = parse_timed(after)?;
    let records = list(
        db,
        "SELECT id, body, deadline FROM records WHERE live = 1 AND deadline <= ?1 \
         AND (deadline, id) > (?2, ?3) ORDER BY deadline, id LIMIT ?4",
        params![before.as_millis(), millis, id, LIMIT],
        |row, id| Ok(timed(row.get(2)?, id)),
    )?;
    Ok(page(records))
}

pub(super) fn live(db: &Connection, after: &str) -> Result<Page<Record>, StatementFault> {
    let records = list(
        db,
        "SELECT id, body FROM records WHERE live = 1 AND id > ?1 ORDER BY id LIMIT ?2",
        params![after, LIMIT],
        |_, id| Ok(id.to_owned()),
    )?;
    Ok(page(records))
}

fn directory(
    db: &Connection,
    sql: &str,
    values: impl Params,
) -> Result<Listing<Record>, StatementFault> {
    let entries = list(db, sql, values, |_, id| Ok(id.to_owned()))?;
    Ok(entries.into_iter().map(|(_, entry)| entry).collect())
}

/// Lists ids and bodies; `cursor` makes an entry's cursor from its columns and its id.
fn list(
    db: &Connection,
    sql: &str,
    values: impl Params,
    cursor: impl Fn(&Row<'_>, &str) -> rusqlite::Result<String>,
) -> Result<Vec<Entry<Record>>, StatementFault> {
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query(values)?;
    let mut entries = Vec::new();
    while let Some(row) = rows.next()? {
        let id: String = row.get(0)?;
        entries.push((cursor(row, &id)?, decode(ItemKind::Record, &id, row.get(1))));
    }
    Ok(entries)
}

fn encode(record: &Record) -> String {
    serde_json::to_string(record).expect("a record has string keys only, so it serialises")
}

/// An owner's key with its kind, so that a job and a pool of one name are two owners.
fn owner_key(owner: &Owner) -> String {
    match owner {
        Owner::Request(id) => format!("request/{id}"),
        Owner::Job(id) => format!("job/{id}"),
        Owner::Pool(name) => format!("pool/{name}"),
    }
}

/// The time since when the record is idle; set exactly while the record has an advert.
fn idle_since(record: &Record) -> Option<i64> {
    match record.state {
        State::Idle { since, .. } if record.advert().is_some() => Some(since.as_millis()),
        _ => None,
    }
}
