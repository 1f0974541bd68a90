//! Races under faults of the proxy: throttling, failures, resets, and answers lost after the write
//! landed. A writer with an unknown outcome reads, as the engine does.
//!
//! Not here: the meaning of one call's answer ([`crate::answers`]).

use std::collections::BTreeSet;
use std::time::Duration;

use bullpen_aws::{DynamoLedger, SqsQueues};
use bullpen_core::creation::{Ceiling, CeilingReached, Intent, Scope};
use bullpen_core::ids::{IntentId, MailboxKey};
use bullpen_core::instance::{Record, State};
use bullpen_core::mailbox::{AgentPhase, Beat, Order};
use bullpen_core::ports::{
    ClaimWrite, Clock, Consistency, Fault, Ledger, Mailbox, Outgoing, QueueKind, QueueSpec, Queues,
    Reserved, Written,
};
use bullpen_sim::clock::ManualClock;
use futures_util::future::join_all;

use crate::World;
use crate::emulator::{Service, block_on};
use crate::faulty::{FaultyWorld, Found, TRIES_MAX, plan, retry, settle};
use crate::fixtures::{HOUR, assigned, claim, condemned, idles, intent, transitions, won};

/// Claims as the engine does; true if the record has this claim's nonce.
async fn claims(ledger: &DynamoLedger<ManualClock>, write: &ClaimWrite) -> bool {
    let read = async || match retry(async || ledger.read(&write.id).await).await {
        Some(Record { state: State::Claimed { claim, .. }, .. }) if claim == write.claim => {
            Found::Mine
        }
        Some(found) if found.generation == write.seen => Found::Before,
        _ => Found::Others,
    };
    settle(ledger.claim(write).await, async || ledger.claim(write).await, read).await
}

#[test]
fn one_of_many_claims_wins_under_faults() {
    const CLAIMERS: usize = 64;
    const ROUNDS: usize = 8;
    block_on(async {
        let faulty = FaultyWorld::with_tables(1).await;
        let (now, ledgers) = (faulty.world.clock.now(), faulty.ledgers(CLAIMERS));
        let idle = idles(&ledgers[0], u32::try_from(ROUNDS).unwrap(), now).await;
        for (round, seen) in (0..).zip(&idle) {
            faulty.start_faults(round);
            let writes: Vec<_> =
                (0..CLAIMERS).map(|n| claim(seen, &format!("j-{n}"), now)).collect();
            let claiming = ledgers.iter().zip(&writes).map(|(ledger, write)| claims(ledger, write));
            let winners: Vec<_> = join_all(claiming).await;
            assert_eq!(winners.iter().filter(|won| **won).count(), 1, "round {round}");
            let winner = winners.iter().position(|won| *won).unwrap();
            let stored = retry(async || ledgers[0].read(&seen.id).await).await.unwrap();
            assert_eq!(stored.state.owner(), Some(&writes[winner].owner), "round {round}");
        }
        faulty.stop_faults();
    });
}

/// Reserves as the engine does; true if the intent is stored and counted.
async fn reserves(ledger: &DynamoLedger<ManualClock>, mine: &Intent, ceiling: &[Ceiling]) -> bool {
    for _ in 0..TRIES_MAX {
        match ledger.reserve(mine, ceiling).await {
            Ok(Written::Won(answer)) => return !matches!(answer, Reserved::Short(_)),
            Ok(Written::Lost) => panic!("a reservation is never lost"),
            // The next try's answer says whether the intent is known.
            Ok(Written::Unknown) => {}
            Err(fault) => assert!(fault.is_transient(), "not a planned fault: {fault}"),
        }
    }
    panic!("not reserved in {TRIES_MAX} tries")
}

