//! The weak models do misbehave as far as the contract allows, so that the engine meets it in every
//! simulation.
//!
//! Not here: the contract itself (`contract_models`).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bullpen_core::class::{Architecture, Usage};
use bullpen_core::creation::Intent;
use bullpen_core::ids::{
    ClaimId, ClassName, InstanceId, InstanceType, IntentId, JobId, MailboxKey, PoolName, QueueName,
    Revision, SpecHash, TrustGroup, Zone,
};
use bullpen_core::instance::AfterWarmUp;
use bullpen_core::instance::{InstanceEvent, InstanceFacts, Owner, Record};
use bullpen_core::invariants::{Invariant, on_write};
use bullpen_core::mailbox::{Order, Withdrawal, WithdrawalMode};
use bullpen_core::ports::{
    ClaimWrite, Clock, Consistency, Fault, Ledger, Mailbox, Outgoing, Ports as _, QueueKind,
    QueueSpec, Queues, Recorded, Written,
};
use bullpen_sim::calm_world;
use bullpen_sim::checker::Checker;
use bullpen_sim::clock::{SimClock, on_virtual_time, pass};
use bullpen_sim::model::{LedgerModel, LedgerWrite, MailboxModel, QueuesModel};
use bullpen_sim::wire::{Weather, Wire};

const HOUR: Duration = Duration::from_secs(3_600);
const LAG: Duration = Duration::from_secs(5);

fn lagging() -> (Wire, SimClock) {
    let wire = Wire::new(1, "lagging", Weather { lag_max: LAG, ..Weather::default() });
    let clock = SimClock::new(wire.clone(), 0);
    (wire, clock)
}

fn calm() -> (Wire, SimClock) {
    let wire = Wire::calm();
    let clock = SimClock::new(wire.clone(), 0);
    (wire, clock)
}

fn won<T: std::fmt::Debug>(answer: Result<Written<T>, Fault>) -> T {
    match answer {
        Ok(Written::Won(stored)) => stored,
        other => panic!("{other:?}"),
    }
}

async fn created(ledger: &LedgerModel, clock: &SimClock) -> Record {
    let (now, pool) = (clock.now(), PoolName::new("linux"));
    let owner = Owner::Pool(pool.clone());
    let intent = Intent {
        id: IntentId::new("intent"),
        owner: owner.clone(),
        trust: None,
        class: ClassName::new("large"),
        pool: Some(pool.clone()),
        usage: Usage::Spot,
        spec_hash: SpecHash::new("1:a"),
        count: 1,
        avoid: std::collections::BTreeSet::new(),
        outstanding: 1,
        deadline: now.after(HOUR),
        revision: Revision(0),
    };
    won(ledger.reserve(&intent, &[]).await);
    let facts = InstanceFacts {
        class: intent.class,
        instance_type: InstanceType::new("c6i.large"),
        vcpu: 2,
        memory_mib: 4_096,
        zone: Zone::new("a"),
        usage: intent.usage,
        architecture: Architecture::X64,
        spec_hash: intent.spec_hash,
        pool: Some(pool),
        mailbox: MailboxKey::new("box"),
        intent: intent.id,
        launched_at: now,
    };
    let born = Record::born(InstanceId::new("i-1"), facts, owner, None, now.after(HOUR));
    match won(ledger.record(&born).await) {
        Recorded::Stored(record) => record,
        other => panic!("{other:?}"),
    }
}

async fn idle(ledger: &LedgerModel, clock: &SimClock) -> Record {
    let created = created(ledger, clock).await;
    let (at, pool) = (clock.now(), PoolName::new("linux"));
    let into = AfterWarmUp::Hot { deadline: at.after(HOUR), shared: true };
    let warm = created.on(&InstanceEvent::WarmedUp { pool, at, into }).expect("it is the pool's");
    won(ledger.replace(&created, &warm).await)
}

