//! Intents, reservations and first records. Not here: launching machines.
//!
//! Each scope has one counter of its machines: an intent raises it in the same transaction, a
//! tombstone or a closed intent lowers it, a first record leaves it. Every such write is
//! conditional on a revision or an absence, so a repeated write counts once. Every launch writes
//! the stack's counter; an account launches a few machines a second, and DynamoDB takes hundreds of
//! writes a second to one item.

use aws_sdk_dynamodb::types::{
    Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
};
use bullpen_core::creation::{Ceiling, CeilingReached, Intent, Scope};
use bullpen_core::ids::{ClassName, IntentId, PoolName, Revision};
use bullpen_core::instance::Record;
use bullpen_core::limits::Limits;
use bullpen_core::ports::{Fault, ItemKind, Page, Recorded, Reserved, Written};
use bullpen_core::time::Timestamp;

use super::keys::{self, Kind};
use super::listing::{self, Freshness};
use super::records;
use super::write::{item_of, landed};
use crate::fault::Verdict;
use crate::table::{Item, Stored, Table, json, n, s, seconds};
use crate::transaction::{BUILT, FailedPart, Transacted, transact, written};

/// How often `record` guesses whether a machine is the last of its intent before it gives up.
const GUESSES_MAX: u32 = 4;

fn item(intent: &Intent, open: bool) -> Item {
    item_of(
        &keys::intent(&intent.id),
        [
            ("v", Some(n(ItemKind::Intent.version()))),
            ("rev", Some(n(intent.revision))),
            ("outstanding_count", Some(n(intent.outstanding))),
            ("intent_doc", Some(json(intent))),
            ("by_live", open.then(|| s(intent.id.as_str()))),
        ],
    )
}

fn decode(stored: &Stored) -> Result<Intent, Fault> {
    Ok(Intent {
        revision: Revision(stored.number("rev")?),
        outstanding: stored.number("outstanding_count")?,
        ..stored.document("intent_doc")?
    })
}

pub(super) async fn load(table: &Table, id: &IntentId) -> Result<Option<Intent>, Fault> {
    let stored = table.get(ItemKind::Intent, &keys::intent(id), true).await?;
    stored.as_ref().map(decode).transpose()
}

/// Intents with outstanding machines.
pub(super) async fn open(table: &Table, after: Option<&str>) -> Result<Page<Intent>, Fault> {
    let range = keys::all_live();
    let place = (after, Freshness::Sweep);
    let (intents, next) = listing::page(table, Kind::Intent, range, place, decode).await?.split();
    let open = |intent: Intent| (intent.outstanding > 0).then_some(intent);
    Ok(Page::of(intents.filter_map(open), next))
}

/// The scopes that count a machine of this class and pool.
fn scopes(class: &ClassName, pool: Option<&PoolName>) -> Vec<Scope> {
    let pool = pool.map(|pool| Scope::Pool(pool.clone()));
    [Scope::Stack, Scope::Class(class.clone())].into_iter().chain(pool).collect()
}

/// Adds `by` to one counter.
fn count(table: &Table, scope: &Scope, by: i64) -> Update {
    Update::builder()
        .table_name(&table.name)
        .set_key(Some(keys::counter(scope).attributes()))
        .update_expression("SET v = if_not_exists(v, :v) ADD held_count :by")
        .expression_attribute_values(":v", n(ItemKind::Counter.version()))
        .expression_attribute_values(":by", n(by))
        .build()
        .expect(BUILT)
}

/// Adds `wanted` to one counter unless that exceeds its ceiling.
fn count_below(table: &Table, ceiling: &Ceiling, wanted: u32) -> Update {
    let held_max = i64::from(ceiling.max) - i64::from(wanted);
    // An absent counter is zero, which fits unless `wanted` alone exceeds the ceiling.
    let fits = if held_max < 0 {
        "held_count <= :room"
    } else {
        "attribute_not_exists(held_count) OR held_count <= :room"
    };
    let mut update = count(table, &ceiling.scope, i64::from(wanted));
    update.condition_expression = Some(fits.to_owned());
    update.return_values_on_condition_check_failure =
        Some(ReturnValuesOnConditionCheckFailure::AllOld);
    let values = update.expression_attribute_values.get_or_insert_default();
    values.insert(":room".to_owned(), n(held_max));
    update
}

fn part_update(update: Update) -> TransactWriteItem {
    TransactWriteItem::builder().update(update).build()
}

fn part_put(put: Put) -> TransactWriteItem {
    TransactWriteItem::builder().put(put).build()
}

