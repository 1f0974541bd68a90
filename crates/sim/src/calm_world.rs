//! Small calm worlds for tests of one thing: idle machines with living agents, a request, and a
//! world that must become quiet afterwards.
//!
//! Not here: worlds drawn from a seed ([`crate::kernel`]).

use std::sync::Arc;
use std::time::Duration;

use bullpen_core::class::{RunnerClass, Usage};
use bullpen_core::creation::{Ceiling, Intent, LaunchRequest, Scope};
use bullpen_core::ids::{IntentId, PoolName, RequestId, Revision, SpecHash, TrustGroup};
use bullpen_core::instance::{AfterWarmUp, InstanceEvent, InstanceFacts, Owner, Record, State};
use bullpen_core::limits::Limits;
use bullpen_core::ports::{
    Fleet, Ids, Ledger, Machine, Ports, Recorded, Reserved, StopOrder, Written,
};
use bullpen_core::request::{OnPartial, Request, TypePattern};
use bullpen_core::time::Timestamp;
use bullpen_engine::Stack;
use bullpen_engine::advertise::advertise;
use futures_util::future::join_all;

use crate::checker::Checker;
use crate::clock::pass;
use crate::life::{become_quiet, keep_up, make_queues, unquiet};
use crate::load;
use crate::world::{CALM, Climate, FIRST_SPEC, SimPorts, World};

/// A calm world with a ceiling and with its queues.
pub async fn new(seed: u64, machines_max: u32) -> Arc<World> {
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
        ephemeral: false,
        only_unused: None,
    }
}

/// Warm machines without an owner that a test adds to a world.
#[derive(Clone, Debug)]
pub struct IdleMachines {
    /// A name that is unique in the world.
    pub name: String,
    /// How many.
    pub count: u32,
    /// Their runner class.
    pub class: RunnerClass,
    /// Spot or on demand.
    pub usage: Usage,
    /// The instance types allowed.
    pub types: Vec<TypePattern>,
    /// Their spec hash.
    pub spec_hash: SpecHash,
    /// How long after the warm-up an unclaimed machine ends.
    pub lasts: Duration,
    /// Whether they are stopped after the warm-up.
    pub stopped: bool,
    /// Whether they belong to the pool [`POOL`]; if not, they have no pool.
    pub pooled: bool,
}

/// The pool of pooled idle machines.
pub const POOL: &str = "stage";

impl IdleMachines {
    /// Idle machines that suit every request of [`request`].
    pub fn plain(name: &str, usage: Usage, count: u32) -> Self {
        Self {
            name: name.to_owned(),
            count,
            class: load::classes().into_iter().next().expect("there are classes"),
            usage,
            types: vec![TypePattern::new("*")],
            spec_hash: SpecHash::new(FIRST_SPEC),
            lasts: Duration::from_secs(600),
            stopped: false,
            pooled: false,
        }
    }
}

/// Puts idle, warm, shared machines with living agents into the world, and advertises them.
pub async fn add_idle(world: &World, usage: Usage, count: u32) -> Vec<Record> {
    let name = format!("stage {} {count}", usage.as_str());
    add_machines(world, &IdleMachines::plain(&name, usage, count))
        .await
        .expect("a calm world has no faults")
}

/// Puts warm, shared machines with living agents into the world, and advertises them.
pub async fn add_machines(world: &World, wanted: &IdleMachines) -> Result<Vec<Record>, String> {
    let (_, stack) = world.process(&wanted.name);
    let intent = reserve(&stack, wanted).await?;
    let launch = LaunchRequest {
        intent: intent.id.clone(),
        class: wanted.class.clone(),
        pool: intent.pool.clone(),
        usage: wanted.usage,
        allowed_types: wanted.types.clone(),
        avoid: [].into(),
        spec_hash: intent.spec_hash.clone(),
        count: wanted.count,
    };
    let launched = stack.ports.fleet().launch(&launch).await;
    let machines = launched.map_err(|fault| format!("the cloud launched nothing: {fault}"))?;
    // Long enough for the slowest boot and the slowest warm-up.
    pass(Duration::from_secs(60)).await;
    let warmed = machines.machines.iter().map(|machine| warm(&stack, &intent, machine, wanted));
    let mut records = join_all(warmed).await;
    if wanted.stopped {
        records = stop(&stack, records).await;
    }
    join_all(records.iter().map(|record| advertise(&stack, record))).await;
    Ok(records)
}

