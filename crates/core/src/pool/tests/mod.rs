//! Tests of standby pools: fixtures, and the actions of a plan as lines of text.
//!
//! Not here: random worlds (`properties`), or a world that plans are carried out in (`world`).

mod json;
mod lifetimes;
mod picking;
mod properties;
mod remembering;
mod rollouts;
mod steps;
mod waiting;
mod world;

use std::time::Duration;

use super::*;
use crate::class::Usage;
use crate::creation::{Ceiling, Intent, Scope};
use crate::ids::{InstanceId, IntentId, Revision, SpecHash};
use crate::instance::{Owner, State, Tier};
use crate::ports::MachineState;
use crate::samples::{self, LIMITS, at, pool, pool_owner};
use crate::schedule::Target;

/// The wanted spec hash, an earlier one, and one by an older version of the program.
const NEW: &str = "2:aa";
const OLD: &str = "2:bb";
const OTHER_VERSION: &str = "1:cc";
/// The time of most plans, in seconds after noon. Machines were launched at noon.
const NOW: u64 = 100;

fn desired(hot: u32, stopped: u32) -> DesiredPool {
    DesiredPool {
        target: Target { entry: Some("default".to_owned()), hot, stopped },
        spec_hash: SpecHash::new(NEW),
        ..DesiredPool::nothing(pool(), PoolMode::Kept, &LIMITS)
    }
}

fn allowance(scope: Scope, max: u32, used: u32) -> Allowance {
    Allowance { ceiling: Ceiling { scope, max }, used }
}

/// A machine whose record and cloud state agree.
fn standby(id: &str, state: State) -> PoolMachine {
    let machine = match &state {
        State::Idle { tier: Tier::Stopped, .. } => MachineState::Stopped,
        State::Stopping { .. } => MachineState::Stopping,
        State::Terminated { .. } => MachineState::Gone,
        _ => MachineState::Running,
    };
    let mut record = samples::record(state);
    record.id = InstanceId::new(id);
    record.facts.spec_hash = SpecHash::new(NEW);
    record.facts.intent = IntentId::new(format!("intent-{id}"));
    let (job_started, interrupted) = (false, false);
    PoolMachine {
        record,
        machine: Some(machine),
        warm_up: WarmUp::Underway,
        job_started,
        interrupted,
    }
}

/// Ready since so many seconds after noon, with a far deadline.
fn ready(id: &str, tier: Tier, since: u64) -> PoolMachine {
    let deadline = at(since).after(LIMITS.idle_stopped);
    standby(id, State::Idle { tier, since: at(since), deadline, shared: false })
}

fn hot(id: &str) -> PoolMachine {
    ready(id, Tier::Hot, 0)
}

fn stopped(id: &str) -> PoolMachine {
    ready(id, Tier::Stopped, 0)
}

fn warming(id: &str) -> PoolMachine {
    standby(id, samples::created(pool_owner()))
}

fn warm(id: &str) -> PoolMachine {
    PoolMachine { warm_up: WarmUp::Complete, ..warming(id) }
}

fn stopping(id: &str) -> PoolMachine {
    standby(id, samples::stopping())
}

fn built(from: &str, mut instance: PoolMachine) -> PoolMachine {
    instance.record.facts.spec_hash = SpecHash::new(from);
    instance
}

fn old(instance: PoolMachine) -> PoolMachine {
    built(OLD, instance)
}

fn seen_as(machine: MachineState, instance: PoolMachine) -> PoolMachine {
    PoolMachine { machine: Some(machine), ..instance }
}

fn launch(id: &str, usage: Usage, outstanding: u32) -> Intent {
    Intent {
        id: IntentId::new(id),
        owner: Owner::Pool(pool()),
        trust: None,
        class: samples::facts().class,
        pool: Some(pool()),
        usage,
        spec_hash: SpecHash::new(NEW),
        count: outstanding,
        avoid: std::collections::BTreeSet::new(),
        outstanding,
        deadline: at(600),
        revision: Revision(1),
    }
}

fn observed(instances: impl Into<Vec<PoolMachine>>) -> ObservedPool {
    ObservedPool { instances: instances.into(), ..ObservedPool::default() }
}

fn failure(id: &str, seconds: u64) -> BootFailure {
    let intent = IntentId::new(format!("intent-{id}"));
    BootFailure { id: InstanceId::new(id), intent, spec_hash: SpecHash::new(NEW), at: at(seconds) }
}

/// The actions of a plan, a line each.
fn actions_of(plan: &Plan) -> Vec<String> {
    let line = |action: &Action| match action {
        Action::Terminate { cause, endings } => {
            let each = endings.iter().map(|ending| format!(" {} {:?}", ending.id, ending.why));
            format!("end {}:{}", cause.code(), each.collect::<Vec<_>>().join(","))
        }
        Action::KeepHot(ids) => format!("keep hot:{}", list(ids)),
        Action::KeepStopped(ids) => format!("keep stopped:{}", list(ids)),
        Action::Stop(stops) => {
            let each = stops.iter().map(|(id, why)| format!(" {id} {why:?}"));
            format!("stop:{}", each.collect::<Vec<_>>().join(","))
        }
        Action::Create { usage, hot, stopped } => {
            format!("create {}: {hot} hot, {stopped} stopped", usage.as_str())
        }
    };
    plan.actions.iter().map(line).collect()
}

fn list(ids: &[InstanceId]) -> String {
    ids.iter().map(|id| format!(" {id}")).collect::<Vec<_>>().join(",")
}

fn codes(plan: &Plan) -> Vec<&'static str> {
    plan.notes.iter().map(Note::code).collect()
}

/// The actions that are planned at [`NOW`].
fn planned(instances: impl Into<Vec<PoolMachine>>, desired: &DesiredPool) -> Vec<String> {
    actions_of(&plan(&observed(instances), desired, at(NOW)))
}

const fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(minutes * 60)
}