/// Stores an item if its key is free; otherwise DynamoDB returns the stored item.
fn part_first(table: &Table, item: Item) -> TransactWriteItem {
    let put = Put::builder()
        .table_name(&table.name)
        .set_item(Some(item))
        .condition_expression("attribute_not_exists(pk)")
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
    part_put(put.build().expect(BUILT))
}

/// The lowest ceiling on a scope.
fn lowest<'a>(ceilings: &'a [Ceiling], scope: &Scope) -> Option<&'a Ceiling> {
    ceilings.iter().filter(|ceiling| ceiling.scope == *scope).min_by_key(|ceiling| ceiling.max)
}

/// Stores the intent if it is new and all of its machines fit under every ceiling.
pub(super) async fn reserve(
    table: &Table,
    intent: &Intent,
    ceilings: &[Ceiling],
) -> Result<Written<Reserved>, Fault> {
    let intent = Intent { revision: Revision(1), ..intent.clone() };
    let scopes = scopes(&intent.class, intent.pool.as_ref());
    let counts = scopes.iter().map(|scope| match lowest(ceilings, scope) {
        Some(ceiling) => count_below(table, ceiling, intent.outstanding),
        None => count(table, scope, i64::from(intent.outstanding)),
    });
    let parts = std::iter::once(part_first(table, item(&intent, intent.outstanding > 0)))
        .chain(counts.map(part_update))
        .collect();
    match transact(table, parts).await {
        Ok(Transacted::Done) => Ok(Written::Won(Reserved::Granted)),
        Ok(Transacted::Failed(parts)) => {
            refused(&intent, ceilings, &scopes, &parts).map(Written::Won)
        }
        Err(verdict) => verdict.written(),
    }
}

/// How many machines each scope holds. An absent counter is zero.
pub(super) async fn used(table: &Table, scopes: &[Scope]) -> Result<Vec<u32>, Fault> {
    let counters =
        table.get_all(ItemKind::Counter, &scopes.iter().map(keys::counter).collect(), true).await?;
    let used = |scope| match counters.get(&keys::counter(scope)) {
        Some(counter) => counter.number("held_count"),
        None => Ok(0),
    };
    scopes.iter().map(used).collect()
}

/// Why DynamoDB refused a reservation: the intent exists, or a ceiling is reached.
fn refused(
    intent: &Intent,
    ceilings: &[Ceiling],
    scopes: &[Scope],
    parts: &[Option<FailedPart>],
) -> Result<Reserved, Fault> {
    if let Some(Some(FailedPart { stored: Some(known) })) = parts.first() {
        return decode(&Stored::new(ItemKind::Intent, known.clone())?).map(Reserved::Known);
    }
    for (scope, part) in scopes.iter().zip(parts.iter().skip(1)) {
        if let (Some(failed), Some(ceiling)) = (part, lowest(ceilings, scope)) {
            let stored = failed.stored.clone().map(|item| Stored::new(ItemKind::Counter, item));
            let (scope, wanted) = (scope.clone(), intent.outstanding);
            let used = match stored.transpose()? {
                Some(counter) => counter.number("held_count")?,
                None => 0,
            };
            return Ok(Reserved::Short(CeilingReached { scope, max: ceiling.max, used, wanted }));
        }
    }
    Err(Fault::Unclassified("a reservation failed without a reason".to_owned()))
}

/// Stores a machine's first record and takes the machine from its intent.
///
/// The write for an intent's last machine also removes the intent from its index. The first try
/// assumes that this machine is not the last; if it is, the failed condition returns the intent,
/// and the next try closes it.
pub(super) async fn record(
    table: &Table,
    record: &Record,
    now: Timestamp,
) -> Result<Written<Recorded>, Fault> {
    let record = Record { revision: Revision(1), ..record.clone() };
    let mut closes_at = None;
    for _ in 0..GUESSES_MAX {
        let parts = vec![
            part_first(table, records::item(&record)),
            part_update(take_one(table, &record.facts.intent, closes_at)),
        ];
        let parts = match transact(table, parts).await {
            Ok(Transacted::Done) => return Ok(Written::Won(Recorded::Stored(record))),
            Ok(Transacted::Failed(parts)) => parts,
            Err(verdict) => return verdict.written(),
        };
        let mut stored = parts.into_iter().map(|part| part.and_then(|failed| failed.stored));
        if let Some(known) = stored.next().flatten() {
            let known = Stored::new(ItemKind::Record, known)?;
            return records::decode(&known).map(Recorded::Known).map(Written::Won);
        }
        let read = |item| decode(&Stored::new(ItemKind::Intent, item)?);
        let intent = stored.next().flatten().map(read).transpose()?;
        closes_at = match intent {
            Some(intent) if intent.outstanding == 1 => Some(forget_at(&intent, now)),
            Some(intent) if intent.outstanding > 1 => None,
            _ => return Ok(Written::Won(Recorded::Refused)),
        };
    }
    Verdict::Contended.written()
}