fn claim(idle: &Record, clock: &SimClock) -> ClaimWrite {
    ClaimWrite {
        id: idle.id.clone(),
        seen: idle.generation,
        owner: Owner::Job(JobId::new("j-1")),
        claim: ClaimId::new("n-1"),
        trust: TrustGroup::new("octo/repo"),
        at: clock.now(),
        margin: Duration::from_secs(30),
        lease: clock.now().after(HOUR),
    }
}

#[tokio::test(start_paused = true)]
async fn a_sweep_in_bad_weather_shows_the_past_and_a_read_never_does() {
    let (wire, clock) = lagging();
    let ledger = LedgerModel::new(wire, clock.clone());
    let idle = idle(&ledger, &clock).await;
    pass(LAG).await;
    won(ledger.claim(&claim(&idle, &clock)).await);
    let mut shown = Vec::new();
    for _ in 0..40 {
        shown.push(ledger.live(None).await.unwrap().items[0].revision);
        assert!(ledger.read(&idle.id).await.unwrap().unwrap().revision > idle.revision);
        pass(Duration::from_millis(50)).await;
    }
    assert!(shown.contains(&idle.revision), "nothing lagged: {shown:?}");
    assert!(shown.contains(&idle.revision.next()), "everything lagged: {shown:?}");
}

