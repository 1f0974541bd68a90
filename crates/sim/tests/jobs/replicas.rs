//! Two processes of the service over one ledger: whatever order webhooks come in, twice, late and with
//! a kind of them lost, every job runs once, on as many machines as there are jobs.
//!
//! Not here: one process and every order there is (`order`).

use std::cell::RefCell;
use std::convert::Infallible;
use std::time::Duration;

use bullpen_core::ids::Repository;
use bullpen_core::job::{End, JobFact, JobPhase, JobState, ReportedStatus};
use bullpen_core::limits::Limits;
use bullpen_core::ports::{Ledger, Ports};
use bullpen_engine::jobs::{FindMemory, find};
use bullpen_sim::clock::{on_virtual_time, pass};
use bullpen_sim::dice::Dice;
use bullpen_sim::life::make_queues;
use bullpen_sim::load;
use bullpen_sim::stage;
use bullpen_sim::world::World;

use super::town::{Town, about_in};

const CALM_SEEDS: u64 = 24;
const FOUL_SEEDS: u64 = 8;
const DYING_SEEDS: u64 = 12;
const LONG: Duration = Duration::from_secs(3 * 3600);
/// How late a webhook may be so that whoever took a runner is known before the runner is gone.
const LATE: Duration = Duration::from_secs(30);
/// How late a webhook may be otherwise: a runner may be gone, and replaced, by then.
const VERY_LATE: Duration = Duration::from_secs(90);
/// Two of one label, so that either may take the other's runner, and one of its own.
const JOBS: [(&str, &str); 3] = [("71", "runs-on"), ("72", "runs-on"), ("73", "runs-on=73")];

#[test]
fn every_order_of_webhooks_leaves_every_job_run_once_on_a_machine_each() {
    for seed in 0..CALM_SEEDS {
        on_virtual_time(async {
            let town = Town::in_world(stage::calm(seed, 8).await).await;
            two_serve(&town, &Dice::new(seed, "webhooks"), LATE, None).await;
            assert_eq!(town.launched(), JOBS.len(), "seed {seed}");
            assert_eq!(town.world.outside.forge().completed(), 3, "seed {seed}");
            town.end_of(seed).await;
        });
    }
}

/// Each dies again and again, anywhere, and is started anew: nobody is served twice, and at most one
/// machine is launched beyond those that are needed, for a job whose thief died.
#[test]
fn every_order_of_webhooks_leaves_every_job_run_once_whoever_dies() {
    for seed in 0..DYING_SEEDS {
        on_virtual_time(async {
            let town = Town::in_world(stage::calm(seed, 8).await).await;
            two_serve(&town, &Dice::new(seed, "webhooks"), LATE, Some(400)).await;
            let launched = town.launched();
            assert!((JOBS.len()..=JOBS.len() + 1).contains(&launched), "seed {seed}: {launched}");
            assert_eq!(town.world.outside.forge().completed(), 3, "seed {seed}");
            town.end_of(seed).await;
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
            let town = Town::in_world(world).await;
            let town = if dice.chance(500) { town.reusing() } else { town };
            let heal = async {
                pass(Duration::from_secs(15 * 60)).await;
                town.world.heal();
            };
            tokio::join!(Box::pin(two_serve(&town, &dice, VERY_LATE, None)), heal);
            town.end_of(seed).await;
        });
    }
}

/// Two processes serve until every job is over and settled. Webhooks are so late at most; each process
/// dies within so many awaits, and is started anew.
async fn two_serve(town: &Town, dice: &Dice, late: Duration, dies_within: Option<u64>) {
    let sent = RefCell::new(Vec::new());
    for (job, head) in JOBS {
        let label = format!("{head}/runner=large");
        sent.borrow_mut().push(town.submit(job, about_in(job, "acme/app", &label)));
    }
    // Whoever sees it first, it goes by way of the post.
    let post = |fact: &JobFact| {
        sent.borrow_mut().push(fact.clone());
        false
    };
    let done = async || {
        for (job, _) in JOBS {
            if !is_settled(town, job).await {
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
            // The last ones live as long as it takes.
            let fuse = dies_within.filter(|_| lives < 12).map(|most| dice.below(most));
            let name = format!("{name} {lives}");
            if let Some(served) = town.live_until(&name, fuse, LONG, post, done).await {
                return served;
            }
            pass(dice.between(Duration::ZERO, Duration::from_secs(20))).await;
        }
    };
    let served = tokio::select! {
        biased;
        served = async { tokio::join!(Box::pin(serve("one")), Box::pin(serve("other"))) } => served,
        never = deliver(town, dice, &sent, (lost, late)) => match never {},
        never = ask(town) => match never {},
    };
    let seed = town.world.seed;
    assert_eq!(served, (true, true), "seed {seed}, lost {lost:?}");
    for (job, _) in JOBS {
        let row = town.row(job).await;
        let ended = matches!(&row.state, JobState::Ended { end: End::Completed(how), .. } if how.as_str() == "success");
        assert!(ended, "seed {seed}, lost {lost:?}: {row:?}");
    }
}

/// A job of which nobody has heard has no row.
async fn is_settled(town: &Town, job: &str) -> bool {
    let row = town.world.outside.ledger().row(&job.into()).await.expect("it is calm outside");
    row.is_some() && town.is_settled(job).await
}

const fn phase(fact: &JobFact) -> JobPhase {
    match fact.said {
        ReportedStatus::Held => JobPhase::Held,
        ReportedStatus::Queued { .. } => JobPhase::Queued,
        ReportedStatus::Started { .. } => JobPhase::Started,
        ReportedStatus::Completed { .. } => JobPhase::Completed,
    }
}

/// Delivers every webhook twice, each time at some moment, except those of one kind.
async fn deliver(
    town: &Town,
    dice: &Dice,
    sent: &RefCell<Vec<JobFact>>,
    (lost, late): (Option<JobPhase>, Duration),
) -> Infallible {
    let clock = town.world.outside.clock();
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
            town.announce(&fact).await;
        }
        pass(Duration::from_millis(500)).await;
    }
}

/// Asks GitHub for what no webhook says.
async fn ask(town: &Town) -> Infallible {
    let repository = [Repository::new("acme/app")];
    loop {
        pass(Duration::from_secs(60)).await;
        let asked = town.process("find", None, async |service| {
            find(service, &repository, &mut FindMemory::default()).await
        });
        // One that fails is followed by the next.
        let _ = asked.await;
    }
}
