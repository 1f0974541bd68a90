//! The manager of a standby pool, as far as it stops machines: the rules of section "a late stop call
//! must find nobody".
//!
//! No engine code does this yet: the program follows the protocol's text, and its writes are the
//! production transitions `FoundRunning`, `StopAgain` and `FoundStopped`.
//!
//! Not here: what a pool wants (nothing but that its stopped machine be stopped).

use bullpen_core::ids::{Revision, StopOp};
use bullpen_core::instance::{InstanceEvent, State, Tier};

use super::Steps;
use crate::explore::Config;
use crate::explore::fingerprint::Part;
use crate::explore::rules::Rule;
use crate::explore::world::{ExploredWorld, LedgerRow, Power, at, limits, never};

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
    let op = StopOp::new(format!("op-{}", world.clock));
    let until = at(world.clock).after(limits(config).stop_fence);
    match (&row.0.state, power) {
        (State::Idle { tier: Tier::Stopped, .. }, Power::Running)
            if config.holds(Rule::FoundRunningIsStopped) =>
        {
            Some(InstanceEvent::FoundRunning { op, until, deadline: never() })
        }
        // An earlier call may still land until its own time.
        (State::Stopping { until: earlier, .. }, Power::Running) if world.now() > *earlier => {
            Some(InstanceEvent::StopAgain { op, until })
        }
        (State::Stopping { .. }, Power::Stopped) => {
            let (skew, deadline) = (limits(config).clock_skew, never());
            Some(InstanceEvent::FoundStopped { at: world.now(), skew, deadline, shared: true })
        }
        _ => None,
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
            // Without the rule the same call may be made again, by whoever repeats it.
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
