//! Ceilings: jobs that find no capacity wait in line, and the service serves them as soon as it
//! can.
//!
//! Not here: the order of turns (`core::job::fair`).

use std::time::Duration;

use bullpen_core::class::Usage;
use bullpen_core::creation::{Ceiling, Scope};
use bullpen_core::ids::{ClassName, Repository};
use bullpen_core::instance::State;
use bullpen_core::job::{Job, JobDetails, JobStep, Setback};
use bullpen_core::limits::Limits;
use bullpen_core::ports::{Ledger, Ports};
use bullpen_core::time::Timestamp;
use bullpen_sim::calm_world;
use bullpen_sim::clock::on_virtual_time;
use bullpen_sim::life::make_queues;
use bullpen_sim::world::{CALM, Climate, World};

use super::service_world::{ServiceWorld, about};

const LONG: Duration = Duration::from_secs(2 * 3600);
/// Far less than the next look at a row that waits.
const SOON: Duration = Duration::from_secs(3);

/// Serves jobs; the first fills the ceiling before the others come.
async fn serve(sim: &ServiceWorld, jobs: &[&str]) {
    let (first, others) = jobs.split_first().expect("there is a first job");
    sim.queue(first).await;
    let has = async || sim.row(first).await.held().is_some();
    assert!(sim.serve_until("first", LONG, |_| true, has).await);
    for job in others {
        sim.queue(job).await;
    }
    let done = async || {
        for job in jobs {
            if !sim.is_settled(job).await {
                return false;
            }
        }
        true
    };
    assert!(sim.serve_until("serve", LONG, |_| true, done).await);
}

fn last_begun(job: &Job) -> Timestamp {
    let begun = job.steps.iter().rev().find(|step| step.step == JobStep::Begun);
    begun.expect("a worker took the job on").at
}

#[test]
fn when_a_machine_ends_the_job_that_waited_longest_is_served_at_once() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(1).await;
        let jobs = ["71", "72", "73", "74"];
        serve(&sim, &jobs).await;
        let mut begun = Vec::new();
        for job in jobs {
            let row = sim.row(job).await;
            assert_eq!(row.attempts, 0, "{row:?}");
            begun.push(last_begun(&row));
        }
        assert!(begun.is_sorted(), "not served in the order in which they came: {begun:?}");
        let mut gone = Vec::new();
        for machine in sim.world.outside.fleet().snapshot() {
            let record = sim.world.outside.ledger().read(&machine.id).await.expect("calm");
            if let Some(State::Terminated { at, .. }) = record.map(|record| record.state) {
                gone.push(at);
            }
        }
        gone.sort();
        assert!(gone.len() >= jobs.len() - 1, "{gone:?}");
        for (gone, begun) in gone.iter().zip(&begun[1..]) {
            assert!(begun.since(*gone) <= SOON && gone.since(*begun).is_zero(), "{gone} {begun}");
        }
        sim.end().await;
    });
}

#[test]
fn a_machine_that_is_idle_again_serves_a_waiting_job_at_once() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(1).await.reusing();
        calm_world::add_idle(&sim.world, Usage::OnDemand, 1).await;
        let jobs = ["71", "72", "73", "74"];
        serve(&sim, &jobs).await;
        assert_eq!(sim.launched(), 1);
        for pair in jobs.windows(2) {
            let (one, next) = (sim.row(pair[0]).await, sim.row(pair[1]).await);
            assert!(next.setbacks.iter().any(|at| at.setback == Setback::Ceiling), "{next:?}");
            let over = one.known.completed.as_ref().and_then(|completed| completed.at);
            let waited = last_begun(&next).since(over.expect("GitHub said when"));
            assert!(waited <= 2 * SOON, "{waited:?} after {}", pair[0]);
        }
        sim.end().await;
    });
}

/// Each waiting job is tried every few seconds. A try that finds no capacity tries jobs of other
/// repositories too; each of these must not read the whole lane again.
#[test]
pub(crate) fn jobs_at_the_ceiling_read_their_lane_once_a_look() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(1).await;
        sim.queue("70").await;
        let has = async || sim.row("70").await.held().is_some();
        assert!(sim.serve_until("first", LONG, |_| true, has).await);
        let jobs = ["71", "72", "73", "74", "75", "76", "77", "78"];
        for job in jobs {
            let fact = sim.submit(
                job,
                JobDetails { repository: Repository::new(format!("acme/of-{job}")), ..about(job) },
            );
            sim.deliver(&fact).await;
        }
        let before = sim.world.counts().calls;
        let never = async || false;
        assert!(!sim.serve_until("second", Duration::from_secs(45), |_| true, never).await);
        let calls = sim.world.counts().calls - before;
        // 3,400; and 11,300 if each try reads the lane.
        assert!(calls < 5_000, "{calls} calls for eight jobs in 45 s");
    });
}

/// A job that waits for capacity costs no calls to GitHub.
#[test]
fn a_job_without_capacity_spends_none_of_githubs_points() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(1).await.reusing();
        calm_world::add_idle(&sim.world, Usage::OnDemand, 1).await;
        // Enough for two jobs a minute, and not for a credential at every look.
        sim.world.outside.forge().limit_points(Some(30));
        let jobs = ["71", "72", "73", "74", "75"];
        serve(&sim, &jobs).await;
        for job in jobs {
            let row = sim.row(job).await;
            let limited = row.setbacks.iter().any(|at| at.setback == Setback::RateLimited);
            assert!(!limited, "{row:?}");
        }
        sim.end().await;
    });
}

/// A class may have its own ceiling, below the stack's.
#[test]
fn a_ceiling_of_its_class_holds_for_a_job() {
    on_virtual_time(async {
        let ceilings = vec![
            Ceiling { scope: Scope::Stack, max: 5 },
            Ceiling { scope: Scope::Class(ClassName::new("large")), max: 1 },
        ];
        let climate = Climate { weak: false, ..CALM.clone() };
        let world = World::new(7, Limits::DEFAULT, ceilings, climate);
        make_queues(&world).await;
        let sim = ServiceWorld::in_world(world).await;
        serve(&sim, &["71", "72"]).await;
        let row = sim.row("72").await;
        assert!(row.setbacks.iter().any(|at| at.setback == Setback::Ceiling), "{row:?}");
        let first = sim.row("71").await.known.completed.and_then(|completed| completed.at);
        assert!(
            last_begun(&row) > first.expect("GitHub said when"),
            "the ceiling allows one at a time"
        );
        sim.end().await;
    });
}
