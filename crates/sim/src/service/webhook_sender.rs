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

/// How long a webhook travels without a fault.
const TRAVELS: Duration = Duration::from_secs(2);

/// Sends webhooks.
#[derive(Debug, Default)]
pub struct WebhookSender {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    post: WebhookOdds,
    /// The webhooks held back, while they are.
    kept: Option<Vec<JobFact>>,
}

impl WebhookSender {
    /// A sender with these odds.
    pub fn new(post: WebhookOdds) -> Self {
        Self { state: Mutex::new(State { post, kept: None }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the odds from now on.
    pub fn travels(&self, post: WebhookOdds) {
        self.state().post = post;
    }

    /// Holds webhooks back from now on.
    pub fn keep(&self) {
        self.state().kept.get_or_insert_default();
    }

    /// Ends holding back, and sends the held webhooks, the last first.
    pub fn let_go_backwards(&self, world: &World) {
        let kept = self.state().kept.take().unwrap_or_default();
        for fact in kept.into_iter().rev() {
            world.jobs.say(fact);
        }
    }

    /// Sends GitHub's facts to the service, for ever.
    pub async fn bring(&self, world: &Arc<World>, plan: &ServicePlan) -> Infallible {
        let mut on_their_way = FuturesUnordered::new();
        let mut number = 0_u64;
        loop {
            let now = world.outside.clock().true_now();
            let mut facts = world.jobs.observe(world.stack_name(), now);
            facts.extend(world.jobs.take_redelivered());
            for fact in facts {
                if let Some(kept) = &mut self.state().kept {
                    kept.push(fact);
                    continue;
                }
                number += 1;
                on_their_way.push(Box::pin(self.travel(world, plan, fact, number)));
            }
            tokio::select! {
                biased;
                () = world.jobs.has_news() => {}
                Some(()) = on_their_way.next() => {}
            }
        }
    }

    /// Sends one webhook.
    async fn travel(&self, world: &Arc<World>, plan: &ServicePlan, fact: JobFact, number: u64) {
        let dice = Dice::new(world.seed, &format!("webhook {number}"));
        let (clock, post) = (world.outside.clock(), self.state().post);
        if dice.chance(post.unsent) {
            return world.happened("webhook never sent");
        }
        if dice.chance(post.lost) {
            world.happened("webhook lost");
            return world.jobs.lose(fact, clock.true_now());
        }
        let is_late = dice.chance(post.late);
        let (least, most) =
            if is_late { (TRAVELS, post.late_max) } else { (Duration::ZERO, TRAVELS) };
        let copies = if dice.chance(post.twice) { 2 + dice.below(2) } else { 1 };
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
            let told = world.jobs.told_by(&fact.job);
            let take = async |service: &SimService<'_>| deliver(service, &fact, told).await;
            let taken = process(world, plan, &name, fuse, take);
            if !matches!(taken.await, Some(Ok(_))) {
                world.happened("webhook not taken");
                world.jobs.lose(fact.clone(), clock.true_now());
            }
        }
    }
}
