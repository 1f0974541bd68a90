//! The CPU cost of one cycle over all pools: 10,000 machines in 50 converged pools, on the models,
//! whose answers cost next to nothing.
//!
//! Not here: planning alone (`core`'s benchmark `pools`), or the latency of a real ledger and a
//! real cloud.

use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::Arc;

use bullpen_core::class::Usage;
use bullpen_core::config::runs_on;
use bullpen_core::creation::{Intent, LaunchRequest};
use bullpen_core::ids::Revision;
use bullpen_core::instance::{AfterWarmUp, InstanceEvent, InstanceFacts, Owner, Record};
use bullpen_core::limits::Limits;
use bullpen_core::pool::journal::launch_id;
use bullpen_core::pool::{Blueprint, Blueprints, StackBase};
use bullpen_core::ports::{Fleet, Ledger, Machine, Ports, Recorded, Written};
use bullpen_core::rates::Rates;
use bullpen_engine::Stack;
use bullpen_engine::pools::{Leases, converge};
use bullpen_sim::world::{CALM, SimPorts, World};
use criterion::{Criterion, criterion_group, criterion_main};

const POOLS: u32 = 50;
const MACHINES: u32 = 200;

fn blueprints() -> Blueprints {
    let mut text = String::from("runners:\n  large: {cpu: 2, ram: 4}\npools:\n");
    let mut ours = String::from("x-bullpen:\n  pools:\n");
    for pool in 0..POOLS {
        let schedule = format!("[{{name: always, hot: {MACHINES}, stopped: 0}}]");
        writeln!(text, "  pool-{pool}: {{runner: large, schedule: {schedule}}}").expect("memory");
        writeln!(ours, "    pool-{pool}: {{hot-lifetime: 7d}}").expect("memory");
    }
    let (config, _) = runs_on::read((text + &ours).as_bytes()).into_parts();
    Blueprints::of("production", &config.expect("a valid configuration"), &StackBase::default())
}

/// Adds the machines of one pool, hot and idle.
async fn add_machines(stack: &Stack<SimPorts>, blueprint: &Blueprint) {
    let intent = Intent {
        id: launch_id(&blueprint.name, 1),
        owner: Owner::Pool(blueprint.name.clone()),
        trust: None,
        class: blueprint.class.name.clone(),
        pool: Some(blueprint.name.clone()),
        usage: Usage::OnDemand,
        spec_hash: blueprint.spec_hash.clone(),
        count: MACHINES,
        avoid: [].into(),
        outstanding: MACHINES,
        deadline: stack.now().after(stack.limits.request_deadline),
        revision: Revision(1),
    };
    let (ledger, fleet) = (stack.ports.ledger(), stack.ports.fleet());
    let _ = ledger.reserve(&intent, &[]).await.expect("calm");
    let launch = LaunchRequest {
        intent: intent.id.clone(),
        class: blueprint.class.clone(),
        pool: intent.pool.clone(),
        usage: intent.usage,
        allowed_types: blueprint.allowed_types.clone(),
        avoid: [].into(),
        spec_hash: intent.spec_hash.clone(),
        count: MACHINES,
    };
    let launched = fleet.launch(&launch).await.expect("calm").machines;
    assert_eq!(launched.len(), MACHINES as usize);
    for machine in &launched {
        keep(stack, blueprint, &intent, machine).await;
    }
}

async fn keep(stack: &Stack<SimPorts>, blueprint: &Blueprint, intent: &Intent, machine: &Machine) {
    let (ledger, at) = (stack.ports.ledger(), stack.now());
    let deadline = at.after(stack.limits.idle_stopped);
    let (id, facts) = (machine.id.clone(), InstanceFacts::of(machine, intent));
    let born = Record::born(id, facts, intent.owner.clone(), None, deadline);
    let Ok(Written::Won(Recorded::Stored(created))) = ledger.record(&born).await else {
        panic!("the model ledger refused a first record");
    };
    let into = AfterWarmUp::Hot { deadline, shared: false };
    let warm = InstanceEvent::WarmedUp { pool: blueprint.name.clone(), at, into };
    let idle = created.on(&warm).expect("a created machine warms up");
    let _ = ledger.replace(&created, &idle).await.expect("calm");
}

async fn machines() -> (Arc<World>, Stack<SimPorts>, Leases, Blueprints) {
    let world = World::new(7, Limits::DEFAULT, Vec::new(), CALM.clone());
    world.outside.fleet().set_rates(Rates::unlimited());
    // No agents: this benchmark sends them no orders.
    world.outside.fleet().on_boot(|_, _| {});
    let (_, stack) = world.process("keeper");
    let blueprints = blueprints();
    for blueprint in blueprints.pools.values() {
        add_machines(&stack, blueprint).await;
    }
    let leases = Leases::new(&stack);
    // The first cycles write tags and journals.
    for _ in 0..3 {
        converge(&stack, &blueprints, &leases).await.expect("calm");
    }
    (world, stack, leases, blueprints)
}

fn cycle(c: &mut Criterion) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime");
    let (_world, stack, leases, blueprints) = runtime.block_on(machines());
    let once = || {
        let kept = runtime.block_on(converge(&stack, &blueprints, &leases)).expect("calm");
        assert!(kept.iter().all(|kept| kept.deeds.is_empty()), "a converged pool needs no action");
        kept.len()
    };
    assert_eq!(once(), POOLS as usize);
    let mut group = c.benchmark_group("cycle");
    group.sample_size(10);
    group.bench_function("50 pools of 200 machines", |b| b.iter(|| black_box(once())));
    group.finish();
}

criterion_group!(benches, cycle);
criterion_main!(benches);
