//! Records of instances: encode, read, claim, replace and list them.
//!
//! A claim is one `UpdateItem` without a read before it: its condition and its assignments repeat
//! `Record::on`. The facts that a claim keeps from the idle record (the tier, the trust group that
//! ran last) are therefore attributes of their own, not parts of the claimed state's document.
//!
//! Not here: a machine's first record ([`super::creation`]).

use aws_sdk_dynamodb::types::{AttributeValue, Put, ReturnValue, TransactWriteItem};
use bullpen_core::ids::{ClassName, Generation, InstanceId, PoolName, Revision, TrustGroup};
use bullpen_core::instance::{InstanceFacts, Owner, Record, State, StateName, Tier};
use bullpen_core::message::Advert;
use bullpen_core::ports::{ClaimWrite, Fault, ItemKind, Listing, Page, Written};
use bullpen_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::keys::{self, Kind};
use super::listing::{self, Freshness};
use super::must;
use super::write::{item_of, landed, put};
use crate::batch::{self, TransactionPart};
use crate::fault::judge;
use crate::table::{Item, Stored, Table, json, n, s, seconds};
use crate::transaction::BUILT;

/// The parts of a record that no claim changes.
#[derive(Serialize, Deserialize)]
struct Lasting {
    facts: InstanceFacts,
    uses: u32,
    #[serde(default)]
    tainted: bool,
}

/// Encodes a record as an item.
pub(super) fn item(record: &Record) -> Item {
    let lasting =
        Lasting { facts: record.facts.clone(), uses: record.uses, tainted: record.tainted };
    let (tier, idle_until, trust_before) = match &record.state {
        State::Idle { tier, deadline, .. } => (Some(tier), Some(*deadline), None),
        State::Claimed { tier, trusted_before, .. } => (Some(tier), None, trusted_before.as_ref()),
        _ => (None, None, None),
    };
    let forget_at = match record.state {
        State::Terminated { forget_at, .. } => Some(forget_at),
        _ => None,
    };
    let place = record.state.listed_under().map(|owner| keys::place(owner, &record.id));
    let due = record.state.is_live().then(|| keys::timed(record.state.look_at(), &record.id));
    item_of(
        &keys::record(&record.id),
        [
            ("v", Some(n(ItemKind::Record.version()))),
            ("rev", Some(n(record.revision))),
            ("gen", Some(n(record.generation))),
            ("state_name", Some(s(record.state.name().as_str()))),
            ("state_doc", Some(json(&record.state))),
            ("lasting_doc", Some(json(&lasting))),
            ("tier_doc", tier.map(json)),
            ("idle_until", idle_until.map(|at| n(at.as_millis()))),
            ("trust_now", record.trust.as_ref().map(|trust| s(trust.as_str()))),
            ("trust_before", trust_before.map(|trust| s(trust.as_str()))),
            ("by_place", place.map(s)),
            ("by_idle", keys::idle(record).map(s)),
            ("by_live", keys::live(record).map(s)),
            ("by_due", due.map(s)),
            ("forget_at", forget_at.map(seconds)),
        ],
    )
}

/// Decodes the record in an item.
pub(super) fn decode(stored: &Stored) -> Result<Record, Fault> {
    let Lasting { facts, uses, tainted } = stored.document("lasting_doc")?;
    let mut state = stored.document("state_doc")?;
    if let State::Claimed { tier, trusted_before, .. } = &mut state {
        *tier = stored.document::<Tier>("tier_doc")?;
        *trusted_before = stored.maybe("trust_before").map(TrustGroup::new);
    }
    Ok(Record {
        id: InstanceId::new(stored.text("sk")?),
        facts,
        state,
        generation: Generation(stored.number("gen")?),
        revision: Revision(stored.number("rev")?),
        uses,
        trust: stored.maybe("trust_now").map(TrustGroup::new),
        tainted,
    })
}

pub(super) async fn load(table: &Table, id: &InstanceId) -> Result<Option<Record>, Fault> {
    let stored = table.get(ItemKind::Record, &keys::record(id), true).await?;
    stored.as_ref().map(decode).transpose()
}

