//! Receives ready messages, and moves dead letters.
//!
//! Not here: waiting for a ready message (`super`).

use bullpen_core::ids::QueueName;
use bullpen_core::ports::Delivery;
use bullpen_core::time::Timestamp;
use rusqlite::{Connection, params};

use super::messages::{self, NewMessage};
use super::specs::{self, Spec};
use super::{Next, topic};
use crate::statement_fault::StatementFault;
use crate::store::Writing;

/// The messages to read beyond the wanted number, so that a few expired messages or dead letters do
/// not make a receive empty.
const SPARE: usize = 8;

struct Ready {
    seq: i64,
    body: String,
    group: Option<String>,
    expires_at: Timestamp,
    receives: u32,
}

/// When this queue has a ready message.
pub(super) fn next(
    db: &Connection,
    queue: &QueueName,
    now: Timestamp,
) -> Result<Next, StatementFault> {
    specs::load(db, queue)?;
    let earliest: Option<i64> = db
        .prepare_cached("SELECT min(visible_at) FROM messages WHERE queue = ?1 AND blocked = 0")?
        .query_row([queue.as_str()], |row| row.get(0))?;
    Ok(match earliest.map(Timestamp::from_millis) {
        None => Next::Never,
        Some(at) if at <= now => Next::Now,
        Some(at) => Next::At(at),
    })
}

/// Takes up to `max` ready messages and hides them. A FIFO queue hands out one message of a group
/// per call.
pub(super) fn take(
    writing: &mut Writing<'_>,
    queue: &QueueName,
    max: usize,
    now: Timestamp,
) -> Result<Vec<Delivery>, StatementFault> {
    let spec = specs::load(writing.db, queue)?;
    let mut taken = Vec::new();
    for message in ready(writing.db, queue, max + SPARE, now)? {
        if taken.len() == max {
            break;
        }
        if message.expires_at <= now {
            messages::remove(writing, message.seq)?;
        } else if !move_to_dead_letters(writing, &spec, &message, now)? {
            taken.push(hide(writing.db, message, now.after(spec.visibility))?);
        }
    }
    Ok(taken)
}

fn ready(
    db: &Connection,
    queue: &QueueName,
    limit: usize,
    now: Timestamp,
) -> Result<Vec<Ready>, StatementFault> {
    let messages = db
        .prepare_cached(
            "SELECT seq, body, fifo_group, expires_at, receives FROM messages \
             WHERE queue = ?1 AND blocked = 0 AND visible_at <= ?2 \
             ORDER BY visible_at, seq LIMIT ?3",
        )?
        .query_map(params![queue.as_str(), now.as_millis(), limit], |row| {
            Ok(Ready {
                seq: row.get(0)?,
                body: row.get(1)?,
                group: row.get(2)?,
                expires_at: Timestamp::from_millis(row.get(3)?),
                receives: row.get(4)?,
            })
        })?
        .collect::<rusqlite::Result<_>>()?;
    Ok(messages)
}

fn hide(db: &Connection, message: Ready, until: Timestamp) -> Result<Delivery, StatementFault> {
    let receives = message.receives.saturating_add(1);
    db.prepare_cached(
        "UPDATE messages SET visible_at = ?2, receives = ?3, in_flight = 1 WHERE seq = ?1",
    )?
    .execute(params![message.seq, until.as_millis(), receives])?;
    let receipt = messages::receipt(message.seq, receives);
    Ok(Delivery { body: message.body, receipt, receives })
}

/// Moves a message whose receives are used up; false if the queue must still deliver it. Without a
/// queue to move it to, the queue delivers it again rather than losing it.
fn move_to_dead_letters(
    writing: &mut Writing<'_>,
    spec: &Spec,
    message: &Ready,
    now: Timestamp,
) -> Result<bool, StatementFault> {
    let Some((name, _)) = spec.dead_letters.as_ref().filter(|(_, max)| message.receives >= *max)
    else {
        return Ok(false);
    };
    let Some(dead_letters) = specs::find(writing.db, name)? else { return Ok(false) };
    let entry = NewMessage {
        body: &message.body,
        group: message.group.as_deref().filter(|_| dead_letters.fifo),
        visible_at: now,
        expires_at: now.after(dead_letters.retention),
    };
    messages::remove(writing, message.seq)?;
    messages::insert(writing.db, name, &entry)?;
    writing.wake(topic(name));
    Ok(true)
}
