//! Two running records exchange owners, with the rows of both jobs.
//!
//! Everything is compared before anything is written, so that losing leaves nothing behind.
//!
//! Not here: noticing that GitHub exchanged two jobs.

use bullpen_core::instance::{Event, Record};
use bullpen_core::ports::Swap;
use rusqlite::Connection;

use super::{records, rows};
use crate::trouble::Trouble;

pub(super) fn swap(db: &Connection, swap: &Swap) -> Result<Option<()>, Trouble> {
    let [left, right] = &swap.records;
    let distinct = left.id != right.id && swap.rows[0].row.job != swap.rows[1].row.job;
    if !distinct || !rows_are_stored(db, swap)? {
        return Ok(None);
    }
    let Some((left, right)) = stored(db, left)?.zip(stored(db, right)?) else { return Ok(None) };
    let Some(moved) = exchange(&left, &right).zip(exchange(&right, &left)) else { return Ok(None) };
    for (seen, next) in [(left, moved.0), (right, moved.1)] {
        records::replace(db, seen.revision, next)?;
    }
    for part in &swap.rows {
        rows::update(db, part.seen, part.row.clone())?;
    }
    Ok(Some(()))
}

/// `record` in the hands of `other`'s owner.
fn exchange(record: &Record, other: &Record) -> Option<Record> {
    let from = record.state.owner()?.clone();
    let to = other.state.owner()?.clone();
    record.on(&Event::Swapped { from, to, generation: record.generation }).ok()
}

/// The record as it is, if nobody has written it since it was seen.
fn stored(db: &Connection, seen: &Record) -> Result<Option<Record>, Trouble> {
    Ok(records::load(db, &seen.id)?.filter(|stored| stored.revision == seen.revision))
}

fn rows_are_stored(db: &Connection, swap: &Swap) -> Result<bool, Trouble> {
    for part in &swap.rows {
        if rows::load(db, &part.row.job)?.is_none_or(|stored| stored.revision != part.seen) {
            return Ok(false);
        }
    }
    Ok(true)
}
