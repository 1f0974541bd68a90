//! The manager of a standby pool that wants one stopped machine.
//!
//! What it does is what `core::pool::plan` plans for the machine, and its writes are the events that the
//! engine writes for it; it performs them as `engine::pools` does: the write first, then the call.
//!
//! Not here: launches and ends that a plan has for other machines, or for a machine that is gone
//! (reconciliation ends that one).

use bullpen_core::class::Usage;
use bullpen_core::ids::{PoolName, Revision, StopOp};
use bullpen_core::instance::{InstanceEvent, State, Tier};
use bullpen_core::pool::{
    Action, DesiredPool, ObservedPool, PoolMachine, PoolMode, StopWhy, WarmUp, found_stopped, plan,
};
use bullpen_core::ports::MachineState;
use bullpen_core::schedule::Target;

use super::Steps;
use crate::explore::Config;
use crate::explore::fingerprint::Part;
use crate::explore::rules::Rule;
use crate::explore::world::{ExploredWorld, LedgerRow, Power, limits};

/// What the manager is about to do.
#[derive(Clone, Debug, Hash)]
pub(in crate::explore) enum Manager {
    Rests,
    /// To write down what it saw of the cloud.
    Write(Part<LedgerRow>, Power),
    /// To make the stop call it wrote down at this tick.
    Call(u8),
}

impl Manager {
    /// Whether what it read is still what is stored.
    pub(in crate::explore) fn is_current(&self, revision: Revision) -> bool {
        match self {
            Self::Rests | Self::Call(_) => true,
            Self::Write(row, _) => row.0.revision == revision,
        }
    }
}

/// What the manager writes about a record and what the cloud says of its machine, if anything.
pub(in crate::explore) fn repair(
    world: &ExploredWorld,
    config: &Config,
    row: &LedgerRow,
    power: Power,
) -> Option<InstanceEvent> {
    // No plan stops or keeps a machine in another state: a cheap answer for most of the worlds.
    let (State::Idle { tier: Tier::Stopped, .. } | State::Stopping { .. }) = row.0.state else {
        return None;
    };
    let (limits, now) = (limits(config), world.now());
    let pool = row.0.facts.pool.clone()?;
    let machine = PoolMachine {
        record: row.0.clone(),
        machine: Some(match power {
            Power::Running => MachineState::Running,
            Power::Stopped => MachineState::Stopped,
            Power::Gone => MachineState::Gone,
        }),
        warm_up: WarmUp::Complete,
        job_started: false,
        interrupted: false,
    };
    let observed = ObservedPool { instances: vec![machine], ..ObservedPool::default() };
    let actions = plan(&observed, &desired(row, &pool, config), now).actions;
    actions.into_iter().find_map(|action| match action {
        Action::Stop(stops) => {
            let (_, why) = stops.into_iter().next()?;
            let is_off = why == StopWhy::FoundRunning && !config.holds(Rule::FoundRunningIsStopped);
            let op = StopOp::new(format!("op-{}", world.clock));
            (!is_off).then(|| why.event(&pool, op, now, &limits))
        }
        Action::KeepStopped(_) => Some(found_stopped(true, now, &limits)),
        Action::Terminate { .. } | Action::KeepHot(_) | Action::Create { .. } => None,
    })
}

/// A pool that wants this machine, stopped.
fn desired(row: &LedgerRow, pool: &PoolName, config: &Config) -> DesiredPool {
    DesiredPool {
        target: Target { entry: None, hot: 0, stopped: 1 },
        spec_hash: row.0.facts.spec_hash.clone(),
        hot_usage: Usage::OnDemand,
        ..DesiredPool::nothing(pool.clone(), PoolMode::Kept, &limits(config))
    }
}

pub(super) fn steps(world: &ExploredWorld, config: &Config, steps: &mut Steps) {
    if config.tier != Tier::Stopped {
        return;
    }
    match &world.manager {
        Manager::Rests => {
            let Some(event) = repair(world, config, &world.record, world.power) else { return };
            if world.record.0.on(&event).is_ok() {
                let seen = Manager::Write(world.record.clone(), world.power);
                let next = world.changed(|next| next.manager = seen);
                steps.push(next, || format!("manager sees the machine {:?}", world.power));
            }
        }
        Manager::Write(row, power) => {
            let event = repair(world, config, row, *power);
            let next = world.changed(|next| write(next, row, event.as_ref()));
            let name = event.as_ref().map_or("nothing", InstanceEvent::name);
            steps.push(next, || format!("manager writes {name}"));
        }
        Manager::Call(written) => {
            let next = world.changed(|next| call(next, config, *written));
            let sent = next.stops.len() > world.stops.len();
            let said = if sent { "makes its stop call" } else { "is too late for its stop call" };
            // Without the rule any process may make the same call again.
            if !config.holds(Rule::StopsAreFenced) && world.stops.is_empty() {
                let again = next.changed(|next| next.manager = Manager::Call(*written));
                steps.push(again, || String::from("manager makes its stop call, to repeat it"));
            }
            steps.push(next, || format!("manager {said}"));
        }
    }
}

fn write(world: &mut ExploredWorld, row: &Part<LedgerRow>, event: Option<&InstanceEvent>) {
    world.manager = Manager::Rests;
    let Some(event) = event else { return };
    let Ok(next) = row.0.on(event) else { return };
    let calls = matches!(next.state, State::Stopping { .. });
    if world.write(row, next) && calls {
        world.manager = Manager::Call(world.clock);
    }
}

/// Directly before sending, the sender looks at its own clock.
fn call(world: &mut ExploredWorld, config: &Config, written: u8) {
    world.manager = Manager::Rests;
    if world.clock == written || !config.holds(Rule::StopsAreFenced) {
        world.stops.push(written + 1);
        world.stops.sort_unstable();
    }
}
