//! Intents, reservations and first records.
//!
//! A reservation is not a counter. What a scope holds is counted when it is asked: its live records
//! plus what its open intents have outstanding, both from indexes that leave out everything that is
//! over. A count cannot drift from what it counts, and burying a record returns its reservation by
//! itself.
//!
//! Not here: launching anything.

use bullpen_core::creation::{Ceiling, Intent, Scope};
use bullpen_core::ids::{IntentId, PoolName, Revision};
use bullpen_core::instance::Record;
use bullpen_core::limits::Limits;
use bullpen_core::ports::{Page, Recorded, Reserved};
use bullpen_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::{FORGOTTEN_PER_WRITE_MAX, records};
use crate::page::{LIMIT, page};
use crate::statement_fault::{StatementFault, decode};

pub(super) fn load(db: &Connection, id: &IntentId) -> Result<Option<Intent>, StatementFault> {
    db.prepare_cached("SELECT body FROM intents WHERE id = ?1")?
        .query_row([id.as_str()], |row| row.get::<_, String>(0))
        .optional()?
        .map(|body| decode("intents", id.as_str(), &body))
        .transpose()
}

/// Intents with something outstanding.
pub(super) fn open(db: &Connection, after: &str) -> Result<Page<Intent>, StatementFault> {
    let mut statement = db.prepare_cached(
        "SELECT id, body FROM intents WHERE outstanding > 0 AND id > ?1 ORDER BY id LIMIT ?2",
    )?;
    let mut rows = statement.query(params![after, LIMIT])?;
    let mut intents: Vec<Intent> = Vec::new();
    while let Some(row) = rows.next()? {
        let (id, body): (String, String) = (row.get(0)?, row.get(1)?);
        intents.push(decode("intents", &id, &body)?);
    }
    Ok(page(intents, |last| last.id.as_str().to_owned()))
}

/// Stores the intent if it is new and every ceiling has room for all of its machines.
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

/// How many machines a scope holds, launches in flight included.
pub(super) fn used(db: &Connection, scope: &Scope) -> Result<u32, StatementFault> {
    let (sql, name) = match scope {
        Scope::Stack => (
            // The name is not needed, but bound all the same, so that all three are asked alike.
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

/// Nothing of this intent is outstanding any more, if it is still as it was seen.
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

/// Stores an intent that was read in this transaction.
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

/// A spent intent is kept as long as a tombstone: until then a launch of it that was answered late
/// finds that it is spent, and ends what came.
fn forget_at(intent: &Intent, now: Timestamp) -> Option<i64> {
    (intent.outstanding == 0)
        .then(|| now.max(intent.deadline).after(Limits::DEFAULT.tombstone_ttl).as_millis())
}

fn encode(intent: &Intent) -> String {
    serde_json::to_string(intent).expect("an intent has string keys only, so it serialises")
}