/// Moves a record from idle to claimed, if the stored record allows it.
pub(super) async fn claim(table: &Table, write: &ClaimWrite) -> Result<Written<Record>, Fault> {
    const CLAIMABLE: &str =
        "v <= :v AND state_name = :idle AND gen = :seen AND idle_until > :too_close";
    const CLAIMED: &str = "SET state_name = :claimed, state_doc = :state, gen = :gen, \
         rev = rev + :one, trust_before = if_not_exists(trust_now, :none), trust_now = :trust, \
         by_place = :place, by_due = :due REMOVE by_idle, idle_until";
    let state = State::Claimed {
        owner: write.owner.clone(),
        claim: write.claim.clone(),
        // `decode` takes both from the attributes that the update keeps or copies.
        tier: Tier::Released,
        trusted_before: None,
        lease: write.lease,
    };
    let answer = table
        .client
        .update_item()
        .table_name(&table.name)
        .set_key(Some(keys::record(&write.id).attributes()))
        .update_expression(CLAIMED)
        .condition_expression(CLAIMABLE)
        .expression_attribute_values(":v", n(ItemKind::Record.version()))
        .expression_attribute_values(":idle", s(StateName::Idle.as_str()))
        .expression_attribute_values(":seen", n(write.seen))
        .expression_attribute_values(":too_close", n(write.at.after(write.margin).as_millis()))
        .expression_attribute_values(":claimed", s(StateName::Claimed.as_str()))
        .expression_attribute_values(":state", json(&state))
        .expression_attribute_values(":gen", n(write.seen.next()))
        .expression_attribute_values(":one", n(1))
        .expression_attribute_values(":none", AttributeValue::Null(true))
        .expression_attribute_values(":trust", s(write.trust.as_str()))
        .expression_attribute_values(":place", s(keys::place(&write.owner, &write.id)))
        .expression_attribute_values(":due", s(keys::timed(state.look_at(), &write.id)))
        .return_values(ReturnValue::AllNew)
        .send()
        .await;
    match answer {
        Ok(done) => {
            let item = done.attributes.unwrap_or_default();
            decode(&Stored::new(ItemKind::Record, item)?).map(Written::Won)
        }
        Err(error) => judge(&error).written(),
    }
}

/// Stores `next` with the revision after `seen`, if the stored revision is `seen`.
pub(super) async fn replace(
    table: &Table,
    seen: Revision,
    next: &Record,
) -> Result<Written<Record>, Fault> {
    must(next.state.is_live(), "only a burial stores a tombstone")?;
    let next = Record { revision: seen.next(), ..next.clone() };
    Ok(landed(&put(table, item(&next), Some(seen)).await?, next))
}

/// Replaces many records; each write is won or lost by itself.
pub(super) async fn replace_all(
    table: &Table,
    writes: &[(Record, Record)],
) -> Vec<Result<Written<Record>, Fault>> {
    let part = |(seen, next): &(Record, Record)| {
        let next = Record { revision: seen.revision.next(), ..next.clone() };
        let put = Put::builder()
            .table_name(&table.name)
            .set_item(Some(item(&next)))
            .condition_expression("rev = :seen")
            .expression_attribute_values(":seen", n(seen.revision))
            .build()
            .expect(BUILT);
        let write = TransactWriteItem::builder().put(put).build();
        next.state.is_live().then_some(TransactionPart { write, stores: next })
    };
    let alone = |number: usize| {
        let (seen, next) = &writes[number];
        replace(table, seen.revision, next)
    };
    batch::write(table, writes.iter().map(part).collect(), alone).await
}

/// Replaces a live record, as a part of a transaction.
pub(super) fn replacing(table: &Table, seen: Revision, next: &Record) -> Put {
    let next = Record { revision: seen.next(), ..next.clone() };
    Put::builder()
        .table_name(&table.name)
        .set_item(Some(item(&next)))
        .condition_expression("rev = :seen AND attribute_exists(by_live)")
        .expression_attribute_values(":seen", n(seen))
        .build()
        .expect(BUILT)
}

pub(super) async fn owned_by(table: &Table, owner: &Owner) -> Result<Listing<Record>, Fault> {
    listing::everything(table, Kind::Record, &keys::held_by(owner), decode).await
}

