//! The queues and their settings.
//!
//! Not here: their messages ([`super::messages`]).

use std::time::Duration;

use bullpen_core::ids::QueueName;
use bullpen_core::ports::{Fault, QueueKind, QueueSpec};
use rusqlite::{Connection, OptionalExtension, params};

use super::topic;
use crate::statement_fault::StatementFault;
use crate::store::Writing;

/// A queue's settings for sending and receiving.
pub(super) struct Spec {
    pub(super) fifo: bool,
    pub(super) visibility: Duration,
    pub(super) retention: Duration,
    pub(super) dead_letters: Option<(QueueName, u32)>,
}

/// The queue with this name, or [`Fault::NotFound`].
pub(super) fn load(db: &Connection, name: &QueueName) -> Result<Spec, StatementFault> {
    find(db, name)?.ok_or_else(|| Fault::NotFound.into())
}

pub(super) fn find(db: &Connection, name: &QueueName) -> Result<Option<Spec>, StatementFault> {
    let spec = db
        .prepare_cached(
            "SELECT fifo, visibility, retention, dead_letters, receives_max FROM queues \
             WHERE name = ?1",
        )?
        .query_row([name.as_str()], |row| {
            let dead_letters: Option<String> = row.get(3)?;
            let receives_max: Option<u32> = row.get(4)?;
            Ok(Spec {
                fifo: row.get(0)?,
                visibility: Duration::from_millis(row.get(1)?),
                retention: Duration::from_millis(row.get(2)?),
                dead_letters: dead_letters.map(QueueName::new).zip(receives_max),
            })
        })
        .optional()?;
    Ok(spec)
}

/// Creates or updates the queue. Its kind cannot change: messages of one kind have data that those
/// of the other lack.
pub(super) fn ensure(db: &Connection, spec: &QueueSpec) -> Result<(), StatementFault> {
    let fifo = spec.kind == QueueKind::Fifo;
    if find(db, &spec.name)?.is_some_and(|known| known.fifo != fifo) {
        return Err(Fault::Denied(format!("queue {} is of the other kind", spec.name)).into());
    }
    db.prepare_cached(
        "INSERT INTO queues (name, fifo, visibility, retention, dead_letters, receives_max) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO UPDATE SET \
         visibility = excluded.visibility, retention = excluded.retention, \
         dead_letters = excluded.dead_letters, receives_max = excluded.receives_max",
    )?
    .execute(params![
        spec.name.as_str(),
        fifo,
        millis(spec.visibility),
        millis(spec.retention),
        spec.dead_letters.as_ref().map(|(name, _)| name.as_str()),
        spec.dead_letters.as_ref().map(|(_, receives_max)| receives_max),
    ])?;
    Ok(())
}

/// Removes the queue, and wakes its receivers, which then see that it is gone.
pub(super) fn remove(writing: &mut Writing<'_>, queue: &QueueName) -> Result<(), StatementFault> {
    load(writing.db, queue)?;
    for sql in [
        "DELETE FROM queues WHERE name = ?1",
        "DELETE FROM messages WHERE queue = ?1",
        "DELETE FROM deduplications WHERE queue = ?1",
    ] {
        writing.db.prepare_cached(sql)?.execute([queue.as_str()])?;
    }
    writing.wake(topic(queue));
    Ok(())
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
