//! A DynamoDB table: encode items, check their version, read one or many.
//!
//! Every item has `v`, the version of its kind's shape ([`ItemKind::version`]); a reader refuses an
//! item with a newer version and changes nothing. Every document in an item is JSON, so that an operator can read it.
//!
//! Not here: conditions; each is beside the write that it guards.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use aws_config::SdkConfig;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{AttributeValue, KeysAndAttributes};
use bullpen_core::ports::{Fault, ItemKind, Unreadable};
use bullpen_core::time::Timestamp;
use futures_util::future::try_join_all;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::fault::judge;

/// The most keys that `BatchGetItem` accepts in one call.
const KEYS_PER_CALL_MAX: usize = 100;

/// An item, as the SDK represents it.
#[expect(clippy::disallowed_types, reason = "the SDK's type; nothing here depends on its order")]
pub(crate) type Item = std::collections::HashMap<String, AttributeValue>;

/// A text attribute.
pub(crate) fn s(text: impl Into<String>) -> AttributeValue {
    AttributeValue::S(text.into())
}

/// A number attribute; never more digits than DynamoDB keeps.
pub(crate) fn n(number: impl Display) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

/// A JSON document in a text attribute.
pub(crate) fn json(document: &impl Serialize) -> AttributeValue {
    s(serde_json::to_string(document).expect("our documents have string keys only"))
}

/// The time after which DynamoDB may delete an item: whole seconds, never early.
pub(crate) fn seconds(at: Timestamp) -> AttributeValue {
    const MILLIS_PER_SECOND: i64 = 1_000;
    n(at.as_millis().div_euclid(MILLIS_PER_SECOND) + 1)
}

/// The key of an item.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) pk: String,
    /// The mailbox table has none: its policy confines an instance to its own two values of `pk`.
    pub(crate) sk: Option<String>,
}

impl Key {
    /// The key as attributes.
    pub(crate) fn attributes(&self) -> Item {
        let sk = self.sk.as_ref().map(|sk| ("sk".to_owned(), s(sk)));
        std::iter::once(("pk".to_owned(), s(&self.pk))).chain(sk).collect()
    }

    /// An item's key.
    fn of(item: &Item) -> Option<Self> {
        let text = |name: &str| item.get(name)?.as_s().ok().cloned();
        Some(Self { pk: text("pk")?, sk: text("sk") })
    }

    fn name(&self) -> String {
        match &self.sk {
            Some(sk) => format!("{}/{sk}", self.pk),
            None => self.pk.clone(),
        }
    }
}

/// An item whose version this program can read.
#[derive(Debug)]
pub(crate) struct Stored {
    item: Item,
    name: String,
}

impl Stored {
    /// Checks the version.
    pub(crate) fn new(kind: ItemKind, item: Item) -> Result<Self, Fault> {
        let name = Key::of(&item).map_or_else(String::new, |key| key.name());
        let stored = Self { item, name };
        let newest = kind.version();
        match stored.number::<u32>("v")? {
            found if found > newest => Err(stored.unreadable(&format!(
                "the item has version {found}; this program reads up to {newest}"
            ))),
            _ => Ok(stored),
        }
    }

    /// Reads an item of a listing.
    pub(crate) fn listed<T>(
        kind: ItemKind,
        item: Item,
        decode: impl Fn(&Self) -> Result<T, Fault>,
    ) -> Result<T, Unreadable> {
        let version = item.get("v").and_then(|found| found.as_n().ok().cloned());
        let key = item.get("sk").and_then(|found| found.as_s().ok().cloned()).unwrap_or_default();
        let read = Self::new(kind, item).and_then(|stored| decode(&stored));
        read.map_err(|fault| match fault {
            Fault::Unreadable(why) => Unreadable { kind, key, version, why },
            other => Unreadable { kind, key, version, why: other.to_string() },
        })
    }

    /// The texts of all attributes whose names begin with `with`, by the rest of the name; `None`
    /// if one of them is not a text.
    pub(crate) fn texts_beginning(&self, with: &str) -> Option<BTreeMap<&str, &str>> {
        let named =
            self.item.iter().filter_map(|(name, value)| Some((name.strip_prefix(with)?, value)));
        named.map(|(name, value)| Some((name, value.as_s().ok()?.as_str()))).collect()
    }

    /// Whether the item has this attribute, of any type.
    pub(crate) fn has(&self, attribute: &str) -> bool {
        self.item.contains_key(attribute)
    }

    /// An optional text attribute.
    pub(crate) fn maybe(&self, attribute: &str) -> Option<&str> {
        self.item.get(attribute)?.as_s().ok().map(String::as_str)
    }

    /// A required text attribute.
    pub(crate) fn text(&self, attribute: &str) -> Result<&str, Fault> {
        self.maybe(attribute).ok_or_else(|| self.unreadable(&format!("no text {attribute:?}")))
    }

    /// An optional number attribute.
    pub(crate) fn maybe_number<T: std::str::FromStr>(
        &self,
        attribute: &str,
    ) -> Result<Option<T>, Fault> {
        let Some(value) = self.item.get(attribute) else { return Ok(None) };
        let number = value.as_n().ok().and_then(|digits| digits.parse().ok());
        let refusal = || self.unreadable(&format!("{attribute:?} is not a number in range"));
        number.map(Some).ok_or_else(refusal)
    }

    /// A required number attribute.
    pub(crate) fn number<T: std::str::FromStr>(&self, attribute: &str) -> Result<T, Fault> {
        let number = self.maybe_number(attribute)?;
        number.ok_or_else(|| self.unreadable(&format!("no number {attribute:?}")))
    }

