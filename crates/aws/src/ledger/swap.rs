//! Swap the owners of two running records and the rows of both jobs, in one transaction of four
//! writes.
//!
//! Not here: noticing that GitHub swapped two jobs.

use aws_sdk_dynamodb::types::TransactWriteItem;
use bullpen_core::ports::{Fault, Swap, Written};

use super::{records, rows};
use crate::table::Table;
use crate::transaction::{transact, written};

pub(super) async fn swap(table: &Table, swap: &Swap) -> Result<Written<()>, Fault> {
    let [left, right] = &swap.records;
    let distinct = left.id != right.id && swap.rows[0].row.job != swap.rows[1].row.job;
    // Computing from the records as read is safe: if one has changed since, the write loses.
    let (true, Ok(moved_left), Ok(moved_right)) =
        (distinct, left.swapped_with(right), right.swapped_with(left))
    else {
        return Ok(Written::Lost);
    };
    let records = [(left, moved_left), (right, moved_right)];
    let records = records.iter().map(|(seen, next)| records::replacing(table, seen.revision, next));
    let rows = swap.rows.iter().map(|part| rows::replacing(table, part));
    let parts = records.chain(rows).map(|put| TransactWriteItem::builder().put(put).build());
    written(transact(table, parts.collect()).await)
}
