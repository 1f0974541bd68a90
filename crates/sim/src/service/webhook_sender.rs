//! The webhook sender: GitHub's facts reach the service late, twice, in another order, or not at
//! all.
//!
//! Not here: the facts ([`crate::model::job_forge`]).

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bullpen_core::job::JobFact;
use bullpen_core::ports::Ports;
use bullpen_engine::jobs::deliver;
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::plan::{ServicePlan, WebhookOdds};
use super::{SimService, process};
use crate::clock::pass;
use crate::dice::Dice;
use crate::world::World;

/// The longest trip of a webhook without a fault.
const TRIP_MAX: Duration = Duration::from_secs(2);

/// Sends webhooks.
#[derive(Debug, Default)]
pub struct WebhookSender {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    odds: WebhookOdds,
    /// The held webhooks; `None` if the sender holds none back.
    held: Option<Vec<JobFact>>,
}

impl WebhookSender {
    /// A sender with these odds.
    pub fn new(odds: WebhookOdds) -> Self {
        Self { state: Mutex::new(State { odds, held: None }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the odds from now on.
    pub fn set_odds(&self, odds: WebhookOdds) {
        self.state().odds = odds;
    }

    /// Holds webhooks back from now on.
    pub fn hold(&self) {
        self.state().held.get_or_insert_default();
    }

    /// Ends holding back, and sends the held webhooks, the last first.
    pub fn send_held_backwards(&self, world: &World) {
        let held = self.state().held.take().unwrap_or_default();
        for fact in held.into_iter().rev() {
            world.jobs.announce(fact);
        }
    }

    /// Sends GitHub's facts to the service, for ever.
    pub async fn run(&self, world: &Arc<World>, plan: &ServicePlan) -> Infallible {
        let mut under_way = FuturesUnordered::new();
        let mut number = 0_u64;
        loop {
            let now = world.outside.clock().true_now();
            let mut facts = world.jobs.observe(world.stack_name(), now);
            facts.extend(world.jobs.take_redelivered());
            for fact in facts {
                if let Some(held) = &mut self.state().held {
                    held.push(fact);
                    continue;
                }
                number += 1;
                under_way.push(Box::pin(self.send(world, plan, fact, number)));
            }
            tokio::select! {
                biased;
                () = world.jobs.has_news() => {}
                Some(()) = under_way.next() => {}
            }
        }
    }

    /// Sends one webhook.
    async fn send(&self, world: &Arc<World>, plan: &ServicePlan, fact: JobFact, number: u64) {
        let dice = Dice::new(world.seed, &format!("webhook {number}"));
        let (clock, odds) = (world.outside.clock(), self.state().odds);
        if dice.chance(odds.unsent) {
            return world.happened("webhook never sent");
        }
        if dice.chance(odds.lost) {
            world.happened("webhook lost");
            return world.jobs.lose(fact, clock.true_now());
        }
        let is_late = dice.chance(odds.late);
        let (least, most) =
            if is_late { (TRIP_MAX, odds.late_max) } else { (Duration::ZERO, TRIP_MAX) };
        let copies = if dice.chance(odds.twice) { 2 + dice.below(2) } else { 1 };
        if is_late {
            world.happened("webhook late");
        }
        for copy in 1..=copies {
            pass(dice.between(least, most)).await;
            if copy > 1 {
                world.happened("webhook sent twice");
            }
            let fuse = dice.chance(world.climate().crash / 4).then(|| dice.below(12));
            let name = format!("webhook {number}.{copy}");
            let installation = world.jobs.installation_of(&fact.job);
            let take = async |service: &SimService<'_>| deliver(service, &fact, installation).await;
            let taken = process(world, plan, &name, fuse, take);
            if !matches!(taken.await, Some(Ok(_))) {
                world.happened("webhook not taken");
                world.jobs.lose(fact.clone(), clock.true_now());
            }
        }
    }
}
