//! The steps that Bullpen does not decide: time, calls that land late, GitHub, and the runner program's process.
//!
//! Not here: the agent (`agent`).

use bullpen_core::claim::Deletion;
use bullpen_core::ids::Generation;
use bullpen_core::instance::{EndReason, State};

use super::Steps;
use super::agent;
use crate::explore::Config;
use crate::explore::rules::{Property, Rule};
use crate::explore::world::{ExploredWorld, Power};

/// What GitHub may say when it is asked to delete a runner, and the world after each answer.
pub(super) fn deletions(
    world: &ExploredWorld,
    generation: Generation,
) -> Vec<(Deletion, ExploredWorld)> {
    let mut answers = Vec::new();
    match world.registration(generation) {
        Some(runner) if runner.busy => answers.push((Deletion::Busy, world.clone())),
        Some(_) => {
            let next =
                world.changed(|next| next.runners.retain(|runner| runner.generation != generation));
            answers.push((Deletion::Deleted, next));
        }
        None => answers.push((Deletion::NotFound, world.clone())),
    }
    if world.faults_left > 0 {
        let next = world.changed(|next| next.faults_left -= 1);
        answers.push((Deletion::Unavailable, next));
    }
    answers
}

pub(super) fn steps(world: &ExploredWorld, config: &Config, steps: &mut Steps) {
    if world.clock < config.ticks {
        let next = world.changed(|next| {
            next.clock += 1;
            if config.holds(Rule::StopsAreFenced) {
                next.stops.retain(|until| *until >= next.clock);
            }
        });
        steps.push(next, || String::from("time passes"));
    }
    landings(world, config, steps);
    github(world, steps);
}

fn landings(world: &ExploredWorld, config: &Config, steps: &mut Steps) {
    for (index, order) in world.letters.iter().enumerate() {
        let generation = order.rank().generation;
        let next = world.changed(|next| {
            let order = next.letters.change(|letters| letters.remove(index));
            next.post(order);
        });
        steps.push(next, || format!("assignment {generation} lands late"));
    }
    if world.start_called {
        let next = world.changed(|next| {
            next.start_called = false;
            if next.power == Power::Stopped {
                next.power = Power::Running;
                agent::boot(next, config);
            }
        });
        steps.push(next, || String::from("the start call lands"));
    }
    for index in 0..world.stops.len() {
        let next = world.changed(|next| {
            next.stops.remove(index);
            stop(next);
        });
        steps.push(next, || String::from("a stop call lands"));
    }
    if world.terminate_called && world.power != Power::Gone {
        let next = world.changed(|next| {
            let due = matches!(
                next.record.0.state,
                State::Terminating { why: EndReason::DeadlinePassed, .. }
            );
            if next.listener.as_ref().is_some_and(|listener| listener.job) && !due {
                next.breaks(Property::JobsAreSafe);
            }
            end(next, Power::Gone);
        });
        steps.push(next, || String::from("the cloud ends the machine"));
    }
}

fn stop(world: &mut ExploredWorld) {
    if world.power != Power::Running {
        return;
    }
    if !matches!(world.record.0.state, State::Stopping { .. } | State::Terminating { .. }) {
        world.breaks(Property::StopFindsNobody);
    }
    if world.listener.as_ref().is_some_and(|listener| listener.job) {
        world.breaks(Property::JobsAreSafe);
    }
    end(world, Power::Stopped);
}

/// The machine is off: nothing of its processes is left. GitHub notices that a runner is away.
pub(super) fn end(world: &mut ExploredWorld, power: Power) {
    world.power = power;
    world.agent = None;
    world.listener = None;
    for runner in &mut world.runners {
        runner.busy = false;
    }
}

fn github(world: &ExploredWorld, steps: &mut Steps) {
    let Some(listener) = &world.listener else { return };
    let generation = listener.to.generation;
    let Some(runner) = world.registration(generation) else {
        let next = world.changed(agent::listener_ends);
        steps.push(next, || format!("listener {generation}, deleted at GitHub, ends"));
        return;
    };
    let flip = |busy: bool| {
        move |next: &mut ExploredWorld| {
            for runner in next.runners.iter_mut().filter(|it| it.generation == generation) {
                runner.busy = busy;
            }
            if let Some(listener) = &mut next.listener {
                listener.change(|listener| listener.job = busy);
            }
        }
    };
    if !listener.listening {
        let next = world.changed(|next| {
            if let Some(listener) = &mut next.listener {
                listener.change(|listener| listener.listening = true);
            }
        });
        steps.push(next, || format!("listener {generation} connects"));
    } else if runner.busy {
        steps.push(world.changed(flip(false)), || format!("the job on {generation} ends"));
    } else if world.jobs_left > 0 {
        let mut next = world.changed(flip(true));
        next.jobs_left -= 1;
        steps.push(next, || format!("GitHub starts a job on listener {generation}"));
    }
}
