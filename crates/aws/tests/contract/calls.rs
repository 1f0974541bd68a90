//! The number of calls for each operation. `docs/aws.md` computes its costs from these.

use std::sync::Arc;
use std::time::Duration;

use bullpen_aws::{DynamoLedger, DynamoMailbox, SqsQueues};
use bullpen_core::creation::{Ceiling, Scope};
use bullpen_core::ids::{Generation, MailboxKey};
use bullpen_core::instance::{InstanceEvent, Owner, Record};
use bullpen_core::mailbox::{AgentPhase, Beat, Order, Signal, SignalKind};
use bullpen_core::ports::{
    Clock, Consistency, JobRow, Ledger, Mailbox, Outgoing, QueueKind, QueueSpec, Queues, Recorded,
    WaitingAt, Written,
};
use bullpen_sim::clock::ManualClock;

use crate::emulator::block_on;
use crate::fixtures::{
    HOUR, assigned, claim, condemned, idles, intent, newborn, newborns, transitions, warmed,
    withdrawn, won,
};
use crate::{Wire, World};

async fn moved(ledger: &DynamoLedger<ManualClock>, seen: &Record, event: &InstanceEvent) -> Record {
    won(ledger.replace(seen, &seen.on(event).expect("a legal transition")).await)
}

#[test]
fn every_write_of_the_ledger_is_one_call() {
    block_on(async {
        let (world, wire) = (World::with_tables().await, Wire::default());
        let config = world.account.config(Some(wire.clone())).await;
        let ledger = DynamoLedger::new(&config, &world.stack, Arc::clone(&world.clock));
        let now = world.clock.now();
        let ceilings = [Ceiling { scope: Scope::Stack, max: 10 }];
        won(ledger.reserve(&intent(2, now.after(HOUR)), &ceilings).await);
        assert_eq!(wire.calls(), 1, "reserve");
        let Recorded::Stored(created) = won(ledger.record(&newborn("i-1", now)).await) else {
            panic!("not stored")
        };
        assert_eq!(wire.calls(), 1, "record");
        won(ledger.record(&newborn("i-2", now)).await);
        assert_eq!(wire.calls(), 2, "record, for the last machine of its intent");
        let idle = moved(&ledger, &created, &warmed(now)).await;
        assert_eq!(wire.calls(), 1, "replace");
        let claim = claim(&idle, "j-1", now);
        let claimed = won(ledger.claim(&claim).await);
        assert_eq!(wire.calls(), 1, "a claim that wins");
        assert_eq!(ledger.claim(&claim).await, Ok(Written::Lost));
        assert_eq!(wire.calls(), 1, "a claim that loses");
        let ending = moved(&ledger, &claimed, &condemned(now)).await;
        let gone = InstanceEvent::Gone { at: now, forget_at: now.after(HOUR) };
        wire.calls();
        won(ledger.bury(&ending, &ending.on(&gone).unwrap()).await);
        assert_eq!(wire.calls(), 1, "bury");
        ledger.read(&claim.id).await.unwrap();
        assert_eq!(wire.calls(), 1, "read");
        assert_eq!(ledger.owned_by(&claim.owner).await.unwrap().items, []);
        assert_eq!(wire.calls(), 8, "an empty directory: one for each shard");
        assert_eq!(ledger.standing_by(&"linux".into()).await.unwrap().items.len(), 1);
        assert_eq!(wire.calls(), 9, "a directory: one more for up to a hundred records");
    });
}

