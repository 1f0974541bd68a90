//! A cloud that is odd, drawn from a seed: listings in small pages that miss machines, states that
//! lag, machines that listings miss for minutes, that the cloud denies, or whose tags are gone; and other
//! stacks of the same account.
//!
//! Its draws are a stream of their own, so they change no other draw of the world.
//!
//! Not here: what these do ([`crate::model::fleet`]), or other troubles ([`crate::load`]).

use std::time::Duration;

use bullpen_core::ids::InstanceId;
use bullpen_core::ports::{Machine, MachineState, Ports};
use bullpen_core::rates::FleetCall;
use futures_util::future::join_all;

use crate::clock::pass;
use crate::dice::Dice;
use crate::model::fleet::{Listings, Oddity};
use crate::world::World;

/// The smallest page: a listing of all machines stays within the cloud's rates.
const PAGE_MIN: u64 = 5;

/// The longest lag of a state. Shorter than any boot: a release takes a stopped machine as proof that
/// no listener runs there.
const LAG_MAX: Duration = Duration::from_secs(5);

/// One machine that is odd for a while.
#[derive(Clone, Copy, Debug)]
struct Spell {
    begins: Duration,
    oddity: Oddity,
    lasts: Duration,
}

/// The most machines that other stacks of the account have in a world.
const NEIGHBOURS_MAX: u64 = 12;
/// How often another stack lists its machines.
const NEIGHBOUR_LISTS: Duration = Duration::from_secs(60);

/// Plays other stacks of the account, in half of all worlds; `lasts`: how long faults occur.
pub(crate) async fn play_neighbours(world: &World, lasts: Duration) {
    let dice = Dice::new(world.seed, "neighbours");
    let count = if dice.chance(500) { 1 + dice.below(NEIGHBOURS_MAX) } else { 0 };
    let offerings = world.outside.fleet().offerings();
    let stays = (0..count).map(|_| {
        let begins = dice.between(Duration::ZERO, lasts);
        let stays = dice.delay(NEIGHBOUR_LISTS, lasts);
        (begins, begins + stays, dice.pick(&offerings).cloned())
    });
    let stays: Vec<_> = stays.collect();
    join_all(stays.into_iter().map(async |(begins, ends, offering)| {
        let Some(offering) = offering else { return };
        let (fleet, clock) = (world.outside.fleet(), world.outside.clock());
        pass(begins).await;
        world.happened("machine of another stack");
        let id = fleet.add_neighbour(offering);
        while clock.elapsed() < ends.min(lasts) {
            pass(NEIGHBOUR_LISTS).await;
            fleet.neighbour_asks(FleetCall::Describe);
        }
        fleet.end_neighbour(&id);
    }))
    .await;
}

/// Plays this seed's oddities; `lasts`: how long faults occur.
pub(crate) async fn play(world: &World, lasts: Duration) {
    let dice = Dice::new(world.seed, "odd cloud");
    // Half of all clouds are as they should be.
    if !dice.chance(500) {
        return;
    }
    world.outside.fleet().set_listings(listings(&dice), world.seed);
    let spells: Vec<Spell> = (0..dice.below(9)).map(|_| spell(&dice, lasts)).collect();
    join_all(spells.into_iter().map(|spell| befall(world, &dice, spell))).await;
}

fn listings(dice: &Dice) -> Listings {
    let mut listings = Listings::TRUE;
    if dice.chance(500) {
        listings.page = usize::try_from(PAGE_MIN + dice.below(20)).unwrap_or(listings.page);
    }
    if dice.chance(500) {
        listings.misses = 1 + u32::try_from(dice.below(30)).unwrap_or(0);
    }
    if dice.chance(500) {
        listings.lag_max = dice.between(Duration::ZERO, LAG_MAX);
    }
    listings
}

fn spell(dice: &Dice, lasts: Duration) -> Spell {
    let begins = dice.between(Duration::ZERO, lasts);
    let oddities = [Oddity::Unlisted, Oddity::Unseen, Oddity::Untagged, Oddity::Denied];
    let oddity = *dice.pick(&oddities).unwrap_or(&Oddity::Unlisted);
    // An operator who removes tags or protects a machine takes minutes to notice.
    let lasts = dice.delay(Duration::from_secs(10), Duration::from_secs(20 * 60));
    Spell { begins, oddity, lasts }
}

async fn befall(world: &World, dice: &Dice, spell: Spell) {
    pass(spell.begins).await;
    let fleet = world.outside.fleet();
    let is_alive = |machine: &Machine| machine.state != MachineState::Gone;
    let alive: Vec<InstanceId> =
        fleet.snapshot().into_iter().filter(is_alive).map(|machine| machine.id).collect();
    let Some(id) = dice.pick(&alive) else { return };
    world.happened(match spell.oddity {
        Oddity::Unlisted => "machine unlisted",
        Oddity::Unseen => "machine unseen",
        Oddity::Untagged => "machine untagged",
        Oddity::Denied => "machine denied",
        Oddity::Newer => "machine unreadable",
    });
    fleet.make_odd(id, spell.oddity, true);
    pass(spell.lasts).await;
    fleet.make_odd(id, spell.oddity, false);
}
