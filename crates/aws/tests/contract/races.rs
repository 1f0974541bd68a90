//! Races in bad weather, through the proxy: throttles, failures, resets and answers that are lost
//! after the write took place. Whoever is not sure reads, as the engine does.
//!
//! Not here: what the answers of one call mean ([`crate::weather`]).

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

use crate::Ground;
use crate::emulator::{Service, real};
use crate::stage::{HOUR, assigned, claim, condemned, idles, intent, marks, won};
use crate::storm::{Found, Storm, TRIES_MAX, insist, plan, settle};

/// As the engine claims: true if this claim's nonce is what is stored.
async fn claims(ledger: &DynamoLedger<ManualClock>, write: &ClaimWrite) -> bool {
    let look = async || match insist(async || ledger.read(&write.id).await).await {
        Some(Record { state: State::Claimed { claim, .. }, .. }) if claim == write.claim => {
            Found::Mine
        }
        Some(found) if found.generation == write.seen => Found::Before,
        _ => Found::Others,
    };
    settle(ledger.claim(write).await, async || ledger.claim(write).await, look).await
}

#[test]
fn of_many_claimers_in_a_storm_one_wins() {
    const CLAIMERS: usize = 64;
    const ROUNDS: usize = 8;
    real(async {
        let storm = Storm::over_tables(1).await;
        let (now, ledgers) = (storm.ground.clock.now(), storm.ledgers(CLAIMERS));
        let idle = idles(&ledgers[0], u32::try_from(ROUNDS).unwrap(), now).await;
        for (round, seen) in (0..).zip(&idle) {
            storm.begins(round);
            let writes: Vec<_> =
                (0..CLAIMERS).map(|n| claim(seen, &format!("j-{n}"), now)).collect();
            let claiming = ledgers.iter().zip(&writes).map(|(ledger, write)| claims(ledger, write));
            let winners: Vec<_> = join_all(claiming).await;
            assert_eq!(winners.iter().filter(|won| **won).count(), 1, "round {round}");
            let winner = winners.iter().position(|won| *won).unwrap();
            let stored = insist(async || ledgers[0].read(&seen.id).await).await.unwrap();
            assert_eq!(stored.state.owner(), Some(&writes[winner].owner), "round {round}");
        }
        storm.ends();
    });
}

/// True if the intent is stored and counted.
async fn reserves(ledger: &DynamoLedger<ManualClock>, mine: &Intent, ceiling: &[Ceiling]) -> bool {
    for _ in 0..TRIES_MAX {
        match ledger.reserve(mine, ceiling).await {
            Ok(Written::Won(answer)) => return !matches!(answer, Reserved::Short(_)),
            Ok(Written::Lost) => panic!("a reservation is never lost"),
            // Asking again says whether it is known.
            Ok(Written::Unknown) => {}
            Err(fault) => assert!(fault.is_transient(), "this is no weather: {fault}"),
        }
    }
    panic!("not reserved in {TRIES_MAX} tries")
}

#[test]
fn reservations_in_a_storm_never_exceed_a_ceiling() {
    const MAX: u32 = 30;
    real(async {
        let storm = Storm::over_tables(2).await;
        let (until, ledgers) = (storm.ground.clock.now().after(HOUR), storm.ledgers(40));
        let ceiling = [Ceiling { scope: Scope::Stack, max: MAX }];
        let intents: Vec<_> = (1..=40_u32)
            .map(|n| Intent { id: IntentId::new(format!("n-{n}")), ..intent(1 + n % 3, until) })
            .collect();
        storm.begins(0);
        let reserving = ledgers.iter().zip(&intents);
        let granted =
            join_all(reserving.map(|(ledger, mine)| reserves(ledger, mine, &ceiling))).await;
        storm.ends();
        let granted = intents.iter().zip(granted).filter(|(_, granted)| *granted);
        let held: u32 = granted.map(|(intent, _)| intent.count).sum();
        assert!(held <= MAX && held + 3 > MAX, "{held} of {MAX} are held");
        let more = Intent { id: "n-more".into(), ..intent(MAX, until) };
        let short = CeilingReached { scope: Scope::Stack, max: MAX, used: held, wanted: MAX };
        assert_eq!(won(ledgers[0].reserve(&more, &ceiling).await), Reserved::Short(short));
    });
}

/// Brings a post to its end: true if this order is what is stored.
async fn posted(
    mailbox: &impl Mailbox,
    answer: Result<Written<bullpen_core::mailbox::Inbox>, Fault>,
    (key, order): &(MailboxKey, Order),
) -> bool {
    let look = async || {
        let inbox = insist(async || mailbox.inbox(key, Consistency::Consistent).await).await;
        match inbox.map(|inbox| inbox.order) {
            Some(stored) if stored == *order => Found::Mine,
            Some(stored) if stored.rank() >= order.rank() => Found::Others,
            _ => Found::Before,
        }
    };
    settle(answer, async || mailbox.post(key, order).await, look).await
}

#[test]
fn of_many_posts_in_a_storm_one_is_accepted() {
    const POSTERS: usize = 32;
    real(async {
        let storm = Storm::over_tables(3).await;
        let (cap, mailboxes) = (storm.ground.clock.now().after(HOUR), storm.mailboxes(POSTERS));
        for round in 1..=5 {
            storm.begins(round);
            let orders: Vec<_> = (0..POSTERS)
                .map(|n| ("agent".into(), assigned(round, &format!("j-{n}"), cap)))
                .collect();
            let posting = mailboxes.iter().zip(&orders).map(async |(mailbox, it)| {
                posted(mailbox, mailbox.post(&it.0, &it.1).await, it).await
            });
            let accepted = join_all(posting).await;
            assert_eq!(accepted.iter().filter(|won| **won).count(), 1, "round {round}");
        }
        storm.ends();
    });
}

