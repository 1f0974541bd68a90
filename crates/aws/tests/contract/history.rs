//! The cost of listings in a table with a long history: it depends on the listed records only.
//!
//! Not here: the cost of other operations ([`crate::calls`]).

use std::future::Future;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{AttributeValue, PutRequest, WriteRequest};
use bullpen_aws::DynamoLedger;
use bullpen_core::instance::{InstanceEvent, Owner, Record};
use bullpen_core::ports::{Clock, Fault, Ledger, Page};
use bullpen_sim::clock::ManualClock;

use crate::World;
use crate::emulator::block_on;
use crate::fixtures::{HOUR, claim, condemned, idles, won};

const TABLE: &str = "contract-state";
const LIVE: u32 = 1_000;
const CLAIMED: usize = 120;
const TOMBSTONES: usize = 5_000;

#[expect(clippy::disallowed_types, reason = "the SDK's type")]
type Item = std::collections::HashMap<String, AttributeValue>;

/// How many calls a listing took, and how much it returned.
type Cost = (u64, usize);

async fn counted(world: &World, listing: impl Future<Output = usize>) -> Cost {
    let arrived = || world.proxy().counts().total().arrived;
    let before = arrived();
    let found = listing.await;
    (arrived() - before, found)
}

/// The number of records on all pages of a sweep.
async fn swept(page_after: impl AsyncFn(Option<&str>) -> Result<Page<Record>, Fault>) -> usize {
    let (mut found, mut next): (usize, Option<String>) = (0, None);
    loop {
        let page = page_after(next.as_deref()).await.expect("a call without faults");
        found += page.items.len();
        next = page.next;
        if next.is_none() {
            return found;
        }
    }
}

async fn costs(ledger: &DynamoLedger<ManualClock>, world: &World) -> [(&'static str, Cost); 6] {
    let (now, later) = (world.clock.now(), world.clock.now().after(HOUR * 2));
    let owned = async |job: &str| {
        ledger.owned_by(&Owner::Job(job.into())).await.expect("a call without faults").items.len()
    };
    let idle =
        async { ledger.idle_in(&"large".into()).await.expect("a call without faults").items.len() };
    let due_now = swept(async |after| ledger.due(now, after).await);
    let due_later = swept(async |after| ledger.due(later, after).await);
    [
        ("owned_by", counted(world, owned("j-1")).await),
        ("owned_by, without records", counted(world, owned("j-2")).await),
        ("idle_in", counted(world, idle).await),
        ("due now", counted(world, due_now).await),
        ("due later", counted(world, due_later).await),
        ("live", counted(world, swept(async |after| ledger.live(after).await)).await),
    ]
}

/// Buries a machine and returns its stored tombstone.
async fn buried(ledger: &DynamoLedger<ManualClock>, world: &World, seen: &Record) -> Item {
    let now = world.clock.now();
    let ending =
        won(ledger.replace(seen, &seen.on(&condemned(now)).expect("a legal transition")).await);
    let gone = InstanceEvent::Gone { at: now, forget_at: now.after(HOUR * 24) };
    won(ledger.bury(&ending, &ending.on(&gone).expect("a legal transition")).await);
    let client = Client::new(world.account.another());
    let all = client.scan().table_name(TABLE).filter_expression("sk = :id");
    let id = AttributeValue::S(ending.id.to_string());
    let found =
        all.expression_attribute_values(":id", id).send().await.expect("a call without faults");
    found.items.expect("the tombstone").remove(0)
}

/// Writes copies of the tombstone with other ids to every shard.
async fn write_history(world: &World, tombstone: &Item) {
    const PER_CALL: usize = 25;
    let another = |number: usize| {
        let key = [("pk", format!("i#{}", number % 8)), ("sk", format!("i-over-{number}"))];
        let mut item = tombstone.clone();
        item.extend(key.map(|(name, value)| (name.to_owned(), AttributeValue::S(value))));
        let put = PutRequest::builder().set_item(Some(item)).build().expect("a valid request");
        WriteRequest::builder().put_request(put).build()
    };
    let client = Client::new(world.account.another());
    let writes: Vec<_> = (0..TOMBSTONES).map(another).collect();
    for writes in writes.chunks(PER_CALL) {
        let call = client.batch_write_item().request_items(TABLE, writes.to_vec());
        let left = call.send().await.expect("a call without faults").unprocessed_items;
        assert!(left.is_none_or(|left| left.is_empty()));
    }
}

#[test]
fn a_long_history_does_not_make_listings_cost_more() {
    block_on(async {
        let world = World::with_tables_behind_a_proxy().await;
        let ledger = DynamoLedger::new(world.account.another(), &world.stack, world.clock());
        let now = world.clock.now();
        let mut idle = idles(&ledger, LIVE + 1, now).await;
        let tombstone = buried(&ledger, &world, &idle.pop().unwrap()).await;
        for seen in &idle[..CLAIMED] {
            won(ledger.claim(&claim(seen, "j-1", now)).await);
        }
        let before = costs(&ledger, &world).await;
        write_history(&world, &tombstone).await;
        let after = costs(&ledger, &world).await;
        assert_eq!(before, after, "listings read ended machines");
        // Eight shards, and a call per hundred records. A page has some 350.
        let expected = [
            ("owned_by", (10, 120)),
            ("owned_by, without records", (8, 0)),
            ("idle_in", (17, 880)),
            ("due now", (8, 0)),
            ("due later", (35, 1_000)),
            ("live", (35, 1_000)),
        ];
        assert_eq!(after, expected);
    });
}
