//! Sends, deletes, defers and counts messages.
//!
//! Not here: receiving ([`super::receive`]).

use std::time::Duration;

use bullpen_core::ids::{QueueName, Receipt};
use bullpen_core::ports::{Depth, Fault, Outgoing};
use bullpen_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::specs::{self, Spec};
use super::topic;
use crate::statement_fault::StatementFault;
use crate::store::Writing;

/// How long a FIFO queue remembers deduplication keys: as long as SQS.
const DEDUPLICATED_FOR: Duration = Duration::from_secs(5 * 60);
/// The most expired messages and keys that one send removes: more than a call can add.
const FORGOTTEN_PER_WRITE_MAX: i64 = 16;

/// A message to store.
pub(super) struct NewMessage<'a> {
    pub(super) body: &'a str,
    pub(super) group: Option<&'a str>,
    pub(super) visible_at: Timestamp,
    pub(super) expires_at: Timestamp,
}

/// Stores messages; each has its own answer.
pub(super) fn send(
    writing: &mut Writing<'_>,
    queue: &QueueName,
    outgoing: Vec<Outgoing>,
    now: Timestamp,
) -> Result<Vec<Result<(), Fault>>, StatementFault> {
    let spec = specs::load(writing.db, queue)?;
    forget(writing, now)?;
    let mut answers = Vec::with_capacity(outgoing.len());
    for message in outgoing {
        answers.push(if spec.fifo {
            send_fifo(writing.db, queue, &spec, &message, now)?
        } else {
            let visible_at = now.after(message.delay);
            let expires_at = now.after(spec.retention);
            let entry = NewMessage { body: &message.body, group: None, visible_at, expires_at };
            insert(writing.db, queue, &entry)?;
            Ok(())
        });
    }
    writing.wake(topic(queue));
    Ok(answers)
}

fn send_fifo(
    db: &Connection,
    queue: &QueueName,
    spec: &Spec,
    message: &Outgoing,
    now: Timestamp,
) -> Result<Result<(), Fault>, StatementFault> {
    let Some(fifo) = &message.fifo else {
        let text = format!("queue {queue} is FIFO and takes no message without a group");
        return Ok(Err(Fault::Denied(text)));
    };
    // Renews an expired key as if it were absent, and leaves a valid key as it is.
    let fresh = db
        .prepare_cached(
            "INSERT INTO deduplications (queue, key, until) VALUES (?1, ?2, ?3) \
             ON CONFLICT DO UPDATE SET until = excluded.until WHERE until <= ?4",
        )?
        .execute(params![
            queue.as_str(),
            fifo.deduplication,
            now.after(DEDUPLICATED_FOR).as_millis(),
            now.as_millis(),
        ])?;
    if fresh == 1 {
        let expires_at = now.after(spec.retention);
        let group = Some(fifo.group.as_str());
        insert(db, queue, &NewMessage { body: &message.body, group, visible_at: now, expires_at })?;
    }
    Ok(Ok(()))
}

/// Stores one message behind the other messages of its group.
pub(super) fn insert(
    db: &Connection,
    queue: &QueueName,
    entry: &NewMessage<'_>,
) -> Result<(), StatementFault> {
    db.prepare_cached(
        "INSERT INTO messages \
         (queue, body, fifo_group, blocked, visible_at, expires_at, receives, in_flight) \
         VALUES (?1, ?2, ?3, \
         EXISTS (SELECT 1 FROM messages WHERE queue = ?1 AND fifo_group = ?3), ?4, ?5, 0, 0)",
    )?
    .execute(params![
        queue.as_str(),
        entry.body,
        entry.group,
        entry.visible_at.as_millis(),
        entry.expires_at.as_millis(),
    ])?;
    Ok(())
}