/// The operations are those that `bullpen-sim`'s `jobs` test `cost` counts for each step.
#[test]
fn the_ledger_operations_of_a_warm_job() {
    block_on(async {
        let (world, wire) = (World::with_tables().await, Wire::default());
        let config = world.account.config(Some(wire.clone())).await;
        let ledger = DynamoLedger::new(&config, &world.stack, Arc::clone(&world.clock));
        let now = world.clock.now();
        let idle = idles(&ledger, 3, now).await.remove(0);
        let at = WaitingAt { lane: "pool/linux".to_owned(), repository: "octo/app".into() };
        let row = |revision, waiting: Option<&WaitingAt>| JobRow {
            job: "j-1".into(),
            revision,
            body: "a job".to_owned(),
            waiting: waiting.cloned(),
            next_look: Some(now.after(HOUR)),
            forget_at: now.after(HOUR),
        };
        let write = async |seen: Option<&JobRow>, waiting| {
            let revision = seen.map(|seen| seen.revision);
            won(ledger.write_row(revision, &row(revision.unwrap_or_default(), waiting)).await)
        };
        wire.calls();
        let heard = write(None, Some(&at)).await;
        assert_eq!(wire.calls(), 1, "heard: its row");
        assert_eq!(ledger.waiting_repositories(&at.lane).await.unwrap().len(), 1);
        assert_eq!(wire.calls(), 9, "the first key of each shard, and what follows it");
        assert_eq!(ledger.waiting(&at, None).await.unwrap().items.len(), 1);
        assert_eq!(wire.calls(), 9, "a listing: the shards, and the rows");
        assert_eq!(ledger.standing_by(&"linux".into()).await.unwrap().items.len(), 3);
        assert_eq!(wire.calls(), 9, "a listing: the shards, and the records");
        let begun = write(Some(&heard), None).await;
        let claimed = won(ledger.claim(&claim(&idle, "j-1", now)).await);
        let named = write(Some(&begun), None).await;
        assert_eq!(wire.calls(), 3, "begun, claimed, named");
        let told = ledger.row(&named.job).await.unwrap().expect("it is stored");
        let told = write(Some(&told), None).await;
        assert_eq!(wire.calls(), 2, "reported: its row, read and written");
        let ending = moved(&ledger, &claimed, &condemned(now)).await;
        assert_eq!(ledger.read(&ending.id).await, Ok(Some(ending)));
        write(Some(&told), None).await;
        assert_eq!(wire.calls(), 3, "released: its machine, read and taken back, and its row");
        assert_eq!(ledger.owned_by(&Owner::Job("j-1".into())).await.unwrap().items.len(), 0);
        assert_eq!(wire.calls(), 8, "what a first attempt and its release do not ask");
    });
}

#[test]
fn fifty_records_are_replaced_in_one_call() {
    block_on(async {
        let (world, wire) = (World::with_tables().await, Wire::default());
        let config = world.account.config(Some(wire.clone())).await;
        let ledger = DynamoLedger::new(&config, &world.stack, Arc::clone(&world.clock));
        let now = world.clock.now();
        let created = newborns(&ledger, 50, now).await;
        wire.calls();
        let answers = ledger.replace_all(&transitions(&created, &warmed(now))).await;
        assert_eq!(wire.calls(), 1, "fifty replacements");
        let idle: Vec<Record> = answers.into_iter().map(won).collect();
        moved(&ledger, &idle[7], &condemned(now)).await;
        wire.calls();
        let answers = ledger.replace_all(&transitions(&idle, &condemned(now))).await;
        assert_eq!(wire.calls(), 2, "fifty replacements, one of them overtaken");
        for (number, answer) in answers.into_iter().enumerate() {
            assert_eq!(answer == Ok(Written::Lost), number == 7, "{number}: {answer:?}");
        }
    });
}

#[test]
fn fifty_agents_are_assigned_in_one_call() {
    block_on(async {
        let (world, wire) = (World::with_tables().await, Wire::default());
        let config = world.account.config(Some(wire.clone())).await;
        let mailbox = DynamoMailbox::new(&config, &world.stack, Arc::clone(&world.clock));
        let now = world.clock.now();
        let orders = |generation: u64| -> Vec<(MailboxKey, Order)> {
            let order = |number: u32| {
                let key = MailboxKey::new(format!("agent-{number}"));
                (key, assigned(generation, &format!("j-{number}"), now.after(HOUR)))
            };
            (0..50).map(order).collect()
        };
        mailbox.post_all(&orders(1)).await.into_iter().for_each(|answer| drop(won(answer)));
        assert_eq!(wire.calls(), 1, "fifty assignments");
        let (key, _) = &orders(1)[49];
        won(mailbox.post(key, &assigned(3, "j-other", now.after(HOUR))).await);
        wire.calls();
        let answers = mailbox.post_all(&orders(2)).await;
        assert_eq!(wire.calls(), 2, "fifty assignments, one of them overtaken");
        let lost: Vec<bool> = answers.iter().map(|answer| *answer == Ok(Written::Lost)).collect();
        assert_eq!(lost.iter().position(|lost| *lost), Some(49));
        let withdrawals: Vec<_> = (0..3)
            .map(|number| (format!("agent-{number}").as_str().into(), withdrawn(2, now)))
            .collect();
        mailbox.post_all(&withdrawals).await.into_iter().for_each(|answer| drop(won(answer)));
        assert_eq!(wire.calls(), 3, "withdrawals are sent one by one");
    });
}

