//! Somebody who releases what an owner holds: `engine::release::withdraw`, then the handshake.
//!
//! Not here: the handshake (`hand`).

use bullpen_core::instance::{Authority, InstanceEvent, State};

use super::Steps;
use super::hand::{self, Hand, Whose};
use crate::explore::Config;
use crate::explore::fingerprint::Part;
use crate::explore::rules::{Property, Rule};
use crate::explore::world::{ExploredWorld, LedgerRow, never};

pub(super) fn steps(world: &ExploredWorld, config: &Config, steps: &mut Steps) {
    match &world.releaser {
        Hand::Rests => look(world, config, steps),
        Hand::Withdraw(row) => {
            let next = world.changed(|next| withdraw(next, config, row));
            let generation = row.0.generation;
            steps.push(next, || format!("releaser writes releasing over {generation} as it read"));
        }
        hand => hand::steps(world, config, Whose::Releaser, hand, steps),
    }
}

fn look(world: &ExploredWorld, config: &Config, steps: &mut Steps) {
    let row = world.record.clone();
    let hand = match &row.0.state {
        State::Claimed { .. } | State::Running { .. } => Hand::Withdraw(row),
        State::Releasing { .. } if config.two_finish => Hand::Post(row),
        _ => return,
    };
    let next = world.changed(|next| next.releaser = hand);
    steps.push(next, || String::from("releaser reads the record"));
}

fn withdraw(world: &mut ExploredWorld, config: &Config, row: &Part<LedgerRow>) {
    world.releaser = Hand::Rests;
    let seen = &row.0;
    let Some(owner) = seen.state.owner().cloned() else { return };
    let authority = Authority::Owner { owner, generation: seen.generation };
    let event = InstanceEvent::Withdrawn { authority, warm: true, at: world.now(), cap: never() };
    // Without the rule the write is conditional on nothing but what the event itself says.
    let unconditional = !config.holds(Rule::OwnerAndGeneration);
    let over = if unconditional { world.record.clone() } else { row.clone() };
    let Ok(next) = over.0.on(&event) else { return };
    let fenced = world.record.0.generation != seen.generation;
    if world.write(&over, next) {
        if fenced {
            world.breaks(Property::FencedIsHarmless);
        }
        if config.two_finish {
            world.releaser = Hand::Post(world.record.clone());
        }
    }
}