#[tokio::test(start_paused = true)]
async fn a_weak_directory_lists_a_machine_that_left_it_for_a_while() {
    let (wire, clock) = calm();
    let ledger = LedgerModel::weak(wire, clock.clone());
    let idle = idle(&ledger, &clock).await;
    won(ledger.claim(&claim(&idle, &clock)).await);
    let listed = ledger.idle_in(&idle.facts.class).await.unwrap();
    assert_eq!(listed.items, [idle.advert().unwrap()], "its last advert");
    let of_pool = ledger.owned_by(&Owner::Pool(PoolName::new("linux"))).await.unwrap();
    assert_eq!(of_pool.items.len(), 1, "the pool owned it before it was warm");
    pass(Duration::from_secs(61)).await;
    assert_eq!(ledger.idle_in(&idle.facts.class).await.unwrap().items, []);
    ledger.set_weak(false);
    assert_eq!(ledger.owned_by(&Owner::Job(JobId::new("j-1"))).await.unwrap().items.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_observer_sees_every_write_that_landed_even_without_an_answer() {
    let (wire, clock) = calm();
    let ledger = LedgerModel::new(wire.clone(), clock.clone());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&seen);
    ledger.set_observer(Box::new(move |write| {
        notes.lock().unwrap().push(match write {
            LedgerWrite::Record { before, after, .. } => {
                on_write(*before, after).unwrap();
                after.state.name().as_str()
            }
            LedgerWrite::Reserved { .. } => "reserved",
            LedgerWrite::GivenBack { .. } => "given back",
            LedgerWrite::Row { .. } => "row",
            LedgerWrite::Document { .. } => "document",
        });
    }));
    let idle = idle(&ledger, &clock).await;
    wire.refuse_next(Fault::Throttled);
    assert_eq!(ledger.claim(&claim(&idle, &clock)).await, Err(Fault::Throttled));
    wire.lose_next_answer();
    assert_eq!(ledger.claim(&claim(&idle, &clock)).await, Ok(Written::Unknown));
    assert_eq!(ledger.claim(&claim(&idle, &clock)).await, Ok(Written::Lost));
    assert_eq!(*seen.lock().unwrap(), ["reserved", "created", "idle", "claimed"]);
    let (records, intents) = ledger.snapshot();
    assert_eq!((records, intents), (vec![ledger.read_now(&idle.id).unwrap()], vec![]));
}

async fn queue(model: &QueuesModel) -> QueueName {
    let name = QueueName::new("q");
    let spec = QueueSpec {
        name: name.clone(),
        kind: QueueKind::Standard,
        visibility: Duration::from_secs(30),
        retention: HOUR,
        dead_letters: None,
    };
    model.ensure(&spec).await.expect("the weather is calm");
    name
}

#[tokio::test(start_paused = true)]
async fn a_lever_makes_one_poll_falsely_empty_and_one_message_come_twice() {
    let (wire, clock) = calm();
    let queues = QueuesModel::new(wire, clock);
    let name = queue(&queues).await;
    queues.send(&name, &[Outgoing::now("one".into())]).await.unwrap();
    queues.answer_empty_next();
    queues.deliver_next_twice();
    assert_eq!(queues.receive(&name, 1, Duration::ZERO).await.unwrap(), []);
    let first = queues.receive(&name, 1, Duration::ZERO).await.unwrap().remove(0);
    queues.delete(&name, &[first.receipt]).await.unwrap();
    let again = queues.receive(&name, 1, Duration::ZERO).await.unwrap().remove(0);
    assert_eq!(again.body, "one", "the queue delivers a deleted message again");
    queues.delete(&name, &[again.receipt]).await.unwrap();
    assert_eq!(queues.depth_now(&name).unwrap().total(), 0);
}

#[tokio::test(start_paused = true)]
async fn weak_queues_deliver_messages_in_another_order() {
    let (wire, clock) = calm();
    let queues = QueuesModel::weak(wire, clock);
    let name = queue(&queues).await;
    let sent: Vec<_> = (0..10).map(|number| number.to_string()).collect();
    let messages: Vec<_> = sent.iter().cloned().map(Outgoing::now).collect();
    queues.send(&name, &messages).await.unwrap();
    let received = queues.receive(&name, 10, Duration::ZERO).await.unwrap();
    let mut bodies: Vec<_> = received.into_iter().map(|delivery| delivery.body).collect();
    assert_ne!(bodies, sent);
    bodies.sort();
    assert_eq!(bodies, sent);
}

#[tokio::test(start_paused = true)]
async fn an_eventual_read_in_bad_weather_shows_an_earlier_order() {
    let (wire, clock) = lagging();
    let mailbox = MailboxModel::weak(wire, clock.clone());
    let key = MailboxKey::new("box");
    let order = Order::Withdrawn(Withdrawal {
        generation: bullpen_core::ids::Generation(1),
        mode: WithdrawalMode::Drain,
        at: clock.now(),
        idle_deadline: clock.now().after(HOUR),
        removal_token: None,
    });
    pass(LAG).await;
    won(mailbox.post(&key, &order).await);
    let mut shown = Vec::new();
    for _ in 0..40 {
        shown.push(mailbox.inbox(&key, Consistency::Eventual).await.unwrap().is_some());
        assert!(mailbox.inbox(&key, Consistency::Consistent).await.unwrap().is_some());
        pass(Duration::from_millis(50)).await;
    }
    assert!(shown.contains(&false) && shown.contains(&true), "{shown:?}");
}

#[test]
fn machines_of_another_stack_are_in_no_answer_and_calls_about_them_are_seen() {
    on_virtual_time(async {
        let world = calm_world::new(1, 10).await;
        let checker = Checker::watch(&world, false);
        let fleet = world.outside.fleet();
        let id = fleet.add_neighbour(fleet.offerings().remove(0));
        let (_, stack) = world.process("upkeep");
        let listed = stack.fleet().list().await.expect("the world is calm");
        assert_eq!((listed.items.len(), listed.unreadable.len()), (0, 0));
        let described = stack.fleet().describe(std::slice::from_ref(&id)).await;
        assert_eq!(described.expect("the world is calm").items.len(), 0);
        assert!(checker.verdict().is_none());
        let refused = stack.fleet().terminate(&[id]).await;
        assert!(matches!(refused, Err(Fault::Denied(_))), "{refused:?}");
        let (violation, _) = checker.verdict().expect("the call was about another stack's machine");
        assert_eq!(violation.invariant, Invariant::Protected);
    });
}
