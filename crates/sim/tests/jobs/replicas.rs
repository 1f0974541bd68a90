//! Two replicas of the service share a ledger. Webhooks come in any order, twice, late, and with
//! one kind lost: every job runs once, on as many machines as there are jobs.
//!
//! Not here: one process and all orders of facts (`order`).

use std::cell::RefCell;
use std::convert::Infallible;
use std::time::Duration;

use bullpen_core::ids::Repository;
use bullpen_core::job::{End, JobFact, JobPhase, JobState, ReportedStatus};
use bullpen_core::limits::Limits;
use bullpen_core::ports::{Ledger, Ports};
use bullpen_engine::jobs::{FindMemory, find};
use bullpen_sim::calm_world;
use bullpen_sim::clock::{on_virtual_time, pass};
use bullpen_sim::dice::Dice;
use bullpen_sim::life::make_queues;
use bullpen_sim::load;
use bullpen_sim::world::World;

use super::service_world::{ServiceWorld, about_in};

const CALM_SEEDS: u64 = 24;
const FOUL_SEEDS: u64 = 8;
const DYING_SEEDS: u64 = 12;
const LONG: Duration = Duration::from_secs(3 * 3600);
/// The most delay of a webhook that still names the job on a runner before the runner is gone.
const LATE: Duration = Duration::from_secs(30);
/// With more delay a runner may be gone, and replaced, before its webhook comes.
const VERY_LATE: Duration = Duration::from_secs(90);
/// Two jobs share a label, so that either may take the other's runner; the third has its own.
const JOBS: [(&str, &str); 3] = [("71", "runs-on"), ("72", "runs-on"), ("73", "runs-on=73")];

#[test]
fn every_order_of_webhooks_leaves_every_job_run_once_on_a_machine_each() {
    for seed in 0..CALM_SEEDS {
        on_virtual_time(async {
            let sim = ServiceWorld::in_world(calm_world::new(seed, 8).await).await;
            two_serve(&sim, &Dice::new(seed, "webhooks"), LATE, None).await;
            assert_eq!(sim.launched(), JOBS.len(), "seed {seed}");
            assert_eq!(sim.world.outside.forge().completed(), 3, "seed {seed}");
            sim.end_of(seed).await;
        });
    }
}

/// Each replica dies repeatedly, anywhere, and restarts: no job is served twice. At most one
/// machine is launched too many, for a job whose runner another job took while a replica died.
#[test]
fn every_order_of_webhooks_leaves_every_job_run_once_although_replicas_die() {
    for seed in 0..DYING_SEEDS {
        on_virtual_time(async {
            let sim = ServiceWorld::in_world(calm_world::new(seed, 8).await).await;
            two_serve(&sim, &Dice::new(seed, "webhooks"), LATE, Some(400)).await;
            let launched = sim.launched();
            assert!((JOBS.len()..=JOBS.len() + 1).contains(&launched), "seed {seed}: {launched}");
            assert_eq!(sim.world.outside.forge().completed(), 3, "seed {seed}");
            sim.end_of(seed).await;
        });
    }
}

#[test]
fn every_order_of_webhooks_leaves_every_job_run_once_in_foul_weather() {
    for seed in 0..FOUL_SEEDS {
        on_virtual_time(async {
            let dice = Dice::new(seed, "webhooks");
            let (ceilings, climate) = (load::ceilings(&dice), load::climate(&dice));
            let world = World::new(seed, Limits::DEFAULT, ceilings, climate);
            make_queues(&world).await;
            let sim = ServiceWorld::in_world(world).await;
            let sim = if dice.chance(500) { sim.reusing() } else { sim };
            let heal = async {
                pass(Duration::from_secs(15 * 60)).await;
                sim.world.heal();
            };
            tokio::join!(Box::pin(two_serve(&sim, &dice, VERY_LATE, None)), heal);
            sim.end_of(seed).await;
        });
    }
}