#[test]
fn reservations_under_faults_never_exceed_a_ceiling() {
    const MAX: u32 = 30;
    block_on(async {
        let faulty = FaultyWorld::with_tables(2).await;
        let (until, ledgers) = (faulty.world.clock.now().after(HOUR), faulty.ledgers(40));
        let ceiling = [Ceiling { scope: Scope::Stack, max: MAX }];
        let intents: Vec<_> = (1..=40_u32)
            .map(|n| Intent { id: IntentId::new(format!("n-{n}")), ..intent(1 + n % 3, until) })
            .collect();
        faulty.start_faults(0);
        let reserving = ledgers.iter().zip(&intents);
        let granted =
            join_all(reserving.map(|(ledger, mine)| reserves(ledger, mine, &ceiling))).await;
        faulty.stop_faults();
        let granted = intents.iter().zip(granted).filter(|(_, granted)| *granted);
        let held: u32 = granted.map(|(intent, _)| intent.count).sum();
        assert!(held <= MAX && held + 3 > MAX, "{held} of {MAX} are reserved");
        let more = Intent { id: "n-more".into(), ..intent(MAX, until) };
        let short = CeilingReached { scope: Scope::Stack, max: MAX, used: held, wanted: MAX };
        assert_eq!(won(ledgers[0].reserve(&more, &ceiling).await), Reserved::Short(short));
    });
}

/// Settles a post; true if the mailbox has this order.
async fn posted(
    mailbox: &impl Mailbox,
    answer: Result<Written<bullpen_core::mailbox::Inbox>, Fault>,
    (key, order): &(MailboxKey, Order),
) -> bool {
    let read = async || {
        let inbox = retry(async || mailbox.inbox(key, Consistency::Consistent).await).await;
        match inbox.map(|inbox| inbox.order) {
            Some(stored) if stored == *order => Found::Mine,
            Some(stored) if stored.rank() >= order.rank() => Found::Others,
            _ => Found::Before,
        }
    };
    settle(answer, async || mailbox.post(key, order).await, read).await
}

#[test]
fn one_of_many_posts_is_accepted_under_faults() {
    const POSTERS: usize = 32;
    block_on(async {
        let faulty = FaultyWorld::with_tables(3).await;
        let (cap, mailboxes) = (faulty.world.clock.now().after(HOUR), faulty.mailboxes(POSTERS));
        for round in 1..=5 {
            faulty.start_faults(round);
            let orders: Vec<_> = (0..POSTERS)
                .map(|n| ("agent".into(), assigned(round, &format!("j-{n}"), cap)))
                .collect();
            let posting = mailboxes.iter().zip(&orders).map(async |(mailbox, it)| {
                posted(mailbox, mailbox.post(&it.0, &it.1).await, it).await
            });
            let accepted = join_all(posting).await;
            assert_eq!(accepted.iter().filter(|won| **won).count(), 1, "round {round}");
        }
        faulty.stop_faults();
    });
}

#[test]
fn batched_posts_are_accepted_once_each_under_faults() {
    const AGENTS: usize = 50;
    block_on(async {
        let faulty = FaultyWorld::with_tables(4).await;
        let (cap, mailboxes) = (faulty.world.clock.now().after(HOUR), faulty.mailboxes(4));
        for round in 1..=4 {
            faulty.start_faults(round);
            let posting = mailboxes.iter().enumerate().map(async |(poster, mailbox)| {
                let order = assigned(round, &format!("j-{poster}"), cap);
                let orders: Vec<_> = (0..AGENTS)
                    .map(|n| (MailboxKey::new(format!("agent-{n}")), order.clone()))
                    .collect();
                let answers = mailbox.post_all(&orders).await;
                let settling = answers.into_iter().zip(&orders);
                join_all(settling.map(|(answer, it)| posted(mailbox, answer, it))).await
            });
            let accepted = join_all(posting).await;
            for agent in 0..AGENTS {
                let winners = accepted.iter().filter(|of_poster| of_poster[agent]).count();
                assert_eq!(winners, 1, "agent {agent}, round {round}");
            }
        }
        faulty.stop_faults();
    });
}

#[test]
fn batched_transitions_are_won_once_each_under_faults() {
    const MACHINES: u32 = 50;
    block_on(async {
        let faulty = FaultyWorld::with_tables(5).await;
        let (now, ledgers) = (faulty.world.clock.now(), faulty.ledgers(4));
        let idle = idles(&ledgers[0], 4 * MACHINES, now).await;
        for (round, idle) in (0..).zip(idle.chunks(idle.len() / 4)) {
            faulty.start_faults(round);
            let writing = ledgers.iter().zip(1..).map(async |(ledger, writer)| {
                let event = condemned(now.after(Duration::from_millis(writer)));
                let writes = transitions(idle, &event);
                let answers = ledger.replace_all(&writes).await;
                let settling = answers.into_iter().zip(&writes);
                join_all(settling.map(|(answer, write)| replaced(ledger, answer, write))).await
            });
            let replaced = join_all(writing).await;
            for machine in 0..idle.len() {
                let winners = replaced.iter().filter(|of_writer| of_writer[machine]).count();
                assert_eq!(winners, 1, "machine {machine}, round {round}");
            }
        }
        faulty.stop_faults();
    });
}