#[test]
fn batches_of_posts_in_a_storm_are_accepted_once_each() {
    const AGENTS: usize = 50;
    real(async {
        let storm = Storm::over_tables(4).await;
        let (cap, mailboxes) = (storm.ground.clock.now().after(HOUR), storm.mailboxes(4));
        for round in 1..=4 {
            storm.begins(round);
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
        storm.ends();
    });
}

#[test]
fn batches_of_marks_in_a_storm_are_won_once_each() {
    const MACHINES: u32 = 50;
    real(async {
        let storm = Storm::over_tables(5).await;
        let (now, ledgers) = (storm.ground.clock.now(), storm.ledgers(4));
        let idle = idles(&ledgers[0], 4 * MACHINES, now).await;
        for (round, idle) in (0..).zip(idle.chunks(idle.len() / 4)) {
            storm.begins(round);
            let marking = ledgers.iter().zip(1..).map(async |(ledger, writer)| {
                let writes = marks(idle, &condemned(now.after(Duration::from_millis(writer))));
                let answers = ledger.replace_all(&writes).await;
                let settling = answers.into_iter().zip(&writes);
                join_all(settling.map(|(answer, write)| marked(ledger, answer, write))).await
            });
            let marked = join_all(marking).await;
            for machine in 0..idle.len() {
                let winners = marked.iter().filter(|of_writer| of_writer[machine]).count();
                assert_eq!(winners, 1, "machine {machine}, round {round}");
            }
        }
        storm.ends();
    });
}

/// Brings a mark to its end: true if it is what is stored.
async fn marked(
    ledger: &DynamoLedger<ManualClock>,
    answer: Result<Written<Record>, Fault>,
    (seen, next): &(Record, Record),
) -> bool {
    let look = async || {
        let stored = insist(async || ledger.read(&seen.id).await).await.expect("it is there");
        match stored {
            stored if stored.revision == seen.revision => Found::Before,
            stored if stored.state == next.state => Found::Mine,
            _ => Found::Others,
        }
    };
    settle(answer, async || ledger.replace(seen, next).await, look).await
}

#[test]
fn messages_sent_in_a_storm_are_received_at_least_once() {
    const MESSAGES: usize = 100;
    const VISIBILITY: Duration = Duration::from_secs(30);
    real(async {
        let storm = Storm::over_queues(6).await;
        let ground = &storm.ground;
        let queues = SqsQueues::new(ground.account.another(), &ground.stack);
        let spec = QueueSpec {
            name: "storm".into(),
            kind: QueueKind::Standard,
            visibility: VISIBILITY,
            retention: HOUR * 24,
            dead_letters: None,
        };
        queues.ensure(&spec).await.unwrap();
        storm.begins(0);
        let mut unsent: Vec<String> = (0..MESSAGES).map(|n| format!("message {n}")).collect();
        let mut missing: BTreeSet<String> = unsent.iter().cloned().collect();
        for _ in 0..TRIES_MAX {
            let outgoing: Vec<_> = unsent.iter().cloned().map(Outgoing::now).collect();
            let answers = insist(async || queues.send(&spec.name, &outgoing).await).await;
            let failed = unsent.into_iter().zip(answers).filter(|(_, answer)| answer.is_err());
            unsent = failed.map(|(body, _)| body).collect();
            if unsent.is_empty() {
                break;
            }
        }
        assert!(unsent.is_empty(), "{} were never sent", unsent.len());
        for _ in 0..TRIES_MAX {
            let receive = async || queues.receive(&spec.name, 10, Duration::ZERO).await;
            let received = insist(receive).await;
            if received.is_empty() {
                // Those whose delivery was lost come back.
                ground.pass(VISIBILITY).await;
            }
            let receipts: Vec<_> = received.iter().map(|it| it.receipt.clone()).collect();
            for delivery in received {
                missing.remove(&delivery.body);
            }
            insist(async || queues.delete(&spec.name, &receipts).await).await;
            if missing.is_empty() {
                break;
            }
        }
        assert_eq!(missing, BTreeSet::new(), "sent and never received");
        storm.ends();
    });
}

#[test]
fn the_same_seed_is_the_same_weather() {
    real(async {
        let mut runs = Vec::new();
        for _ in 0..2 {
            let ground = Ground::numbered(Service::Tables, 7).await.and_tables().await;
            ground.proxy().set(plan(7));
            let mailbox = bullpen_aws::DynamoMailbox::new(
                ground.account.another(),
                &ground.stack,
                ground.clock(),
            );
            let before = ground.proxy().counts().log().len();
            for seq in 1..=60 {
                let (at, boot) = (ground.clock.now(), "b".to_owned());
                let beat = Beat { seq, at, phase: AgentPhase::Waiting, boot };
                // The weather is what is looked at, not the beat.
                let _ = mailbox.beat(&"agent".into(), &beat).await;
            }
            let log = ground.proxy().counts().log()[before..].to_vec();
            runs.push(log.into_iter().map(|call| call.fault).collect::<Vec<_>>());
        }
        assert_eq!(runs[0].len(), 60);
        assert_eq!(runs[0], runs[1]);
        assert!(runs[0].iter().flatten().count() > 10, "{:?}", runs[0]);
    });
}