/// Two replicas serve until every job is over and settled. Webhooks are delayed by at most `late`;
/// each replica dies within `dies_within` awaits and restarts.
async fn two_serve(sim: &ServiceWorld, dice: &Dice, late: Duration, dies_within: Option<u64>) {
    let sent = RefCell::new(Vec::new());
    for (job, head) in JOBS {
        let label = format!("{head}/runner=large");
        sent.borrow_mut().push(sim.submit(job, about_in(job, "acme/app", &label)));
    }
    // `deliver` sends every fact, to either replica.
    let post = |fact: &JobFact| {
        sent.borrow_mut().push(fact.clone());
        false
    };
    let done = async || {
        for (job, _) in JOBS {
            if !is_settled(sim, job).await {
                return false;
            }
        }
        true
    };
    let lost = [None, Some(JobPhase::Queued), Some(JobPhase::Started), Some(JobPhase::Completed)];
    let lost = dice.pick(&lost).copied().flatten();
    let serve = async |name: &str| {
        let mut lives = 0;
        loop {
            lives += 1;
            // The last restarts have no fuse.
            let fuse = dies_within.filter(|_| lives < 12).map(|most| dice.below(most));
            let name = format!("{name} {lives}");
            if let Some(served) = sim.serve_with_fuse(&name, fuse, LONG, post, done).await {
                return served;
            }
            pass(dice.between(Duration::ZERO, Duration::from_secs(20))).await;
        }
    };
    let served = tokio::select! {
        biased;
        served = async { tokio::join!(Box::pin(serve("one")), Box::pin(serve("other"))) } => served,
        never = deliver(sim, dice, &sent, (lost, late)) => match never {},
        never = ask(sim) => match never {},
    };
    let seed = sim.world.seed;
    assert_eq!(served, (true, true), "seed {seed}, lost {lost:?}");
    for (job, _) in JOBS {
        let row = sim.row(job).await;
        let ended = matches!(&row.state, JobState::Ended { end: End::Completed(how), .. } if how.as_str() == "success");
        assert!(ended, "seed {seed}, lost {lost:?}: {row:?}");
    }
}

/// False for a job without a row: no webhook about it came yet.
async fn is_settled(sim: &ServiceWorld, job: &str) -> bool {
    let row = sim.world.outside.ledger().row(&job.into()).await.expect("it is calm outside");
    row.is_some() && sim.is_settled(job).await
}

const fn phase(fact: &JobFact) -> JobPhase {
    match fact.said {
        ReportedStatus::Held => JobPhase::Held,
        ReportedStatus::Queued { .. } => JobPhase::Queued,
        ReportedStatus::Started { .. } => JobPhase::Started,
        ReportedStatus::Completed { .. } => JobPhase::Completed,
    }
}

/// Delivers every webhook twice, at random moments, except the lost kind.
async fn deliver(
    sim: &ServiceWorld,
    dice: &Dice,
    sent: &RefCell<Vec<JobFact>>,
    (lost, late): (Option<JobPhase>, Duration),
) -> Infallible {
    let clock = sim.world.outside.clock();
    let mut due: Vec<(Duration, JobFact)> = Vec::new();
    loop {
        let now = clock.elapsed();
        for fact in sent.take().into_iter().filter(|fact| Some(phase(fact)) != lost) {
            for _ in 0..2 {
                due.push((now + dice.between(Duration::ZERO, late), fact.clone()));
            }
        }
        let (arrived, still): (Vec<_>, Vec<_>) = due.into_iter().partition(|(at, _)| *at <= now);
        due = still;
        for (_, fact) in arrived {
            sim.deliver_until_taken(&fact).await;
        }
        pass(Duration::from_millis(500)).await;
    }
}

/// Searches GitHub for jobs that no webhook announced.
async fn ask(sim: &ServiceWorld) -> Infallible {
    let repository = [Repository::new("acme/app")];
    loop {
        pass(Duration::from_secs(60)).await;
        let asked = sim.process("find", None, async |service| {
            find(service, &repository, &mut FindMemory::default()).await
        });
        // The next search follows a failed one.
        let _ = asked.await;
    }
}