/// Oldest first.
pub(super) async fn idle_in(table: &Table, class: &ClassName) -> Result<Listing<Advert>, Fault> {
    let range = keys::idle_in(class);
    let records = listing::everything(table, Kind::Record, &range, decode).await?;
    Ok(records.filter_map(|record| record.advert()))
}

pub(super) async fn standing_by(table: &Table, pool: &PoolName) -> Result<Listing<Record>, Fault> {
    let range = keys::standing_by(pool);
    let records = listing::everything(table, Kind::Record, &range, decode).await?;
    Ok(records.filter_map(if_live))
}

fn if_live(record: Record) -> Option<Record> {
    record.state.is_live().then_some(record)
}

/// Earliest first.
pub(super) async fn due(
    table: &Table,
    before: Timestamp,
    after: Option<&str>,
) -> Result<Page<Record>, Fault> {
    sweep(table, keys::due_by(before), after).await
}

pub(super) async fn live(table: &Table, after: Option<&str>) -> Result<Page<Record>, Fault> {
    sweep(table, keys::all_live(), after).await
}

async fn sweep(
    table: &Table,
    range: keys::Range,
    after: Option<&str>,
) -> Result<Page<Record>, Fault> {
    let place = (after, Freshness::Sweep);
    let found = listing::page(table, Kind::Record, range, place, decode).await?;
    // The index may lag: drop records that have ended since.
    let (records, next) = found.split();
    Ok(Page::of(records.filter_map(if_live), next))
}

#[cfg(test)]
mod tests {
    use bullpen_core::class::{Architecture, Usage};

    use super::*;
    use crate::table::fixture::{is_written_as, stored};

    fn idle() -> Record {
        let at = Timestamp::from_millis(1_767_600_000_123);
        let facts = InstanceFacts {
            class: "linux-x64-large".into(),
            instance_type: "c6i.2xlarge".into(),
            vcpu: 8,
            memory_mib: 16_384,
            zone: "eu-central-1a".into(),
            usage: Usage::OnDemand,
            architecture: Architecture::X64,
            spec_hash: "1:0123456789abcdef0123456789abcdef".into(),
            pool: Some("linux-x64".into()),
            mailbox: "AROAEXAMPLEEXAMPLE123:i-0123456789abcdef0".into(),
            intent: "n-0123456789abcdef0123456789abcdef".into(),
            launched_at: at,
        };
        let owner = Owner::Pool("linux-x64".into());
        let born = Record::born("i-0123456789abcdef0".into(), facts, owner, None, at);
        let state = State::Idle { tier: Tier::Hot, since: at, deadline: at, shared: true };
        Record { state, trust: Some("octo-org/repository".into()), uses: 3, ..born }
    }

    fn bytes(item: &Item) -> usize {
        let value = |value: &AttributeValue| match value {
            AttributeValue::S(text) | AttributeValue::N(text) => text.len(),
            other => panic!("records have no {other:?}"),
        };
        item.iter().map(|(name, found)| name.len() + value(found)).sum()
    }

    #[test]
    fn an_idle_record_matches_its_fixture() {
        let file = include_str!("../../fixtures/v1/record-idle.json");
        is_written_as(&item(&idle()), file);
        assert_eq!(decode(&stored(ItemKind::Record, file)).unwrap(), idle());
    }

    #[test]
    fn a_claimed_record_takes_tier_and_trust_from_their_attributes() {
        // As a claim's update leaves it: without tier and trust in the document.
        let file = include_str!("../../fixtures/v1/record-claimed.json");
        let claimed = Record {
            state: State::Claimed {
                owner: Owner::Job("41234567890".into()),
                claim: "c-0123456789abcdef".into(),
                tier: Tier::Stopped,
                trusted_before: Some("octo-org/before".into()),
                lease: Timestamp::from_millis(1_767_600_300_123),
            },
            ..idle()
        };
        assert_eq!(decode(&stored(ItemKind::Record, file)).unwrap(), claimed);
        assert_eq!(
            decode(&Stored::new(ItemKind::Record, item(&claimed)).unwrap()).unwrap(),
            claimed
        );
    }

    /// A write unit is one kibibyte; every write of a larger record costs two.
    #[test]
    fn a_record_is_one_write_unit() {
        let size = bytes(&item(&idle()));
        assert!(size <= 1_024, "{size}");
    }
}