    /// A required JSON document.
    pub(crate) fn document<T: DeserializeOwned>(&self, attribute: &str) -> Result<T, Fault> {
        serde_json::from_str(self.text(attribute)?)
            .map_err(|error| self.unreadable(&format!("{attribute:?}: {error}")))
    }

    /// The fault for an item that cannot be read.
    pub(crate) fn unreadable(&self, why: &str) -> Fault {
        Fault::Unreadable(format!("{}: {why}", self.name))
    }
}

/// A table and the client that calls it.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) client: Client,
    pub(crate) name: String,
}

impl Table {
    /// The table of this name.
    pub(crate) fn new(config: &SdkConfig, name: String) -> Self {
        Self { client: Client::new(config), name }
    }

    /// Reads one item.
    pub(crate) async fn get(
        &self,
        kind: ItemKind,
        key: &Key,
        consistent: bool,
    ) -> Result<Option<Stored>, Fault> {
        let call = self.client.get_item().table_name(&self.name).set_key(Some(key.attributes()));
        let answer = call.consistent_read(consistent).send().await;
        let found = answer.map_err(|error| judge(&error).fault())?.item;
        found.map(|item| Stored::new(kind, item)).transpose()
    }

    /// Reads many items; the answer omits absent ones.
    pub(crate) async fn get_all(
        &self,
        kind: ItemKind,
        keys: &BTreeSet<Key>,
        consistent: bool,
    ) -> Result<BTreeMap<Key, Stored>, Fault> {
        let found = self.get_each(keys, consistent, |item| Stored::new(kind, item)).await?;
        found.into_iter().map(|(key, stored)| Ok((key, stored?))).collect()
    }

    /// Reads many items and decodes each with `read`; the answer omits absent ones. It keeps no raw
    /// item: an instance may fill its own up to 400 KB.
    pub(crate) async fn get_each<T>(
        &self,
        keys: &BTreeSet<Key>,
        consistent: bool,
        read: impl Fn(Item) -> T,
    ) -> Result<BTreeMap<Key, T>, Fault> {
        let (keys, read) = (keys.iter().collect::<Vec<&Key>>(), &read);
        let chunks = keys.chunks(KEYS_PER_CALL_MAX);
        let calls = chunks.map(|chunk| self.get_chunk(chunk, consistent, read));
        Ok(try_join_all(calls).await?.into_iter().flatten().collect())
    }

    /// Asks again for the keys that DynamoDB left unprocessed, as long as every answer has
    /// progress.
    async fn get_chunk<T>(
        &self,
        keys: &[&Key],
        consistent: bool,
        read: impl Fn(Item) -> T,
    ) -> Result<Vec<(Key, T)>, Fault> {
        let mut left: Vec<Item> = keys.iter().map(|key| key.attributes()).collect();
        let mut found = Vec::new();
        // Every answer leaves fewer keys, so the loop ends.
        while !left.is_empty() {
            let asked = left.len();
            let wanted = KeysAndAttributes::builder().set_keys(Some(left));
            let wanted = wanted.consistent_read(consistent).build();
            let wanted = wanted.map_err(|error| Fault::Unclassified(error.to_string()))?;
            let call = self.client.batch_get_item().request_items(&self.name, wanted);
            let answer = call.send().await.map_err(|error| judge(&error).fault())?;
            let answered = answer.responses.and_then(|mut tables| tables.remove(&self.name));
            let named = answered.unwrap_or_default().into_iter();
            found.extend(named.filter_map(|item| Some((Key::of(&item)?, read(item)))));
            let unprocessed =
                answer.unprocessed_keys.and_then(|mut tables| tables.remove(&self.name));
            left = unprocessed.map(|keys| keys.keys).unwrap_or_default();
            if left.len() >= asked {
                return Err(Fault::Throttled);
            }
        }
        Ok(found)
    }
}

/// Items in fixture files: every version that was ever written must stay readable.
#[cfg(test)]
pub(crate) mod fixture {
    use serde_json::{Map, Value};

    use super::{AttributeValue, ItemKind, Stored};

    /// Reads an item from a JSON file of texts, numbers and nulls.
    pub(crate) fn stored(kind: ItemKind, file: &str) -> Stored {
        let parsed: Map<String, Value> = serde_json::from_str(file).unwrap();
        let value = |value: Value| match value {
            Value::String(text) => AttributeValue::S(text),
            Value::Number(number) => AttributeValue::N(number.to_string()),
            Value::Null => AttributeValue::Null(true),
            other => panic!("unexpected value {other}"),
        };
        let item = parsed.into_iter().map(|(name, found)| (name, value(found))).collect();
        Stored::new(kind, item).unwrap()
    }

    /// Fails if an item's encoding differs from the file.
    #[cfg(feature = "ledger")]
    pub(crate) fn is_written_as(item: &super::Item, file: &str) {
        let value = |value: &AttributeValue| match value {
            AttributeValue::S(text) => Value::from(text.as_str()),
            AttributeValue::N(digits) => serde_json::from_str(digits).unwrap(),
            other => panic!("unexpected value {other:?}"),
        };
        let written: Map<String, Value> =
            item.iter().map(|(name, found)| (name.clone(), value(found))).collect();
        let expected: Value = serde_json::from_str(file).unwrap();
        let written = Value::from(written);
        assert_eq!(written, expected, "written as\n{written:#}");
    }
}
