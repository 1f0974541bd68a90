//! Exchanges the owners of two running records, together with the rows of both jobs.
//!
//! It compares all four revisions before it writes, so that a lost swap changes nothing.
//!
//! Not here: noticing that GitHub exchanged two jobs.

use bullpen_core::instance::Record;
use bullpen_core::ports::Swap;
use rusqlite::Connection;

use super::{records, rows};
use crate::statement_fault::StatementFault;

pub(super) fn swap(db: &Connection, swap: &Swap) -> Result<Option<()>, StatementFault> {
    let [left, right] = &swap.records;
    let distinct = left.id != right.id && swap.rows[0].row.job != swap.rows[1].row.job;
    if !distinct || !rows_are_stored(db, swap)? {
        return Ok(None);
    }
    let Some((left, right)) = stored(db, left)?.zip(stored(db, right)?) else { return Ok(None) };
    let (Ok(moved_left), Ok(moved_right)) = (left.swapped_with(&right), right.swapped_with(&left))
    else {
        return Ok(None);
    };
    for (seen, next) in [(left, moved_left), (right, moved_right)] {
        records::replace(db, seen.revision, next)?;
    }
    for part in &swap.rows {
        rows::update(db, part.seen, part.row.clone())?;
    }
    Ok(Some(()))
}

/// The stored record, if its revision is still `seen`'s.
fn stored(db: &Connection, seen: &Record) -> Result<Option<Record>, StatementFault> {
    Ok(records::load(db, &seen.id)?.filter(|stored| stored.revision == seen.revision))
}

fn rows_are_stored(db: &Connection, swap: &Swap) -> Result<bool, StatementFault> {
    for part in &swap.rows {
        if rows::load(db, &part.row.job)?.is_none_or(|stored| stored.revision != part.seen) {
            return Ok(false);
        }
    }
    Ok(true)
}
