//! Read the local indexes: a whole directory, or one page of a sweep.
//!
//! An index holds keys only. A listing queries every shard, merges the keys in order, and then
//! reads the current items.
//!
//! Not here: the contents of an item.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use bullpen_core::ports::{Fault, Listing, Page, Unreadable};
use futures_util::future::try_join_all;

use super::keys::{Kind, Range, SHARDS};
use crate::fault::judge;
use crate::table::{Item, Key, Stored, Table, s};

/// The most keys of one shard in one page of a sweep.
const KEYS_PER_SHARD: i32 = 50;

/// One shard's answer: sort keys with their ids, and whether there are more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ShardPage {
    keys: Vec<(String, String)>,
    more: bool,
}

/// How fresh a listing must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freshness {
    /// Consistent: sees every write that DynamoDB answered before.
    Directory,
    /// May lag behind writes.
    Sweep,
}

impl Freshness {
    fn consistent(self) -> bool {
        self == Self::Directory
    }
}

/// Everything in a range, in the order of its sort keys.
pub(super) async fn everything<T>(
    table: &Table,
    kind: Kind,
    range: &Range,
    decode: impl Fn(&Stored) -> Result<T, Fault>,
) -> Result<Listing<T>, Fault> {
    let shards = (0..SHARDS).map(|shard| all_of(table, kind, shard, range));
    let mut keys: Vec<_> = try_join_all(shards).await?.into_iter().flatten().collect();
    keys.sort_unstable();
    read(table, kind, keys, Freshness::Directory, decode).await
}

/// One page of a range, in the order of its sort keys.
pub(super) async fn page<T>(
    table: &Table,
    kind: Kind,
    range: Range,
    (after, freshness): (Option<&str>, Freshness),
    decode: impl Fn(&Stored) -> Result<T, Fault>,
) -> Result<Page<T>, Fault> {
    let range = match after {
        Some(cursor) => range.after(cursor),
        None => range,
    };
    if range.is_empty() {
        return Ok(Page::of(Vec::new().into(), None));
    }
    let shards = (0..SHARDS).map(|shard| {
        let call = query(table, kind, shard, &range).limit(KEYS_PER_SHARD);
        one_answer(call.consistent_read(freshness.consistent()), range.index.name())
    });
    let (keys, next) = merged(try_join_all(shards).await?);
    Ok(Page::of(read(table, kind, keys, freshness, decode).await?, next))
}

/// The first sort keys of a range in one shard.
pub(super) async fn first_of(
    table: &Table,
    kind: Kind,
    shard: u64,
    range: &Range,
) -> Result<Vec<String>, Fault> {
    let call = query(table, kind, shard, range).limit(KEYS_PER_SHARD).consistent_read(true);
    let found = one_answer(call, range.index.name()).await?;
    Ok(found.keys.into_iter().map(|(sort, _)| sort).collect())
}

/// Merges the shards' keys, up to the lowest key at which an unfinished shard stopped: that shard
/// may hold keys that belong between the others' later ones.
fn merged(shards: Vec<ShardPage>) -> (Vec<(String, String)>, Option<String>) {
    let stopped_at = |found: &ShardPage| {
        let last = found.keys.last().filter(|_| found.more);
        last.map(|(sort, _)| sort.clone())
    };
    let next = shards.iter().filter_map(stopped_at).min();
    let mut keys: Vec<_> = shards.into_iter().flat_map(|found| found.keys).collect();
    keys.retain(|(sort, _)| next.as_ref().is_none_or(|next| sort <= next));
    keys.sort_unstable();
    (keys, next)
}

async fn all_of(
    table: &Table,
    kind: Kind,
    shard: u64,
    range: &Range,
) -> Result<Vec<(String, String)>, Fault> {
    let mut keys = Vec::new();
    let mut range = range.clone();
    loop {
        let call = query(table, kind, shard, &range).consistent_read(true);
        let found = one_answer(call, range.index.name()).await?;
        keys.extend(found.keys);
        // Every query begins after the last key found, so the loop ends.
        match keys.last().filter(|_| found.more) {
            Some((last, _)) => range = range.after(last),
            None => return Ok(keys),
        }
    }
}

fn query(table: &Table, kind: Kind, shard: u64, range: &Range) -> QueryFluentBuilder {
    let sort = range.index.name();
    table
        .client
        .query()
        .table_name(&table.name)
        .index_name(sort)
        .key_condition_expression(format!("pk = :pk AND {sort} BETWEEN :first AND :last"))
        .expression_attribute_values(":pk", s(kind.partition(shard)))
        .expression_attribute_values(":first", s(&range.first))
        .expression_attribute_values(":last", s(&range.last))
}

async fn one_answer(call: QueryFluentBuilder, sort: &str) -> Result<ShardPage, Fault> {
    let answer = call.send().await.map_err(|error| judge(&error).fault())?;
    let more = answer.last_evaluated_key.is_some();
    let text = |item: &Item, name: &str| item.get(name)?.as_s().ok().cloned();
    let key = |item: &Item| Some((text(item, sort)?, text(item, "sk")?));
    let keys = answer.items.unwrap_or_default().iter().filter_map(key).collect();
    Ok(ShardPage { keys, more })
}

/// The current items of these keys, in the keys' order.
async fn read<T>(
    table: &Table,
    kind: Kind,
    keys: Vec<(String, String)>,
    freshness: Freshness,
    decode: impl Fn(&Stored) -> Result<T, Fault>,
) -> Result<Listing<T>, Fault> {
    let keys: Vec<Key> = keys.iter().map(|(_, id)| kind.key(id)).collect();
    let wanted: BTreeSet<Key> = keys.iter().cloned().collect();
    let item = |item| Stored::listed(kind.item(), item, &decode);
    let mut found: BTreeMap<Key, Result<T, Unreadable>> =
        table.get_each(&wanted, freshness.consistent(), item).await?;
    Ok(keys.iter().filter_map(|key| found.remove(key)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(keys: &[&str], more: bool) -> ShardPage {
        let keys = keys.iter().map(|key| ((*key).to_owned(), format!("id-{key}"))).collect();
        ShardPage { keys, more }
    }

    fn sorts(keys: &[(String, String)]) -> Vec<&str> {
        keys.iter().map(|(sort, _)| sort.as_str()).collect()
    }

    #[test]
    fn shards_are_merged_in_order() {
        let (keys, next) = merged(vec![found(&["b", "d"], false), found(&["a", "c"], false)]);
        assert_eq!((sorts(&keys), next), (vec!["a", "b", "c", "d"], None));
    }

    #[test]
    fn a_page_ends_where_the_first_unfinished_shard_stopped() {
        let shards = vec![found(&["a", "z"], false), found(&["b", "c"], true), found(&[], false)];
        let (keys, next) = merged(shards);
        assert_eq!((sorts(&keys), next.as_deref()), (vec!["a", "b", "c"], Some("c")));
        let shards = vec![found(&["a", "b"], true), found(&["c", "d"], true)];
        let (keys, next) = merged(shards);
        assert_eq!((sorts(&keys), next.as_deref()), (vec!["a", "b"], Some("b")));
    }

    #[test]
    fn empty_shards_make_one_empty_page() {
        assert_eq!(merged(vec![ShardPage::default(); 8]), (Vec::new(), None));
    }
}
