//! Benchmarks for the planner: one plan for each of 50 pools, 10,000 machines in all.
//!
//! Not here: observing the machines, which waits for the ledger and EC2.

use std::hint::black_box;
use std::time::Duration;

use bullpen_core::class::{Architecture, Usage};
use bullpen_core::creation::{Ceiling, Scope};
use bullpen_core::ids::{
    ClassName, Generation, InstanceId, InstanceType, IntentId, MailboxKey, PoolName, Revision,
    SpecHash, Zone,
};
use bullpen_core::instance::{InstanceFacts, Record, State, Tier};
use bullpen_core::limits::Limits;
use bullpen_core::pool::{
    Allowance, DesiredPool, ObservedPool, Plan, PoolMachine, PoolMode, WarmUp, plan,
};
use bullpen_core::ports::MachineState;
use bullpen_core::schedule::Target;
use bullpen_core::time::Timestamp;
use criterion::{Criterion, criterion_group, criterion_main};

const POOLS: u32 = 50;
const MACHINES: u32 = 200;
const HOT: u32 = 100;
const NEW: &str = "2:aa";
const OLD: &str = "2:bb";

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(1_767_268_800_000).after(Duration::from_secs(seconds))
}

fn name(pool: u32) -> PoolName {
    PoolName::new(format!("pool-{pool}"))
}

fn standby(pool: u32, number: u32, built_from: &str) -> PoolMachine {
    let id = format!("i-0a1b2c3d4e{pool:03}{number:04}");
    let (tier, machine) = if number < HOT {
        (Tier::Hot, MachineState::Running)
    } else {
        (Tier::Stopped, MachineState::Stopped)
    };
    let deadline = at(0).after(Limits::DEFAULT.idle_stopped);
    let record = Record {
        facts: InstanceFacts {
            class: ClassName::new("large"),
            instance_type: InstanceType::new("c6i.large"),
            vcpu: 2,
            memory_mib: 4_096,
            zone: Zone::new("eu-west-1a"),
            usage: Usage::OnDemand,
            architecture: Architecture::X64,
            spec_hash: SpecHash::new(built_from),
            pool: Some(name(pool)),
            mailbox: MailboxKey::new(format!("AROA:{id}")),
            intent: IntentId::new(format!("intent-{pool}-{}", number / 50)),
            launched_at: at(0),
        },
        id: InstanceId::new(id),
        state: State::Idle { tier, since: at(60), deadline, shared: false },
        generation: Generation(1),
        revision: Revision(3),
        uses: 0,
        trust: None,
        tainted: false,
    };
    let (job_started, interrupted) = (false, false);
    PoolMachine {
        record,
        machine: Some(machine),
        warm_up: WarmUp::Complete,
        job_started,
        interrupted,
    }
}

fn desired(pool: u32, hot: u32, stopped: u32) -> DesiredPool {
    let allowance = |scope, max, used| Allowance { ceiling: Ceiling { scope, max }, used };
    DesiredPool {
        target: Target { entry: Some("default".to_owned()), hot, stopped },
        spec_hash: SpecHash::new(NEW),
        allowances: vec![
            allowance(Scope::Pool(name(pool)), 2 * MACHINES, MACHINES),
            allowance(Scope::Stack, 4 * MACHINES * POOLS, MACHINES * POOLS),
        ],
        ..DesiredPool::nothing(name(pool), PoolMode::Kept, &Limits::DEFAULT)
    }
}

/// All pools; `half` is the specification of every second machine.
fn pools(half: &str, hot: u32, stopped: u32) -> Vec<(ObservedPool, DesiredPool)> {
    let machine = |pool, number: u32| {
        standby(pool, number, if number.is_multiple_of(2) { half } else { NEW })
    };
    let observed = |pool| ObservedPool {
        instances: (0..MACHINES).map(|number| machine(pool, number)).collect(),
        booted: Some(at(60)),
        ..ObservedPool::default()
    };
    (0..POOLS).map(|pool| (observed(pool), desired(pool, hot, stopped))).collect()
}

fn all(pools: &[(ObservedPool, DesiredPool)], now: Timestamp) -> Vec<Plan> {
    pools.iter().map(|(observed, desired)| plan(observed, desired, now)).collect()
}

fn planning(c: &mut Criterion) {
    let (soon, due) = (at(120), at(60).after(Limits::DEFAULT.hot_lifetime));
    let rest = MACHINES - HOT;
    let cases = [
        ("plan, 50 pools of 200, converged", pools(NEW, HOT, rest), soon, false),
        ("plan, 50 pools of 200, half to be replaced", pools(OLD, HOT, rest), soon, true),
        ("plan, 50 pools of 200, another target", pools(NEW, HOT / 2, rest + HOT / 4), soon, true),
        ("plan, 50 pools of 200, half of the hot ones due", pools(NEW, HOT, rest), due, true),
    ];
    for (name, pools, now, acts) in &cases {
        let plans = all(pools, *now);
        assert!(plans.iter().all(|plan| plan.actions.is_empty() != *acts), "{name}: {plans:?}");
        c.bench_function(name, |b| b.iter(|| all(black_box(pools), *now)));
    }
}

criterion_group!(pooled, planning);
criterion_main!(pooled);
