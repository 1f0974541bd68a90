//! Write one item if it still has the revision that the caller read.
//!
//! Not here: an item's contents, or writing several ([`crate::transaction`], [`crate::batch`]).

use aws_sdk_dynamodb::types::AttributeValue;
use bullpen_core::ids::Revision;
use bullpen_core::ports::{Fault, Written};

use crate::fault::judge;
use crate::table::{Item, Key, Table, n};

/// Builds an item from its key and the attributes that are present.
pub(super) fn item_of<const N: usize>(
    key: &Key,
    attributes: [(&str, Option<AttributeValue>); N],
) -> Item {
    let mut item = key.attributes();
    let present =
        attributes.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    item.extend(present);
    item
}

/// Stores an item if the stored one still has revision `seen`, or is still absent.
pub(super) async fn put(
    table: &Table,
    item: Item,
    seen: Option<Revision>,
) -> Result<Written<()>, Fault> {
    let put = table.client.put_item().table_name(&table.name).set_item(Some(item));
    let put = match seen {
        Some(seen) => {
            put.condition_expression("rev = :seen").expression_attribute_values(":seen", n(seen))
        }
        None => put.condition_expression("attribute_not_exists(pk)"),
    };
    match put.send().await {
        Ok(_) => Ok(Written::Won(())),
        Err(error) => judge(&error).written(),
    }
}

/// A write's answer, with the value that it stored.
pub(super) fn landed<T>(written: &Written<()>, stored: T) -> Written<T> {
    match written {
        Written::Won(()) => Written::Won(stored),
        Written::Lost => Written::Lost,
        Written::Unknown => Written::Unknown,
    }
}
