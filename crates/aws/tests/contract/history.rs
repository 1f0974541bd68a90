//! What listings cost in a table with a long history: as much as they return, and not a call for
//! what is over.
//!
//! Not here: what one call costs ([`crate::calls`]).

use std::future::Future;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{AttributeValue, PutRequest, WriteRequest};
use bullpen_aws::DynamoLedger;
use bullpen_core::instance::{InstanceEvent, Owner, Record};
use bullpen_core::ports::{Clock, Fault, Ledger, Page};
use bullpen_sim::clock::ManualClock;

use crate::Ground;
use crate::emulator::real;
use crate::stage::{HOUR, claim, condemned, idles, won};

const TABLE: &str = "contract-state";
const LIVE: u32 = 1_000;
const CLAIMED: usize = 120;
const TOMBSTONES: usize = 5_000;

#[expect(clippy::disallowed_types, reason = "the SDK's type")]
type Item = std::collections::HashMap<String, AttributeValue>;

/// How many calls a listing took, and how much it returned.
type Cost = (u64, usize);

async fn counted(ground: &Ground, listing: impl Future<Output = usize>) -> Cost {
    let arrived = || ground.proxy().counts().total().arrived;
    let before = arrived();
    let found = listing.await;
    (arrived() - before, found)
}

/// Everything of a sweep.
async fn swept(turn: impl AsyncFn(Option<&str>) -> Result<Page<Record>, Fault>) -> usize {
    let (mut found, mut next): (usize, Option<String>) = (0, None);
    loop {
        let page = turn(next.as_deref()).await.expect("the weather is good");
        found += page.items.len();
        next = page.next;
        if next.is_none() {
            return found;
        }
    }
}

async fn costs(ledger: &DynamoLedger<ManualClock>, ground: &Ground) -> [(&'static str, Cost); 6] {
    let (now, later) = (ground.clock.now(), ground.clock.now().after(HOUR * 2));
    let owned = async |job: &str| {
        ledger.owned_by(&Owner::Job(job.into())).await.expect("the weather is good").len()
    };
    let idle = async { ledger.idle_in(&"large".into()).await.expect("the weather is good").len() };
    let due_now = swept(async |after| ledger.due(now, after).await);
    let due_later = swept(async |after| ledger.due(later, after).await);
    [
        ("owned_by", counted(ground, owned("j-1")).await),
        ("owned_by nobody", counted(ground, owned("j-2")).await),
        ("idle_in", counted(ground, idle).await),
        ("due now", counted(ground, due_now).await),
        ("due later", counted(ground, due_later).await),
        ("live", counted(ground, swept(async |after| ledger.live(after).await)).await),
    ]
}

/// Buries a machine; the answer is its tombstone as it is stored.
async fn buried(ledger: &DynamoLedger<ManualClock>, ground: &Ground, seen: &Record) -> Item {
    let now = ground.clock.now();
    let ending =
        won(ledger.replace(seen, &seen.on(&condemned(now)).expect("the weather is good")).await);
    let gone = InstanceEvent::Gone { at: now, forget_at: now.after(HOUR * 24) };
    won(ledger.bury(&ending, &ending.on(&gone).expect("the weather is good")).await);
    let client = Client::new(ground.account.another());
    let all = client.scan().table_name(TABLE).filter_expression("sk = :id");
    let id = AttributeValue::S(ending.id.to_string());
    let found =
        all.expression_attribute_values(":id", id).send().await.expect("the weather is good");
    found.items.expect("the weather is good").remove(0)
}

/// History: the same tombstone so many times, under other names and on every shard.
async fn pile_up(ground: &Ground, tombstone: &Item) {
    const PER_CALL: usize = 25;
    let another = |number: usize| {
        let key = [("pk", format!("i#{}", number % 8)), ("sk", format!("i-over-{number}"))];
        let mut item = tombstone.clone();
        item.extend(key.map(|(name, value)| (name.to_owned(), AttributeValue::S(value))));
        let put = PutRequest::builder().set_item(Some(item)).build().expect("the weather is good");
        WriteRequest::builder().put_request(put).build()
    };
    let client = Client::new(ground.account.another());
    let writes: Vec<_> = (0..TOMBSTONES).map(another).collect();
    for writes in writes.chunks(PER_CALL) {
        let call = client.batch_write_item().request_items(TABLE, writes.to_vec());
        let left = call.send().await.expect("the weather is good").unprocessed_items;
        assert!(left.is_none_or(|left| left.is_empty()));
    }
}

#[test]
fn listings_cost_what_they_return_however_long_the_history() {
    real(async {
        let ground = Ground::with_tables_behind_a_proxy().await;
        let ledger = DynamoLedger::new(ground.account.another(), &ground.stack, ground.clock());
        let now = ground.clock.now();
        let mut idle = idles(&ledger, LIVE + 1, now).await;
        let tombstone = buried(&ledger, &ground, &idle.pop().unwrap()).await;
        for seen in &idle[..CLAIMED] {
            won(ledger.claim(&claim(seen, "j-1", now)).await);
        }
        let young = costs(&ledger, &ground).await;
        pile_up(&ground, &tombstone).await;
        let old = costs(&ledger, &ground).await;
        assert_eq!(young, old, "history is paid for");
        // Eight shards, and a call per hundred records. A page has some 350.
        let expected = [
            ("owned_by", (10, 120)),
            ("owned_by nobody", (8, 0)),
            ("idle_in", (17, 880)),
            ("due now", (8, 0)),
            ("due later", (35, 1_000)),
            ("live", (35, 1_000)),
        ];
        assert_eq!(old, expected);
    });
}
