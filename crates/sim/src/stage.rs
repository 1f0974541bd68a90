//! Small calm worlds for tests that look at one thing: idle machines with living agents, a request,
//! and a world that must become quiet afterwards.
//!
//! Not here: worlds drawn from a seed ([`crate::kernel`]).

use std::sync::Arc;
use std::time::Duration;

use bullpen_core::class::Usage;
use bullpen_core::creation::{Ceiling, Intent, LaunchRequest, Scope};
use bullpen_core::ids::{IntentId, PoolName, RequestId, Revision, SpecHash, TrustGroup};
use bullpen_core::instance::{Event, Facts, Owner, Record, Warm};
use bullpen_core::limits::Limits;
use bullpen_core::ports::{Fleet, Ledger, Machine, Ports, Recorded, Reserved, Written};
use bullpen_core::request::{OnPartial, Request, TypePattern};
use bullpen_core::time::Timestamp;
use bullpen_engine::Stack;
use bullpen_engine::advertise::advertise;

use crate::checker::Checker;
use crate::clock::pass;
use crate::life::{become_quiet, keep_up, make_queues};
use crate::load;
use crate::world::{CALM, Climate, SimPorts, World};

/// A calm world under a ceiling, with its queues made.
pub async fn calm(seed: u64, machines_max: u32) -> Arc<World> {
    let ceilings = vec![Ceiling { scope: Scope::Stack, max: machines_max }];
    let climate = Climate { weak: false, ..CALM.clone() };
    let world = World::new(seed, Limits::DEFAULT, ceilings, climate);
    make_queues(&world).await;
    world
}

/// A request for runners of the load's first class, on demand, by `octo/main`.
pub fn request(name: &str, count: u32, now: Timestamp) -> Request {
    let class = load::classes().into_iter().next().expect("there are classes");
    Request {
        id: RequestId::new(name),
        incarnation: 0,
        class,
        count,
        usage: Usage::OnDemand,
        allowed_types: vec![TypePattern::new("*")],
        trust: TrustGroup::new("octo/main"),
        deadline: now.after(Limits::DEFAULT.request_deadline),
        on_partial: OnPartial::TopUp,
        on_demand_fallback: true,
        spec_hash: None,
    }
}

/// Puts idle, warm, shared machines with living agents into the world, and advertises them.
pub async fn idle(world: &World, usage: Usage, count: u32) -> Vec<Record> {
    let (_, stack) = world.process(&format!("stage {} {count}", usage.as_str()));
    let intent = reserve(&stack, usage, count).await;
    let class = load::classes().into_iter().next().expect("there are classes");
    let launch = LaunchRequest {
        intent: intent.id.clone(),
        class,
        pool: intent.pool.clone(),
        usage,
        allowed_types: vec![TypePattern::new("*")],
        avoid: [].into(),
        spec_hash: intent.spec_hash.clone(),
        count,
    };
    let launched = stack.ports.fleet().launch(&launch).await.expect("the stage is calm");
    // Long enough for the slowest boot and the slowest warm-up.
    pass(Duration::from_secs(60)).await;
    let mut records = Vec::new();
    for machine in &launched.machines {
        let record = warm(&stack, &intent, machine).await;
        advertise(&stack, &record).await;
        records.push(record);
    }
    records
}

async fn reserve(stack: &Stack<SimPorts>, usage: Usage, count: u32) -> Intent {
    let pool = PoolName::new("stage");
    let intent = Intent {
        id: IntentId::new(format!("stage-{}-{count}", usage.as_str())),
        owner: Owner::Pool(pool.clone()),
        trust: None,
        class: load::classes().into_iter().next().expect("there are classes").name,
        pool: Some(pool),
        usage,
        spec_hash: SpecHash::new("1:sim"),
        count,
        avoid: std::collections::BTreeSet::new(),
        outstanding: count,
        deadline: stack.now().after(Duration::from_secs(600)),
        revision: Revision(1),
    };
    match stack.ports.ledger().reserve(&intent, &stack.ceilings).await {
        Ok(Written::Won(Reserved::Granted)) => intent,
        other => panic!("the stage's ceiling is too low: {other:?}"),
    }
}

async fn warm(stack: &Stack<SimPorts>, intent: &Intent, machine: &Machine) -> Record {
    let facts = Facts::of(machine, intent);
    let now = stack.now();
    let deadline = now.after(Duration::from_secs(600));
    let born = Record::born(machine.id.clone(), facts, intent.owner.clone(), None, deadline);
    let ledger = stack.ports.ledger();
    let Ok(Written::Won(Recorded::Stored(created))) = ledger.record(&born).await else {
        panic!("the stage is calm");
    };
    let into = Warm::Hot { deadline, shared: true };
    let pool = PoolName::new("stage");
    let idle = created.on(&Event::WarmedUp { pool, at: now, into }).expect("it is created");
    let Ok(Written::Won(idle)) = ledger.replace(&created, &idle).await else {
        panic!("the stage is calm");
    };
    idle
}

/// Upkeep goes on until nothing is left; the checker's first word ends it.
pub async fn end(world: &Arc<World>, checker: &Checker) -> Result<(), String> {
    tokio::select! {
        biased;
        () = checker.violated() => {}
        () = become_quiet(world, checker) => {}
        never = keep_up(world) => match never {},
    }
    checker.look(world);
    match checker.verdict() {
        None => Ok(()),
        Some((violation, history)) => Err(format!("{violation}\n  {}", history.join("\n  "))),
    }
}
