//! Documents by collection and name, compared by revision.
//!
//! Not here: the contents of a document.

use bullpen_core::ids::Revision;
use bullpen_core::ports::{Document, Fault, ItemKind, Listing, Unreadable, Written};
use bullpen_core::time::Timestamp;

use super::keys;
use super::write::{item_of, landed, put};
use crate::fault::judge;
use crate::table::{Item, Stored, Table, n, s, seconds};

fn item(document: &Document) -> Item {
    item_of(
        &keys::document(&document.collection, &document.name),
        [
            ("v", Some(n(ItemKind::Document.version()))),
            ("rev", Some(n(document.revision))),
            ("collection_name", Some(s(&document.collection))),
            ("body_doc", Some(s(&document.body))),
            ("keep_until", document.forget_at.map(|at| n(at.as_millis()))),
            ("forget_at", document.forget_at.map(seconds)),
        ],
    )
}

fn decode(stored: &Stored) -> Result<Document, Fault> {
    Ok(Document {
        collection: stored.text("collection_name")?.to_owned(),
        name: stored.text("sk")?.to_owned(),
        revision: Revision(stored.number("rev")?),
        body: stored.text("body_doc")?.to_owned(),
        forget_at: stored.maybe_number("keep_until")?.map(Timestamp::from_millis),
    })
}

pub(super) async fn load(
    table: &Table,
    collection: &str,
    name: &str,
) -> Result<Option<Document>, Fault> {
    let stored = table.get(ItemKind::Document, &keys::document(collection, name), true).await?;
    stored.as_ref().map(decode).transpose()
}

/// Stores the document with the revision after `seen`, or with the first revision.
pub(super) async fn write(
    table: &Table,
    seen: Option<Revision>,
    document: &Document,
) -> Result<Written<Document>, Fault> {
    let next = Document { revision: seen.unwrap_or_default().next(), ..document.clone() };
    Ok(landed(&put(table, item(&next), seen).await?, next))
}

/// All documents of a collection, in the order of their names.
pub(super) async fn list(table: &Table, collection: &str) -> Result<Listing<Document>, Fault> {
    let mut found = Vec::new();
    let mut after: Option<Item> = None;
    loop {
        let answer = table
            .client
            .query()
            .table_name(&table.name)
            .key_condition_expression("pk = :pk")
            .expression_attribute_values(":pk", s(keys::documents(collection)))
            .consistent_read(true)
            .set_exclusive_start_key(after)
            .send()
            .await
            .map_err(|error| judge(&error).fault())?;
        for item in answer.items.unwrap_or_default() {
            let read = Stored::listed(ItemKind::Document, item, decode);
            found.push(
                read.map_err(|bad| Unreadable { key: format!("{collection}/{}", bad.key), ..bad }),
            );
        }
        // Every query begins after the last name found, so the loop ends.
        after = answer.last_evaluated_key;
        if after.is_none() {
            return Ok(found.into_iter().collect());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::fixture::{is_written_as, stored};

    #[test]
    fn a_document_matches_its_fixture() {
        let file = include_str!("../../fixtures/v1/document.json");
        let document = Document {
            collection: "run/7.1".to_owned(),
            name: "build".to_owned(),
            revision: Revision(2),
            body: "text".to_owned(),
            forget_at: Some(Timestamp::from_millis(1_768_809_600_123)),
        };
        is_written_as(&item(&document), file);
        assert_eq!(decode(&stored(ItemKind::Document, file)).unwrap(), document);
    }
}