/// Removes one message, and unblocks the next of its group.
pub(super) fn remove(writing: &mut Writing<'_>, seq: i64) -> Result<(), StatementFault> {
    let gone: Option<(String, Option<String>)> = writing
        .db
        .prepare_cached("DELETE FROM messages WHERE seq = ?1 RETURNING queue, fifo_group")?
        .query_row([seq], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    if let Some((queue, Some(group))) = gone {
        writing
            .db
            .prepare_cached(
                "UPDATE messages SET blocked = 0 WHERE seq = \
                 (SELECT min(seq) FROM messages WHERE queue = ?1 AND fifo_group = ?2)",
            )?
            .execute([&queue, &group])?;
        writing.wake(topic(&QueueName::new(queue)));
    }
    Ok(())
}

/// Removes a few expired messages and keys of every queue.
fn forget(writing: &mut Writing<'_>, now: Timestamp) -> Result<(), StatementFault> {
    let limits = params![now.as_millis(), FORGOTTEN_PER_WRITE_MAX];
    let over: Vec<i64> = writing
        .db
        .prepare_cached(
            "SELECT seq FROM messages WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2",
        )?
        .query_map(limits, |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    for seq in over {
        remove(writing, seq)?;
    }
    writing
        .db
        .prepare_cached(
            "DELETE FROM deduplications WHERE (queue, key) IN \
             (SELECT queue, key FROM deduplications WHERE until <= ?1 ORDER BY until LIMIT ?2)",
        )?
        .execute(limits)?;
    Ok(())
}

/// A receipt: the message's number and its count of receives.
pub(super) fn receipt(seq: i64, receives: u32) -> Receipt {
    Receipt::new(format!("{seq}.{receives}"))
}

fn parse(receipt: &Receipt) -> Option<(i64, u32)> {
    let (seq, receives) = receipt.as_str().split_once('.')?;
    Some((seq.parse().ok()?, receives.parse().ok()?))
}

/// Deletes the messages of the receipts that are still valid.
pub(super) fn delete(
    writing: &mut Writing<'_>,
    queue: &QueueName,
    receipts: &[Receipt],
) -> Result<(), StatementFault> {
    specs::load(writing.db, queue)?;
    for (seq, receives) in receipts.iter().filter_map(parse) {
        let held = writing
            .db
            .prepare_cached(
                "SELECT 1 FROM messages WHERE seq = ?1 AND queue = ?2 AND receives = ?3",
            )?
            .exists(params![seq, queue.as_str(), receives])?;
        if held {
            remove(writing, seq)?;
        }
    }
    Ok(())
}

/// Moves the time at which a received message is visible again.
pub(super) fn defer(
    writing: &mut Writing<'_>,
    queue: &QueueName,
    receipt: &Receipt,
    visible_at: Timestamp,
) -> Result<(), StatementFault> {
    specs::load(writing.db, queue)?;
    let Some((seq, receives)) = parse(receipt) else { return Ok(()) };
    let moved = writing
        .db
        .prepare_cached(
            "UPDATE messages SET visible_at = ?4 WHERE seq = ?1 AND queue = ?2 AND receives = ?3",
        )?
        .execute(params![seq, queue.as_str(), receives, visible_at.as_millis()])?;
    if moved == 1 {
        // Waiters sleep until the next message is due, and that time may have changed.
        writing.wake(topic(queue));
    }
    Ok(())
}

pub(super) fn depth(
    db: &Connection,
    queue: &QueueName,
    now: Timestamp,
) -> Result<Depth, StatementFault> {
    specs::load(db, queue)?;
    let depth = db
        .prepare_cached(
            "SELECT count(*) FILTER (WHERE visible_at <= ?2), \
             count(*) FILTER (WHERE visible_at > ?2 AND NOT in_flight), \
             count(*) FILTER (WHERE visible_at > ?2 AND in_flight) \
             FROM messages WHERE queue = ?1 AND expires_at > ?2",
        )?
        .query_row(params![queue.as_str(), now.as_millis()], |row| {
            Ok(Depth { visible: row.get(0)?, delayed: row.get(1)?, in_flight: row.get(2)? })
        })?;
    Ok(depth)
}
