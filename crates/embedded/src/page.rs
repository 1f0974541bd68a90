//! Pages of listings, and the cursors between them.
//!
//! A cursor names the last entry of its page by all columns of the listing's order, the key too. So
//! a listing never skips entries that share a deadline.
//!
//! Not here: the statements that list.

use bullpen_core::ports::{Fault, Page, Unreadable};

use crate::statement_fault::StatementFault;

/// The most entries on one page.
pub(crate) const PAGE_MAX: usize = 200;
/// The limit for a statement: one entry more, to know whether there is another page.
pub(crate) const LIMIT: usize = PAGE_MAX + 1;

/// An entry of a listing: its cursor, and the item if it is readable.
pub(crate) type Entry<T> = (String, Result<T, Unreadable>);

/// Makes a page of up to [`LIMIT`] entries in order.
pub(crate) fn page<T>(mut entries: Vec<Entry<T>>) -> Page<T> {
    let more = entries.len() > PAGE_MAX;
    entries.truncate(PAGE_MAX);
    let next = if more { entries.last().map(|(cursor, _)| cursor.clone()) } else { None };
    Page::of(entries.into_iter().map(|(_, entry)| entry).collect(), next)
}

/// A cursor into a listing by time, then key.
pub(crate) fn timed(millis: i64, key: &str) -> String {
    format!("{millis}/{key}")
}

/// Parses a cursor of [`timed`]; without a cursor, a position before every entry.
pub(crate) fn parse_timed(cursor: Option<&str>) -> Result<(i64, String), StatementFault> {
    let Some(cursor) = cursor else { return Ok((i64::MIN, String::new())) };
    cursor
        .split_once('/')
        .and_then(|(millis, key)| Some((millis.parse().ok()?, key.to_owned())))
        .ok_or_else(|| Fault::Unreadable(format!("{cursor:?} is no cursor of this listing")).into())
}
