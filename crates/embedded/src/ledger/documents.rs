//! Documents by collection and name, compared by revision.
//!
//! Not here: their contents.

use bullpen_core::ids::Revision;
use bullpen_core::ports::{Document, ItemKind, Listing, Unreadable};
use bullpen_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::FORGOTTEN_PER_WRITE_MAX;
use crate::statement_fault::StatementFault;

pub(super) fn load(
    db: &Connection,
    collection: &str,
    name: &str,
) -> Result<Option<Document>, StatementFault> {
    let found = db
        .prepare_cached(
            "SELECT collection, name, revision, body, forget_at FROM documents \
             WHERE collection = ?1 AND name = ?2",
        )?
        .query_row([collection, name], document)
        .optional()?;
    Ok(found)
}

/// Lists a collection in the order of names.
pub(super) fn list(db: &Connection, collection: &str) -> Result<Listing<Document>, StatementFault> {
    let mut statement = db.prepare_cached(
        "SELECT collection, name, revision, body, forget_at FROM documents \
         WHERE collection = ?1 ORDER BY name",
    )?;
    let mut rows = statement.query([collection])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let name: String = row.get(1)?;
        // A column of invalid bytes makes this document alone unreadable.
        let read = document(row);
        let key = format_args!("{collection}/{name}");
        found.push(read.map_err(|error| Unreadable::of(ItemKind::Document, key, "", error)));
    }
    Ok(found.into_iter().collect())
}

/// Stores the document one revision above `seen`, or as the first revision.
pub(super) fn write(
    db: &Connection,
    seen: Option<Revision>,
    next: Document,
    now: Timestamp,
) -> Result<Option<Document>, StatementFault> {
    let next = Document { revision: seen.map_or(Revision(1), Revision::next), ..next };
    let changed = match seen {
        Some(seen) => update(db, seen, &next)?,
        None => insert(db, &next, now)?,
    };
    Ok((changed == 1).then_some(next))
}

fn update(db: &Connection, seen: Revision, next: &Document) -> rusqlite::Result<usize> {
    db.prepare_cached(
        "UPDATE documents SET revision = ?3, body = ?4, forget_at = ?5 \
         WHERE collection = ?1 AND name = ?2 AND revision = ?6",
    )?
    .execute(params![
        next.collection,
        next.name,
        next.revision.0,
        next.body,
        next.forget_at.map(Timestamp::as_millis),
        seen.0,
    ])
}

/// Removes a few expired documents first: an expired document counts as absent.
fn insert(db: &Connection, next: &Document, now: Timestamp) -> rusqlite::Result<usize> {
    db.prepare_cached(
        "DELETE FROM documents WHERE (collection, name) IN (SELECT collection, name FROM documents \
         WHERE forget_at <= ?1 ORDER BY forget_at LIMIT ?2)",
    )?
    .execute(params![now.as_millis(), FORGOTTEN_PER_WRITE_MAX])?;
    db.prepare_cached(
        "INSERT INTO documents (collection, name, revision, body, forget_at) \
         VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING",
    )?
    .execute(params![
        next.collection,
        next.name,
        next.revision.0,
        next.body,
        next.forget_at.map(Timestamp::as_millis),
    ])
}

fn document(row: &Row<'_>) -> rusqlite::Result<Document> {
    Ok(Document {
        collection: row.get(0)?,
        name: row.get(1)?,
        revision: Revision(row.get(2)?),
        body: row.get(3)?,
        forget_at: row.get::<_, Option<i64>>(4)?.map(Timestamp::from_millis),
    })
}
