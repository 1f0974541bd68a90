//! Changes of a world that last: outages, shortages, weather, the behaviour of agents.
//!
//! Not here: faults of a single call, which belong to a process (`processes`).

use bullpen_core::ports::Ports;

use super::verb::{Agents, Change};
use crate::model::fleet::Listings;
use crate::world::{Climate, World};

/// Applies a change.
pub(super) fn apply(world: &World, change: &Change) {
    let (fleet, forge) = (world.outside.fleet(), world.outside.forge());
    match change {
        Change::GitHub { down } => {
            forge.set_outage(*down);
            world.jobs.set_outage(false);
        }
        Change::Outage(storm) => {
            world.begin_storm(storm.clone());
        }
        Change::OutageOver => world.end_storms(),
        Change::QueueDeleted(name) => world.outside.queues().delete_now(name),
        Change::GivesNothing(gives_nothing) => forge.set_gives_nothing(*gives_nothing),
        Change::Breaks(text) => forge.break_at(text),
        Change::Silent => world.jobs.set_outage(true),
        Change::Points(a_minute) => forge.limit_points(*a_minute),
        Change::RunEnds(run) => forge.end_run(run.clone()),
        Change::Capacity(left) => fleet.limit_capacity(*left),
        Change::ShortageOver => fleet.replenish(),
        Change::Shortage { usage, instance_type, zone } => {
            for offering in fleet.offerings() {
                let of_type = instance_type.as_ref().is_none_or(|t| *t == offering.instance_type);
                let in_zone = zone.as_ref().is_none_or(|zone| *zone == offering.zone);
                if offering.usage == *usage && of_type && in_zone {
                    fleet.deplete(offering);
                }
            }
        }
        Change::Weather(weather) => {
            world.change_climate(|climate| climate.control = *weather);
        }
        Change::Agents(agents) => {
            world.change_climate(|climate| temper(climate, *agents));
        }
        Change::Cloud { boot, visible_after, page, lag } => {
            let answers = Listings::TRUE;
            let (page, lag_max) = (page.unwrap_or(answers.page), lag.unwrap_or(answers.lag_max));
            fleet.set_listings(Listings { page, lag_max, ..answers }, world.seed);
            world.change_climate(|climate| {
                climate.delays.boot_max = boot.unwrap_or(climate.delays.boot_max);
                climate.delays.visible_after_max =
                    visible_after.unwrap_or(climate.delays.visible_after_max);
            });
        }
    }
}

/// Sets the behaviour of agents on machines that boot from now on.
fn temper(climate: &mut Climate, agents: Agents) {
    /// Of a thousand waits, how many end with a crash of the agent: about one every minute.
    const CRASHES: u32 = 80;
    let (mute, fails, dies, updates) = match agents {
        Agents::Well => (0, 0, 0, 0),
        Agents::Mute => (1_000, 0, 0, 0),
        Agents::FailWarmUp => (0, 1_000, 0, 0),
        Agents::Crashing => (0, 0, CRASHES, 0),
        Agents::Updating => (0, 0, 0, 1_000),
    };
    climate.temper.mute = mute;
    climate.temper.warm_up_fails = fails;
    climate.temper.dies = dies;
    climate.temper.updates = updates;
}
