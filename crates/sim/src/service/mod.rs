//! The service in a seed's world: replicas that serve jobs and die, webhooks that get lost, and
//! jobs that arrive, run and are cancelled.
//!
//! Each process is the whole production service ([`bullpen_engine::jobs::run`]). A separate process
//! takes each webhook, and does only the work of a replica's webhook listener.
//!
//! Not here: drawing them ([`plan`]), GitHub ([`crate::model::job_forge`]), or the checks
//! ([`crate::checker`]).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bullpen_core::ports::Ports;
use bullpen_engine::Stack;
use bullpen_engine::branch::branch;
use bullpen_engine::jobs::{self, Duties, Service, ensure_queues};
use bullpen_engine::pools::{Survey, SurveyedPool, known, survey};
use futures_util::future::join_all;

use crate::clock::pass;
use crate::dice::Dice;
use crate::life::desired;
use crate::model::JobForgeModel;
use crate::wire::Wire;
use crate::world::{SimPorts, World};

pub mod plan;
pub mod pools;
mod webhook_sender;

use plan::{FOREIGN_LABEL, JobPlan, ServicePlan, WebhookOdds};
pub use webhook_sender::WebhookSender;

/// A service in a world.
pub type SimService<'a> = Service<'a, SimPorts, JobForgeModel>;

/// How often a job's author checks whether it is over.
const LOOK: Duration = Duration::from_secs(5);
/// After this long the author cancels a job that cannot be served.
const GIVES_UP_AFTER: Duration = Duration::from_secs(10 * 60);

/// Makes the queues that wake workers for jobs.
pub async fn make_queues(world: &World) {
    let (wire, stack) = world.process("jobs' queues");
    while ensure_queues(&stack).await.is_err() {}
    world.retire(&wire);
}

/// Serves for ever: replicas, and GitHub's webhooks, with faults until the faults end.
pub async fn serve(world: &Arc<World>, plan: &ServicePlan, faulty: Duration) -> Infallible {
    for repository in &plan.public {
        world.jobs.make_public(repository);
    }
    let replicas = join_all((1..=plan.replicas).map(|number| branch(replica(world, plan, number))));
    let sender = WebhookSender::new(plan.webhooks);
    draw_githubs_hour(world);
    let heals = async {
        pass(faulty).await;
        sender.set_odds(WebhookOdds::default());
        world.outside.forge().limit_calls(None);
        world.jobs.set_lag(Duration::ZERO);
        world.jobs.hide_new_jobs(false);
    };
    let (never, ..) = tokio::join!(branch(sender.run(world, plan)), replicas, heals);
    never
}

/// Draws how many calls GitHub allows in an hour, how far its lists lag, and whether it shows a job
/// only after its webhook. The limit is never so low that authors could not be told in time.
fn draw_githubs_hour(world: &World) {
    let dice = Dice::new(world.seed, "github's hour");
    if dice.chance(500) {
        world.outside.forge().limit_calls(Some(1_500 + dice.below(3_500)));
    }
    if dice.chance(400) {
        world.jobs.set_lag(dice.between(Duration::ZERO, Duration::from_secs(20)));
    }
    world.jobs.hide_new_jobs(dice.chance(300));
}

/// Follows all jobs to their ends.
pub async fn follow_all(world: &World, jobs: &[JobPlan]) {
    join_all(jobs.iter().map(|job| branch(follow(world, job)))).await;
}