#[test]
fn every_operation_of_the_mailbox_is_one_call() {
    block_on(async {
        let (world, wire) = (World::with_tables().await, Wire::default());
        let config = world.account.config(Some(wire.clone())).await;
        let mailbox = DynamoMailbox::new(&config, &world.stack, Arc::clone(&world.clock));
        let (key, at) = ("AROA:i-1".into(), world.clock.now());
        let order = withdrawn(1, at);
        won(mailbox.post(&key, &order).await);
        assert_eq!(wire.calls(), 1, "post");
        mailbox.redact(&key, Generation(1)).await.unwrap();
        assert_eq!(wire.calls(), 1, "redact");
        mailbox.inbox(&key, Consistency::Eventual).await.unwrap();
        assert_eq!(wire.calls(), 1, "inbox");
        let beat = Beat { seq: 1, at, phase: AgentPhase::Waiting, boot: "b".to_owned() };
        mailbox.beat(&key, &beat).await.unwrap();
        assert_eq!(wire.calls(), 1, "beat");
        let signal =
            Signal { generation: Generation(1), owner: None, at, detail: String::new(), ran: None };
        mailbox.signal(&key, SignalKind::Acknowledged, &signal).await.unwrap();
        assert_eq!(wire.calls(), 1, "signal");
        mailbox.reports(&vec![key; 120]).await.unwrap();
        assert_eq!(wire.calls(), 1, "the same key is requested once");
        let keys: Vec<_> = (0..120).map(|number| format!("k-{number}").as_str().into()).collect();
        mailbox.reports(&keys).await.unwrap();
        assert_eq!(wire.calls(), 2, "a hundred reports a call");
    });
}

#[test]
fn a_queue_is_looked_up_once() {
    block_on(async {
        let (world, wire) = (World::without_tables().await, Wire::default());
        let config = world.account.config(Some(wire.clone())).await;
        let spec = QueueSpec {
            name: "contract-large".into(),
            kind: QueueKind::Standard,
            visibility: Duration::from_secs(30),
            retention: HOUR,
            dead_letters: None,
        };
        SqsQueues::new(&config, &world.stack).ensure(&spec).await.unwrap();
        assert_eq!(wire.calls(), 4, "ensure: look up, create, read attributes, set attributes");
        SqsQueues::new(&config, &world.stack).ensure(&spec).await.unwrap();
        assert_eq!(wire.calls(), 2, "the second time: look up, read attributes");
        let queues = SqsQueues::new(&config, &world.stack);
        let message = [Outgoing::now("one".to_owned())];
        assert_eq!(queues.send(&spec.name, &message).await, Ok(vec![Ok(())]));
        assert_eq!(wire.calls(), 2, "the address, and the message");
        queues.send(&spec.name, &message).await.unwrap();
        assert_eq!(wire.calls(), 1, "send");
        let received = queues.receive(&spec.name, 10, Duration::ZERO).await.unwrap();
        assert_eq!((received.len(), wire.calls()), (2, 1), "receive");
        let receipts: Vec<_> = received.into_iter().map(|delivery| delivery.receipt).collect();
        queues.delete(&spec.name, &receipts).await.unwrap();
        assert_eq!(wire.calls(), 1, "delete");
    });
}
