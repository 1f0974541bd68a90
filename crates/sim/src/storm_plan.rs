//! What a seed draws of storms: their times, kinds and places, calls that are slow or hang,
//! processes that pause, and clocks that step.
//!
//! Drawn from a stream of its own: a world without storms stays as it was before there were any.
//!
//! Not here: what a storm does ([`crate::storms`]), or the other troubles ([`crate::load`]).

use std::time::Duration;

use bullpen_core::ports::Ports as _;
use futures_util::future::join_all;

use crate::clock::pass;
use crate::dice::Dice;
use crate::storms::{
    DYNAMODB, EC2, EVERYTHING, GITHUB, LEDGER, MAILBOX, Party, SQS, Storm, StormKind,
};
use crate::world::{Climate, World};

/// Of a thousand seeds, how many have storms.
const STORMY: u32 = 400;
/// The most storms of one world.
const STORMS_MAX: u64 = 5;
/// How long a storm lasts: mostly a few minutes.
const LASTS: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(600));
/// The services that a storm may have, mailboxes and records apart or together.
const SERVICES: [&[&str]; 6] = [DYNAMODB, SQS, EC2, GITHUB, MAILBOX, LEDGER];
/// The zones of the model cloud.
const ZONES: [&str; 2] = ["zone-a", "zone-b"];
/// Processes that run all the time; a seed may have fewer.
const REPLICAS: [&str; 4] = ["serve 1", "serve 2", "upkeep 1", "upkeep 2"];

/// The storms of one seed.
#[derive(Clone, Debug, Default)]
pub struct StormPlan {
    /// When each begins, and how long it lasts.
    storms: Vec<(Duration, Duration, Storm)>,
    slow: u32,
    hang: u32,
    late_refusals: u32,
    pauses: u32,
    unsteady: u32,
}

/// Draws the storms of a world whose faults last this long, if it has any.
pub fn draw(seed: u64, lasts: Duration) -> Option<StormPlan> {
    let dice = Dice::new(seed, "storms");
    if !dice.chance(STORMY) {
        return None;
    }
    let odds = |most: u64| {
        let on = dice.chance(500);
        let strength = u32::try_from(dice.below(most)).unwrap_or(0) + 1;
        if on { strength } else { 0 }
    };
    let count = dice.below(STORMS_MAX + 1);
    let storm = |_| (dice.between(Duration::ZERO, lasts), dice.delay(LASTS.0, LASTS.1), one(&dice));
    Some(StormPlan {
        storms: (0..count).map(storm).collect(),
        slow: odds(60),
        hang: odds(15),
        late_refusals: odds(200),
        pauses: odds(200),
        unsteady: odds(400),
    })
}

fn one(dice: &Dice) -> Storm {
    let kind = match dice.below(4) {
        0 => StormKind::Slow,
        1 => StormKind::Throttling,
        _ => StormKind::Gone,
    };
    let any = |places: &[&str]| dice.pick(places).map(|place| (*place).to_owned());
    match dice.below(10) {
        0 => Storm { kind, ports: MAILBOX, party: Some(Party::Agent), place: None },
        1..3 => Storm { kind, ports: MAILBOX, party: Some(Party::Agent), place: any(&ZONES) },
        3..5 => Storm {
            kind,
            ports: EVERYTHING,
            party: Some(Party::ControlPlane),
            place: any(&REPLICAS),
        },
        _ => Storm::everywhere(kind, dice.pick(&SERVICES).copied().unwrap_or(SQS)),
    }
}

impl StormPlan {
    /// Changes the climate of a world with these storms.
    pub fn change(&self, climate: &mut Climate) {
        let Self { slow, hang, late_refusals, pauses, unsteady, .. } = *self;
        for weather in [&mut climate.control, &mut climate.agents] {
            (weather.slow, weather.hang, weather.late_refusals) = (slow, hang, late_refusals);
        }
        (climate.pauses, climate.unsteady) = (pauses, unsteady);
    }

    /// Lets each storm happen at its time; the world's healing ends all of them.
    pub(crate) async fn run(&self, world: &World) {
        let happening = self.storms.iter().map(|(at, lasts, storm)| async move {
            pass(*at).await;
            // Listeners do not reach GitHub either, and it gives no jobs.
            let is_github = storm.kind == StormKind::Gone && storm.ports == GITHUB;
            let forge = world.outside.forge();
            let id = world.begin_storm(storm.clone());
            if is_github {
                forge.set_outage(true);
            }
            pass(*lasts).await;
            if is_github {
                forge.set_outage(false);
            }
            world.end_storm(id);
        });
        join_all(happening).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_seeds_have_storms_of_every_kind_and_place() {
        let lasts = Duration::from_secs(5_400);
        let drawn: Vec<_> = (0..300).filter_map(|seed| draw(seed, lasts)).collect();
        assert!((90..150).contains(&drawn.len()), "{}", drawn.len());
        let storms: Vec<&Storm> =
            drawn.iter().flat_map(|plan| &plan.storms).map(|(.., storm)| storm).collect();
        for kind in [StormKind::Gone, StormKind::Slow, StormKind::Throttling] {
            assert!(storms.iter().any(|storm| storm.kind == kind));
        }
        for ports in SERVICES.iter().chain(&[EVERYTHING]) {
            assert!(storms.iter().any(|storm| storm.ports == *ports));
        }
        for place in ZONES.iter().chain(&REPLICAS) {
            assert!(storms.iter().any(|storm| storm.place.as_deref() == Some(place)));
        }
        assert!(drawn.iter().any(|plan| plan.hang > 0 && plan.pauses > 0 && plan.unsteady > 0));
    }
}