async fn reserve(stack: &Stack<SimPorts>, wanted: &IdleMachines) -> Result<Intent, String> {
    let pool = PoolName::new(POOL);
    let intent = Intent {
        id: IntentId::new(wanted.name.replace(' ', "-")),
        owner: Owner::Pool(pool.clone()),
        trust: None,
        class: wanted.class.name.clone(),
        pool: wanted.pooled.then_some(pool),
        usage: wanted.usage,
        spec_hash: wanted.spec_hash.clone(),
        count: wanted.count,
        avoid: std::collections::BTreeSet::new(),
        outstanding: wanted.count,
        deadline: stack.now().after(Duration::from_secs(600)),
        revision: Revision(1),
    };
    match stack.ports.ledger().reserve(&intent, &stack.ceilings).await {
        Ok(Written::Won(Reserved::Granted)) => Ok(intent),
        other => Err(format!("the ledger granted no capacity: {other:?}")),
    }
}

async fn warm(
    stack: &Stack<SimPorts>,
    intent: &Intent,
    machine: &Machine,
    wanted: &IdleMachines,
) -> Record {
    let facts = InstanceFacts::of(machine, intent);
    let now = stack.now();
    let deadline = now.after(wanted.lasts);
    let born = Record::born(machine.id.clone(), facts, intent.owner.clone(), None, deadline);
    let Ok(Written::Won(Recorded::Stored(created))) = stack.ports.ledger().record(&born).await
    else {
        panic!("a calm world has no faults");
    };
    let into = if wanted.stopped {
        let (op, until) = (stack.ports.ids().stop_op(), now.after(stack.limits.stop_fence));
        AfterWarmUp::ToStop { op, until, deadline }
    } else {
        AfterWarmUp::Hot { deadline, shared: true }
    };
    let pool = PoolName::new(POOL);
    move_on(stack, &created, &InstanceEvent::WarmedUp { pool, at: now, into }).await
}

async fn move_on(stack: &Stack<SimPorts>, record: &Record, event: &InstanceEvent) -> Record {
    let next = record.on(event).expect("the transition is legal");
    let Ok(Written::Won(next)) = stack.ports.ledger().replace(record, &next).await else {
        panic!("a calm world has no faults");
    };
    next
}

/// Stops machines as a pool does, and waits until no stop call can land any more.
async fn stop(stack: &Stack<SimPorts>, records: Vec<Record>) -> Vec<Record> {
    let orders: Vec<StopOrder> = records
        .iter()
        .filter_map(|record| match &record.state {
            State::Stopping { op, until, .. } => {
                Some(StopOrder { id: record.id.clone(), op: op.clone(), until: *until })
            }
            _ => None,
        })
        .collect();
    stack.ports.fleet().stop(&orders).await.expect("a calm world has no faults");
    let skew = stack.limits.clock_skew;
    pass(stack.limits.stop_fence + 2 * skew).await;
    let at = stack.now();
    let deadline = at.after(stack.limits.idle_stopped);
    let found = InstanceEvent::FoundStopped { at, skew, deadline, shared: true };
    join_all(records.iter().map(|record| move_on(stack, record, &found))).await
}

/// Runs upkeep until the world is empty; the checker's first violation ends it early.
pub async fn end(world: &Arc<World>, checker: &Checker) -> Result<(), String> {
    tokio::select! {
        biased;
        () = checker.violated() => {}
        () = become_quiet(world, checker, unquiet) => {}
        never = keep_up(world) => match never {},
    }
    checker.look(world);
    if let Some(defect) = world.defect() {
        return Err(format!("a process caught a panic: {defect}"));
    }
    match checker.verdict() {
        None => Ok(()),
        Some((violation, history)) => Err(format!("{violation}\n  {}", history.join("\n  "))),
    }
}