/// Settles a replacement; true if the ledger has this record.
async fn replaced(
    ledger: &DynamoLedger<ManualClock>,
    answer: Result<Written<Record>, Fault>,
    (seen, next): &(Record, Record),
) -> bool {
    let read = async || {
        let stored = retry(async || ledger.read(&seen.id).await).await.expect("a record");
        match stored {
            stored if stored.revision == seen.revision => Found::Before,
            stored if stored.state == next.state => Found::Mine,
            _ => Found::Others,
        }
    };
    settle(answer, async || ledger.replace(seen, next).await, read).await
}

#[test]
fn messages_sent_under_faults_are_received_at_least_once() {
    const MESSAGES: usize = 100;
    const VISIBILITY: Duration = Duration::from_secs(30);
    block_on(async {
        let faulty = FaultyWorld::with_queues(6).await;
        let world = &faulty.world;
        let queues = SqsQueues::new(world.account.another(), &world.stack);
        let spec = QueueSpec {
            name: "faulty".into(),
            kind: QueueKind::Standard,
            visibility: VISIBILITY,
            retention: HOUR * 24,
            dead_letters: None,
        };
        queues.ensure(&spec).await.unwrap();
        faulty.start_faults(0);
        let mut unsent: Vec<String> = (0..MESSAGES).map(|n| format!("message {n}")).collect();
        let mut missing: BTreeSet<String> = unsent.iter().cloned().collect();
        for _ in 0..TRIES_MAX {
            let outgoing: Vec<_> = unsent.iter().cloned().map(Outgoing::now).collect();
            let answers = retry(async || queues.send(&spec.name, &outgoing).await).await;
            let failed = unsent.into_iter().zip(answers).filter(|(_, answer)| answer.is_err());
            unsent = failed.map(|(body, _)| body).collect();
            if unsent.is_empty() {
                break;
            }
        }
        assert!(unsent.is_empty(), "{} were never sent", unsent.len());
        for _ in 0..TRIES_MAX {
            let receive = async || queues.receive(&spec.name, 10, Duration::ZERO).await;
            let received = retry(receive).await;
            if received.is_empty() {
                // A message whose delivery was lost becomes visible again.
                world.advance(VISIBILITY).await;
            }
            let receipts: Vec<_> = received.iter().map(|it| it.receipt.clone()).collect();
            for delivery in received {
                missing.remove(&delivery.body);
            }
            retry(async || queues.delete(&spec.name, &receipts).await).await;
            if missing.is_empty() {
                break;
            }
        }
        assert_eq!(missing, BTreeSet::new(), "sent and never received");
        faulty.stop_faults();
    });
}

#[test]
fn the_same_seed_gives_the_same_faults() {
    block_on(async {
        let mut runs = Vec::new();
        for _ in 0..2 {
            let world = World::numbered(Service::Tables, 7).await.create_tables().await;
            world.proxy().set(plan(7));
            let mailbox = bullpen_aws::DynamoMailbox::new(
                world.account.another(),
                &world.stack,
                world.clock(),
            );
            let before = world.proxy().counts().log().len();
            for seq in 1..=60 {
                let (at, boot) = (world.clock.now(), "b".to_owned());
                let beat = Beat { seq, at, phase: AgentPhase::Waiting, boot };
                // The log is asserted below, not the answer.
                let _ = mailbox.beat(&"agent".into(), &beat).await;
            }
            let log = world.proxy().counts().log()[before..].to_vec();
            runs.push(log.into_iter().map(|call| call.fault).collect::<Vec<_>>());
        }
        assert_eq!(runs[0].len(), 60);
        assert_eq!(runs[0], runs[1]);
        assert!(runs[0].iter().flatten().count() > 10, "{:?}", runs[0]);
    });
}