/// One job: GitHub queues it, a person may cancel it, and its author waits for its end.
async fn follow(world: &World, job: &JobPlan) {
    pass(job.arrives).await;
    let (github, clock) = (&world.jobs, world.outside.clock());
    github.comes_from(job.about.run.clone(), job.origin);
    let fact = github.queue(job.id.as_str(), job.about.clone(), job.lasts, clock.true_now());
    github.announce(fact);
    let wants_foreign = job.about.labels.iter().any(|label| label == FOREIGN_LABEL);
    if wants_foreign {
        // The stranger's job that the hostile job's runner must not get.
        world.outside.forge().submit(FOREIGN_LABEL, job.lasts);
    }
    let began = clock.elapsed();
    while !github.is_over(&job.id) {
        if job.cancelled_after.is_some_and(|after| clock.elapsed() >= began + after) {
            github.cancel_job(&job.id, clock.true_now());
        }
        pass(LOOK).await;
    }
    pass(GIVES_UP_AFTER).await;
    github.cancel_job(&job.id, clock.true_now());
    if wants_foreign {
        world.outside.forge().cancel(FOREIGN_LABEL);
    }
}

/// Runs one replica after another under one number: each dies at an await, drains, or lives on.
async fn replica(world: &Arc<World>, plan: &ServicePlan, number: u64) -> Infallible {
    let dice = Dice::new(world.seed, &format!("serve {number}"));
    let upkeep = dice.chance(500);
    let duties =
        Duties { jobs: true, upkeep, pools: true, repositories: plan.repositories.clone() };
    let mut round = 0_u64;
    loop {
        pass(dice.between(Duration::ZERO, Duration::from_secs(40))).await;
        round += 1;
        let dies = dice.chance(world.climate().crash);
        let awaits = dice.below(if dice.chance(500) { 600 } else { 20_000 });
        let (drains, after) =
            (dice.chance(250), dice.between(Duration::ZERO, Duration::from_secs(40 * 60)));
        let stop = async {
            if !drains {
                std::future::pending::<()>().await;
            }
            pass(after).await;
        };
        let name = format!("serve {number}.{round}");
        let ended = process(world, plan, &name, dies.then_some(awaits), async |service| {
            tokio::select! {
                biased;
                () = jobs::run(service, &duties, desired, stop) => {}
                never = follow_timeline(world, plan, service) => match never {},
            }
        });
        if ended.await.is_some() {
            world.happened("replica drained");
        }
    }
}

/// Configures a service at every change of the timeline.
async fn follow_timeline(
    world: &World,
    plan: &ServicePlan,
    service: &SimService<'_>,
) -> Infallible {
    let mut known = None;
    loop {
        let now = plan.timeline.at(world.outside.clock().elapsed());
        if now != known {
            service.configure(plan.settings_with(now.as_ref()));
            known = now;
        }
        pass(LOOK).await;
    }
}

/// The world's pools as they are now, each with its plan.
pub(crate) async fn look_at_pools(world: &World, plan: &ServicePlan) -> Vec<SurveyedPool> {
    let stack = world.onlooker();
    let pools = plan.timeline.at(world.outside.clock().elapsed());
    let configured = plan.settings_with(pools.as_ref()).blueprints().unwrap_or_default();
    let names = known(&stack, &configured).await.expect("the onlooker has no faults");
    let found = survey(&stack, &configured, &names).await;
    found.and_then(Survey::complete).expect("the onlooker has no faults")
}

/// One process of the service, to its end or its death.
pub async fn process<T>(
    world: &Arc<World>,
    plan: &ServicePlan,
    name: &str,
    fuse: Option<u64>,
    body: impl AsyncFnOnce(&SimService<'_>) -> T,
) -> Option<T> {
    let (wire, stack) = world.process(name);
    if let Some(awaits) = fuse {
        wire.die_after(awaits);
    }
    on_wire(world, plan, &wire, &stack, body).await
}

/// Like [`process`], on a wire that the caller made and prepared.
pub async fn on_wire<T>(
    world: &Arc<World>,
    plan: &ServicePlan,
    wire: &Wire,
    stack: &Stack<SimPorts>,
    body: impl AsyncFnOnce(&SimService<'_>) -> T,
) -> Option<T> {
    let github = world.jobs.for_process(wire.clone());
    let service = Service::new(stack, &github, plan.settings());
    // Boxed: a whole service is a large future.
    world.run_on(wire, stack, async |_| Box::pin(body(&service)).await).await
}