/// Takes one outstanding machine from an intent; with `closes_at`, the last one.
fn take_one(table: &Table, id: &IntentId, closes_at: Option<Timestamp>) -> Update {
    const TAKE: &str = "SET outstanding_count = outstanding_count - :one, rev = rev + :one";
    let update = Update::builder()
        .table_name(&table.name)
        .set_key(Some(keys::intent(id).attributes()))
        .expression_attribute_values(":one", n(1))
        .expression_attribute_values(":v", n(ItemKind::Intent.version()))
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
    let update = match closes_at {
        None => update
            .update_expression(TAKE)
            .condition_expression("v <= :v AND outstanding_count > :one"),
        Some(at) => update
            .update_expression(format!("{TAKE}, forget_at = :forget REMOVE by_live"))
            .condition_expression("v <= :v AND outstanding_count = :one")
            .expression_attribute_values(":forget", seconds(at)),
    };
    update.build().expect(BUILT)
}

/// Closes an intent and returns its outstanding machines to the counters, unless it has changed.
pub(super) async fn give_back(
    table: &Table,
    seen: &Intent,
    now: Timestamp,
) -> Result<Written<()>, Fault> {
    let close = Update::builder()
        .table_name(&table.name)
        .set_key(Some(keys::intent(&seen.id).attributes()))
        .update_expression(
            "SET outstanding_count = :none, rev = rev + :one, forget_at = :forget REMOVE by_live",
        )
        .condition_expression("rev = :seen")
        .expression_attribute_values(":none", n(0))
        .expression_attribute_values(":one", n(1))
        .expression_attribute_values(":seen", n(seen.revision))
        .expression_attribute_values(":forget", seconds(forget_at(seen, now)))
        .build()
        .expect(BUILT);
    let scopes = scopes(&seen.class, seen.pool.as_ref());
    let counts = scopes.iter().map(|scope| count(table, scope, -i64::from(seen.outstanding)));
    let parts = std::iter::once(close).chain(counts).map(part_update).collect();
    written(transact(table, parts).await)
}

/// Stores a tombstone and lowers the counters of its scopes.
pub(super) async fn bury(
    table: &Table,
    seen: Revision,
    tombstone: &Record,
) -> Result<Written<Record>, Fault> {
    let next = Record { revision: seen.next(), ..tombstone.clone() };
    let scopes = scopes(&next.facts.class, next.facts.pool.as_ref());
    let counts = scopes.iter().map(|scope| part_update(count(table, scope, -1)));
    let parts =
        std::iter::once(part_put(records::replacing(table, seen, &next))).chain(counts).collect();
    Ok(landed(&written(transact(table, parts).await)?, next))
}

/// The ledger keeps a closed intent as long as a tombstone: a launch whose answer is late finds the
/// intent closed and terminates its machines.
fn forget_at(intent: &Intent, now: Timestamp) -> Timestamp {
    now.max(intent.deadline).after(Limits::DEFAULT.tombstone_ttl)
}

#[cfg(test)]
mod tests {
    use bullpen_core::class::Usage;
    use bullpen_core::instance::Owner;

    use super::*;
    use crate::table::fixture::{is_written_as, stored};

    #[test]
    fn an_intent_matches_its_fixture() {
        let file = include_str!("../../fixtures/v1/intent.json");
        let intent = Intent {
            id: "n-1".into(),
            owner: Owner::Job("41234567890".into()),
            trust: Some("octo-org/repository".into()),
            class: "linux-x64-large".into(),
            pool: None,
            usage: Usage::Spot,
            spec_hash: "1:abc".into(),
            count: 3,
            avoid: std::collections::BTreeSet::new(),
            outstanding: 2,
            deadline: Timestamp::from_millis(1_767_600_000_123),
            revision: Revision(4),
        };
        is_written_as(&item(&intent, true), file);
        assert_eq!(decode(&stored(ItemKind::Intent, file)).unwrap(), intent);
    }

    #[test]
    fn the_lowest_of_several_ceilings_counts() {
        let ceiling = |max| Ceiling { scope: Scope::Stack, max };
        assert_eq!(lowest(&[ceiling(5), ceiling(3)], &Scope::Stack), Some(&ceiling(3)));
        assert_eq!(lowest(&[ceiling(5)], &Scope::Class("large".into())), None);
    }
}
