//! Launch intents, reservations and first records.
//!
//! A reservation is not a stored counter. The ledger counts a scope's use on demand: its live
//! records plus the outstanding machines of its open intents, from indexes without ended rows. So
//! the count cannot drift, and burying a record returns its reservation.
//!
//! Not here: launching machines.

use bullpen_core::creation::{Ceiling, Intent, Scope};
use bullpen_core::ids::{IntentId, PoolName, Revision};
use bullpen_core::instance::Record;
use bullpen_core::limits::Limits;
use bullpen_core::ports::{ItemKind, Page, Recorded, Reserved};
use bullpen_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::{FORGOTTEN_PER_WRITE_MAX, records};
use crate::page::{LIMIT, page};
use crate::statement_fault::{StatementFault, decode};

pub(super) fn load(db: &Connection, id: &IntentId) -> Result<Option<Intent>, StatementFault> {
    db.prepare_cached("SELECT body FROM intents WHERE id = ?1")?
        .query_row([id.as_str()], |row| Ok(decode(ItemKind::Intent, id.as_str(), row.get(0))))
        .optional()?
        .transpose()
        .map_err(StatementFault::from)
}

/// Intents with outstanding machines.
pub(super) fn open(db: &Connection, after: &str) -> Result<Page<Intent>, StatementFault> {
    let mut statement = db.prepare_cached(
        "SELECT id, body FROM intents WHERE outstanding > 0 AND id > ?1 ORDER BY id LIMIT ?2",
    )?;
    let mut rows = statement.query(params![after, LIMIT])?;
    let mut intents = Vec::new();
    while let Some(row) = rows.next()? {
        let id: String = row.get(0)?;
        let intent = decode(ItemKind::Intent, &id, row.get(1));
        intents.push((id, intent));
    }
    Ok(page(intents))
}

/// Stores the intent if it is new and every ceiling has capacity for all of its machines.
pub(super) fn reserve(
    db: &Connection,
    intent: Intent,
    ceilings: &[Ceiling],
    now: Timestamp,
) -> Result<Option<Reserved>, StatementFault> {
    if let Some(known) = load(db, &intent.id)? {
        return Ok(Some(Reserved::Known(known)));
    }
    for ceiling in ceilings {
        if ceiling.scope.counts(&intent.class, intent.pool.as_ref())
            && let Err(reached) = ceiling.admit(used(db, &ceiling.scope)?, intent.outstanding)
        {
            return Ok(Some(Reserved::Short(reached)));
        }
    }
    db.prepare_cached(
        "DELETE FROM intents WHERE id IN (SELECT id FROM intents \
         WHERE forget_at IS NOT NULL AND forget_at <= ?1 ORDER BY forget_at LIMIT ?2)",
    )?
    .execute(params![now.as_millis(), FORGOTTEN_PER_WRITE_MAX])?;
    let intent = Intent { revision: Revision(1), ..intent };
    db.prepare_cached(
        "INSERT INTO intents (id, revision, class, pool, outstanding, forget_at, body) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        intent.id.as_str(),
        intent.revision.0,
        intent.class.as_str(),
        intent.pool.as_ref().map(PoolName::as_str),
        intent.outstanding,
        forget_at(&intent, now),
        encode(&intent),
    ])?;
    Ok(Some(Reserved::Granted))
}

/// How many machines a scope holds, including launches in flight.
pub(super) fn used(db: &Connection, scope: &Scope) -> Result<u32, StatementFault> {
    let (sql, name) = match scope {
        Scope::Stack => (
            // This scope needs no name; bind it all the same, so that all three queries are alike.
            "SELECT (SELECT count(*) FROM records WHERE live = 1) \
             + (SELECT ifnull(sum(outstanding), 0) FROM intents WHERE outstanding > 0) \
             WHERE ?1 IS NOT NULL",
            "",
        ),
        Scope::Class(class) => (
            "SELECT (SELECT count(*) FROM records WHERE class = ?1 AND live = 1) \
             + (SELECT ifnull(sum(outstanding), 0) FROM intents \
                WHERE class = ?1 AND outstanding > 0)",
            class.as_str(),
        ),
        Scope::Pool(pool) => (
            "SELECT (SELECT count(*) FROM records WHERE pool = ?1 AND live = 1) \
             + (SELECT ifnull(sum(outstanding), 0) FROM intents \
                WHERE pool = ?1 AND outstanding > 0)",
            pool.as_str(),
        ),
    };
    let used: i64 = db.prepare_cached(sql)?.query_row([name], |row| row.get(0))?;
    Ok(u32::try_from(used).unwrap_or(u32::MAX))
}

/// Stores a machine's first record in place of one of its intent's outstanding machines.
pub(super) fn record(
    db: &Connection,
    record: Record,
    now: Timestamp,
) -> Result<Option<Recorded>, StatementFault> {
    if let Some(known) = records::load(db, &record.id)? {
        return Ok(Some(Recorded::Known(known)));
    }
    let Some(intent) = load(db, &record.facts.intent)?.filter(|intent| intent.outstanding > 0)
    else {
        return Ok(Some(Recorded::Refused));
    };
    let outstanding = intent.outstanding - 1;
    update(db, Intent { outstanding, ..intent }, now)?;
    let record = Record { revision: Revision(1), ..record };
    records::insert(db, &record, now)?;
    Ok(Some(Recorded::Stored(record)))
}

/// Sets the intent's outstanding machines to zero, if its stored revision is still `seen`'s.
pub(super) fn give_back(
    db: &Connection,
    seen: Intent,
    now: Timestamp,
) -> Result<Option<()>, StatementFault> {
    let stored = load(db, &seen.id)?;
    if stored.is_none_or(|stored| stored.revision != seen.revision) {
        return Ok(None);
    }
    update(db, Intent { outstanding: 0, ..seen }, now).map(Some)
}

/// Stores an intent that this transaction has read.
fn update(db: &Connection, intent: Intent, now: Timestamp) -> Result<(), StatementFault> {
    let intent = Intent { revision: intent.revision.next(), ..intent };
    db.prepare_cached(
        "UPDATE intents SET revision = ?2, outstanding = ?3, forget_at = ?4, body = ?5 \
         WHERE id = ?1",
    )?
    .execute(params![
        intent.id.as_str(),
        intent.revision.0,
        intent.outstanding,
        forget_at(&intent, now),
        encode(&intent),
    ])?;
    Ok(())
}

/// The ledger keeps a spent intent as long as a tombstone: a worker that gets a late answer to its
/// launch then sees that the intent is spent, and ends the machine.
fn forget_at(intent: &Intent, now: Timestamp) -> Option<i64> {
    (intent.outstanding == 0)
        .then(|| now.max(intent.deadline).after(Limits::DEFAULT.tombstone_ttl).as_millis())
}

fn encode(intent: &Intent) -> String {
    serde_json::to_string(intent).expect("an intent has string keys only, so it serialises")
}
