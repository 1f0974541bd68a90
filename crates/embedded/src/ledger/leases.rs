//! Leases, compared by revision.
//!
//! Not here: whether a lease has expired; only its observer can tell (`bullpen_core::lease`).

use bullpen_core::ids::{LeaseName, Revision};
use bullpen_core::lease::Lease;
use bullpen_core::ports::ItemKind;
use rusqlite::{Connection, OptionalExtension, params};

use crate::statement_fault::{StatementFault, decode};

pub(super) fn load(db: &Connection, name: &LeaseName) -> Result<Option<Lease>, StatementFault> {
    db.prepare_cached("SELECT body FROM leases WHERE name = ?1")?
        .query_row([name.as_str()], |row| Ok(decode(ItemKind::Lease, name.as_str(), row.get(0))))
        .optional()?
        .transpose()
        .map_err(StatementFault::from)
}

/// Stores `next` if the stored lease still has the seen revision, or is still absent.
pub(super) fn write(
    db: &Connection,
    seen: Option<Revision>,
    next: Lease,
) -> Result<Option<Lease>, StatementFault> {
    let body = serde_json::to_string(&next).expect("a lease has string keys only");
    let (name, revision) = (next.name.as_str(), next.revision.0);
    let changed = match seen {
        None => db
            .prepare_cached(
                "INSERT INTO leases (name, revision, body) VALUES (?1, ?2, ?3) \
                 ON CONFLICT DO NOTHING",
            )?
            .execute(params![name, revision, body])?,
        Some(seen) => db
            .prepare_cached(
                "UPDATE leases SET revision = ?2, body = ?3 WHERE name = ?1 AND revision = ?4",
            )?
            .execute(params![name, revision, body, seen.0])?,
    };
    Ok((changed == 1).then_some(next))
}
