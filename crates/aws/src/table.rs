//! One DynamoDB table as this room uses it: items, their version, reading one or many.
//!
//! Every item carries `v`, the version of its shape. A reader that meets a newer one says so and
//! touches nothing. Every document in an item is JSON, so that an operator can read it.
//!
//! Not here: conditions; each write has its own, beside the rule that it keeps.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use aws_config::SdkConfig;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{AttributeValue, KeysAndAttributes};
use bullpen_core::ports::Fault;
use bullpen_core::time::Timestamp;
use futures_util::future::try_join_all;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::fault::judge;

/// The version of every item's shape that is written.
pub(crate) const ITEM_VERSION: u32 = 1;
/// Keys per call: what `BatchGetItem` allows.
const KEYS_PER_CALL_MAX: usize = 100;

/// An item, as the SDK has it.
#[expect(clippy::disallowed_types, reason = "the SDK's type; nothing here depends on its order")]
pub(crate) type Item = std::collections::HashMap<String, AttributeValue>;

/// A text.
pub(crate) fn s(text: impl Into<String>) -> AttributeValue {
    AttributeValue::S(text.into())
}

/// A number; never more digits than DynamoDB keeps.
pub(crate) fn n(number: impl Display) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

/// A document.
pub(crate) fn json(document: &impl Serialize) -> AttributeValue {
    s(serde_json::to_string(document).expect("our documents have string keys only"))
}

/// When DynamoDB may delete an item by itself: whole seconds, never early.
pub(crate) fn seconds(at: Timestamp) -> AttributeValue {
    const MILLIS_PER_SECOND: i64 = 1_000;
    n(at.as_millis().div_euclid(MILLIS_PER_SECOND) + 1)
}

/// Where an item is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) pk: String,
    /// The mailboxes' table has none: an instance is confined to its own two `pk`.
    pub(crate) sk: Option<String>,
}

impl Key {
    /// The attributes that are the key.
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

/// An item that is known to be of a version that can be read.
#[derive(Debug)]
pub(crate) struct Stored {
    item: Item,
    name: String,
}

impl Stored {
    /// Checks the version.
    pub(crate) fn new(item: Item) -> Result<Self, Fault> {
        let name = Key::of(&item).map_or_else(String::new, |key| key.name());
        let stored = Self { item, name };
        match stored.number::<u32>("v")? {
            found if found > ITEM_VERSION => Err(stored.unreadable(&format!(
                "the item has version {found}; this program reads up to {ITEM_VERSION}"
            ))),
            _ => Ok(stored),
        }
    }

    /// The texts of all attributes that begin so, in the order of their names, which are cut off
    /// there; none if one of them is no text.
    pub(crate) fn texts_beginning(&self, with: &str) -> Option<BTreeMap<&str, &str>> {
        let named =
            self.item.iter().filter_map(|(name, value)| Some((name.strip_prefix(with)?, value)));
        named.map(|(name, value)| Some((name, value.as_s().ok()?.as_str()))).collect()
    }

    /// Whether there is such an attribute, of any type.
    pub(crate) fn has(&self, attribute: &str) -> bool {
        self.item.contains_key(attribute)
    }

    /// A text that may be absent.
    pub(crate) fn maybe(&self, attribute: &str) -> Option<&str> {
        self.item.get(attribute)?.as_s().ok().map(String::as_str)
    }

    /// A text.
    pub(crate) fn text(&self, attribute: &str) -> Result<&str, Fault> {
        self.maybe(attribute).ok_or_else(|| self.unreadable(&format!("no text {attribute:?}")))
    }

    /// A number that may be absent.
    pub(crate) fn maybe_number<T: std::str::FromStr>(
        &self,
        attribute: &str,
    ) -> Result<Option<T>, Fault> {
        let Some(value) = self.item.get(attribute) else { return Ok(None) };
        let number = value.as_n().ok().and_then(|digits| digits.parse().ok());
        number.map(Some).ok_or_else(|| self.unreadable(&format!("{attribute:?} is no such number")))
    }

    /// A number.
    pub(crate) fn number<T: std::str::FromStr>(&self, attribute: &str) -> Result<T, Fault> {
        let number = self.maybe_number(attribute)?;
        number.ok_or_else(|| self.unreadable(&format!("no number {attribute:?}")))
    }

    /// A document.
    pub(crate) fn document<T: DeserializeOwned>(&self, attribute: &str) -> Result<T, Fault> {
        serde_json::from_str(self.text(attribute)?)
            .map_err(|error| self.unreadable(&format!("{attribute:?}: {error}")))
    }

    /// The fault for an item that cannot be read.
    pub(crate) fn unreadable(&self, why: &str) -> Fault {
        Fault::Unreadable(format!("{}: {why}", self.name))
    }
}

/// A table.
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

    /// One item.
    pub(crate) async fn get(&self, key: &Key, consistent: bool) -> Result<Option<Stored>, Fault> {
        let call = self.client.get_item().table_name(&self.name).set_key(Some(key.attributes()));
        let answer = call.consistent_read(consistent).send().await;
        let found = answer.map_err(|error| judge(&error).fault())?.item;
        found.map(Stored::new).transpose()
    }

    /// Many items by key; absent ones are left out.
    pub(crate) async fn get_all(
        &self,
        keys: &BTreeSet<Key>,
        consistent: bool,
    ) -> Result<BTreeMap<Key, Stored>, Fault> {
        let found = self.get_each(keys, consistent, Stored::new).await?;
        found.into_iter().map(|(key, stored)| Ok((key, stored?))).collect()
    }

    /// What `read` makes of each of many items; absent ones are left out. An item is dropped as soon as
    /// it is read: an instance may have filled its own up to 400 KB.
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

    /// Asks again for what the service left out, as long as every answer brings something.
    async fn get_chunk<T>(
        &self,
        keys: &[&Key],
        consistent: bool,
        read: impl Fn(Item) -> T,
    ) -> Result<Vec<(Key, T)>, Fault> {
        let mut left: Vec<Item> = keys.iter().map(|key| key.attributes()).collect();
        let mut found = Vec::new();
        // Each answer leaves less, so this ends.
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

/// Items as files: what was once written must stay readable.
#[cfg(test)]
pub(crate) mod fixture {
    use serde_json::{Map, Value};

    use super::{AttributeValue, Stored};

    /// An item from a file, where texts, numbers and nulls are written as in JSON.
    pub(crate) fn stored(file: &str) -> Stored {
        let parsed: Map<String, Value> = serde_json::from_str(file).unwrap();
        let value = |value: Value| match value {
            Value::String(text) => AttributeValue::S(text),
            Value::Number(number) => AttributeValue::N(number.to_string()),
            Value::Null => AttributeValue::Null(true),
            other => panic!("no item has {other}"),
        };
        let item = parsed.into_iter().map(|(name, found)| (name, value(found))).collect();
        Stored::new(item).unwrap()
    }

    /// Fails if an item is not written as it is in the file.
    #[cfg(feature = "ledger")]
    pub(crate) fn is_written_as(item: &super::Item, file: &str) {
        let value = |value: &AttributeValue| match value {
            AttributeValue::S(text) => Value::from(text.as_str()),
            AttributeValue::N(digits) => serde_json::from_str(digits).unwrap(),
            other => panic!("no item has {other:?}"),
        };
        let written: Map<String, Value> =
            item.iter().map(|(name, found)| (name.clone(), value(found))).collect();
        let expected: Value = serde_json::from_str(file).unwrap();
        let written = Value::from(written);
        assert_eq!(written, expected, "written as\n{written:#}");
    }
}
