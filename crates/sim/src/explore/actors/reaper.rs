//! The reaper and the reconciliation: `engine::reap` and `engine::reconcile`.
//!
//! Not here: the handshake (`hand`).

use bullpen_core::instance::{Authority, EndReason, InstanceEvent, Record, State};
use bullpen_core::mailbox::AgentPhase;

use super::Steps;
use super::hand::{self, Hand, Whose};
use crate::explore::Config;
use crate::explore::fingerprint::Part;
use crate::explore::rules::{Property, Rule};
use crate::explore::world::{ExploredWorld, LedgerRow, Power, at, limits, never};

pub(super) fn steps(world: &ExploredWorld, config: &Config, steps: &mut Steps) {
    match &world.reaper {
        Hand::Rests => look(world, config, steps),
        Hand::Withdraw(row) => {
            let next = world.changed(|next| withdraw(next, config, row));
            let generation = row.0.generation;
            steps.push(next, || format!("reaper writes releasing over {generation} as it read"));
        }
        Hand::Condemn(row) => {
            let next = world.changed(|next| condemn(next, row));
            steps.push(next, || String::from("reaper ends a machine whose deadline has passed"));
        }
        hand => hand::steps(world, config, Whose::Reaper, hand, steps),
    }
}

fn look(world: &ExploredWorld, config: &Config, steps: &mut Steps) {
    let row = world.record.clone();
    let state = &row.0.state;
    let overdue = world.now() >= state.deadline().after(limits(config).clock_skew);
    if world.power == Power::Gone && state.is_live() && !is_ending(state) {
        let next = world.changed(gone);
        steps.push(next, || String::from("reconciliation sees that the machine is gone"));
        return;
    }
    let hand = match state {
        State::Idle { .. } | State::Stopping { .. } if overdue => Hand::Condemn(row),
        State::Claimed { .. } if overdue => Hand::Withdraw(row),
        State::Running { .. } if overdue && !is_busy(world) => Hand::Withdraw(row),
        State::Releasing { .. } => Hand::Post(row),
        State::Terminating { .. } => return bury(world, steps),
        _ => return,
    };
    let next = world.changed(|next| next.reaper = hand);
    steps.push(next, || String::from("reaper reads the record"));
}

const fn is_ending(state: &State) -> bool {
    matches!(state, State::Terminating { .. })
}

fn is_busy(world: &ExploredWorld) -> bool {
    world.report.beat.as_ref().is_some_and(|beat| beat.phase == AgentPhase::Busy)
}

fn withdraw(world: &mut ExploredWorld, config: &Config, row: &Part<LedgerRow>) {
    world.reaper = Hand::Rests;
    let now = world.now();
    let authority = Authority::Deadline { at: now };
    let event = InstanceEvent::Withdrawn { authority, warm: true, at: now, cap: never() };
    let Ok(next) = row.0.on(&event) else { return };
    let alive = world.record.0.state.owner().is_some() && now < world.record.0.state.deadline();
    if store(world, config, row, next) {
        if alive {
            world.breaks(Property::LiveOwnerKeeps);
        }
        world.reaper = Hand::Post(world.record.clone());
    }
}

/// Without the rule the write is conditional on the generation alone, which a renewal does not change.
fn store(world: &mut ExploredWorld, config: &Config, row: &Part<LedgerRow>, next: Record) -> bool {
    if config.holds(Rule::ReapedAsRead) {
        return world.write(row, next);
    }
    let same = world.record.0.generation == row.0.generation;
    if same {
        world.overwrite(next);
    }
    same
}

fn condemn(world: &mut ExploredWorld, row: &Part<LedgerRow>) {
    world.reaper = Hand::Rests;
    let now = world.now();
    let (authority, why) = (Authority::Deadline { at: now }, EndReason::DeadlinePassed);
    if let Ok(next) = row.0.on(&InstanceEvent::Condemned { authority, why, at: now }) {
        world.write(row, next);
    }
}

fn gone(world: &mut ExploredWorld) {
    let (authority, why) = (Authority::Cloud, EndReason::MachineGone);
    if let Ok(next) =
        world.record.0.on(&InstanceEvent::Condemned { authority, why, at: world.now() })
    {
        world.overwrite(next);
    }
}

fn bury(world: &ExploredWorld, steps: &mut Steps) {
    if world.power == Power::Gone {
        let event = InstanceEvent::Gone { at: at(0), forget_at: never() };
        let Ok(buried) = world.record.0.on(&event) else { return };
        let next = world.changed(|next| next.overwrite(buried));
        steps.push(next, || String::from("reaper confirms that the machine is gone"));
    } else if !world.terminate_called {
        let next = world.changed(|next| next.terminate_called = true);
        steps.push(next, || String::from("reaper asks the cloud to end the machine"));
    }
}
