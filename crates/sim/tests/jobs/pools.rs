//! Jobs that a standby pool serves: the choice of the machine, its cost in calls, and the
//! replacement of a machine that does not start.
//!
//! Not here: filling a pool (`tests/pools`).

use std::collections::BTreeSet;
use std::time::Duration;

use bullpen_core::class::Usage;
use bullpen_core::config::runner::Reuse;
use bullpen_core::creation::Offering;
use bullpen_core::ids::{ClassName, InstanceId};
use bullpen_core::instance::{Record, State, Tier};
use bullpen_core::job::{Job, JobFact, JobStep, MachineSource, ReportedStatus, Setback};
use bullpen_core::ports::{Ledger, Ports};
use bullpen_core::rates::FleetCall;
use bullpen_core::request::TypePattern;
use bullpen_engine::jobs::{launch_worker, pool_worker};
use bullpen_sim::calm_world::{self, IdleMachines};
use bullpen_sim::clock::{on_virtual_time, pass};
use bullpen_sim::model::fleet::Delays;

use super::service_world::{ServiceWorld, SimService, about_in};

const LONG: Duration = Duration::from_secs(30 * 60);
/// Enough for an instant boot, a credential and a claim, but for no backoff.
const AT_ONCE: Duration = Duration::from_secs(2);

/// Adds machines of this type to the pool.
async fn add_machines(
    sim: &ServiceWorld,
    name: &str,
    of: &str,
    stopped: bool,
    count: u32,
) -> Vec<Record> {
    let plain = IdleMachines::plain(name, Usage::OnDemand, count);
    let types = vec![TypePattern::new(of)];
    let lasts = Duration::from_secs(3_600);
    let wanted = IdleMachines { stopped, types, lasts, pooled: true, ..plain };
    calm_world::add_machines(&sim.world, &wanted).await.expect("calm")
}

/// Queues jobs of the pool, each with its own label.
async fn queue(sim: &ServiceWorld, jobs: &[String]) {
    for job in jobs {
        let label = format!("runs-on={job}/pool=stage");
        let fact = sim.submit(job, about_in(job, "acme/app", &label));
        sim.deliver(&fact).await;
    }
}

fn names(count: u32) -> Vec<String> {
    (0..count).map(|number| format!("{}", 100 + number)).collect()
}

/// Runs a pool worker for one receive of the pool queue.
async fn serve_once(sim: &ServiceWorld, process: &str) {
    let served =
        async |service: &SimService<'_>| pool_worker(service, Duration::ZERO).await.expect("calm");
    sim.process(process, None, served).await;
}

/// The job's current machine.
async fn machine_of(sim: &ServiceWorld, job: &str) -> Option<InstanceId> {
    sim.row(job).await.held().map(|held| held.instance.clone())
}

/// The machines that workers claimed for a job, and their tiers.
fn claimed(row: &Job) -> Vec<(InstanceId, Tier)> {
    let claimed = row.steps.iter().filter_map(|step| match &step.step {
        JobStep::Claimed { instance, tier } => Some((instance.clone(), *tier)),
        _ => None,
    });
    claimed.collect()
}

async fn state_of(sim: &ServiceWorld, id: &InstanceId) -> State {
    let record = sim.world.outside.ledger().read(id).await.expect("calm");
    record.expect("it is recorded").state
}

async fn finish(sim: &ServiceWorld, jobs: &[String]) {
    let done = async || {
        for job in jobs {
            if !sim.is_settled(job).await {
                return false;
            }
        }
        true
    };
    assert!(sim.serve_until("finish", LONG, |_| true, done).await);
    sim.end().await;
}

/// Makes the cloud refuse this type in every zone.
fn deplete(sim: &ServiceWorld, of: &str) {
    let fleet = sim.world.outside.fleet();
    let short = |offering: &Offering| offering.instance_type.as_str() == of;
    for offering in fleet.offerings().into_iter().filter(short) {
        fleet.deplete(offering);
    }
}

fn boot_within(sim: &ServiceWorld, boot_max: Duration) {
    let delays = Delays { boot_max, stop_max: Duration::ZERO, visible_after_max: Duration::ZERO };
    sim.world.outside.fleet().set_delays(delays);
}

#[test]
fn ten_jobs_cost_one_listing_and_one_start_call_and_get_ten_machines() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(20).await.with_pool();
        add_machines(&sim, "stopped", "*", true, 10).await;
        let jobs = names(10);
        queue(&sim, &jobs).await;
        let (ledger, fleet) = (sim.world.outside.ledger(), sim.world.outside.fleet());
        let before = ledger.pool_listings();
        serve_once(&sim, "ten").await;
        assert_eq!(ledger.pool_listings() - before, 1);
        assert_eq!(fleet.asked(FleetCall::Start), [10]);
        let mut machines = BTreeSet::new();
        for job in &jobs {
            assert_eq!(sim.machine_source(job).await, Some(MachineSource::Picked), "{job}");
            machines.extend(machine_of(&sim, job).await);
        }
        assert_eq!((machines.len(), sim.launched()), (10, 10));
        finish(&sim, &jobs).await;
    });
}

#[test]
fn released_before_hot_before_stopped_and_the_oldest_first() {
    on_virtual_time(async {
        let mut sim = ServiceWorld::new(20).await.with_pool();
        let large = sim.config.runners.get_mut(&ClassName::new("large")).expect("there is one");
        large.reuse = Some(Reuse::default());
        let stopped = add_machines(&sim, "stopped", "*", true, 1).await;
        let mut hot = Vec::new();
        for name in ["first", "second", "third"] {
            hot.extend(add_machines(&sim, name, "*", false, 1).await);
        }
        // A job uses the oldest hot machine, and returns it.
        let used = names(1);
        queue(&sim, &used).await;
        let done = async || sim.is_settled(&used[0]).await;
        assert!(sim.serve_until("use", LONG, |_| true, done).await);
        let later = names(5).split_off(1);
        queue(&sim, &later).await;
        serve_once(&sim, "four").await;
        let mut had = Vec::new();
        for job in &later {
            had.extend(claimed(&sim.row(job).await));
        }
        let expected = [
            (hot[0].id.clone(), Tier::Released),
            (hot[1].id.clone(), Tier::Hot),
            (hot[2].id.clone(), Tier::Hot),
            (stopped[0].id.clone(), Tier::Stopped),
        ];
        assert_eq!(had, expected);
        finish(&sim, &later).await;
    });
}

/// Two processes see the same machines at the same time: a worker that loses a machine looks again,
/// and no worker launches while the pool has enough machines.
#[test]
fn a_worker_that_loses_a_machine_picks_another() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(40).await.with_pool();
        add_machines(&sim, "hot", "*", false, 20).await;
        let jobs = names(20);
        queue(&sim, &jobs).await;
        let before = sim.world.outside.ledger().pool_listings();
        tokio::join!(serve_once(&sim, "one"), serve_once(&sim, "other"));
        let mut machines = BTreeSet::new();
        for job in &jobs {
            assert_eq!(
                sim.machine_source(job).await,
                Some(MachineSource::Picked),
                "{:?}",
                sim.row(job).await
            );
            machines.extend(machine_of(&sim, job).await);
        }
        assert_eq!((machines.len(), sim.launched()), (20, 20));
        let looks = sim.world.outside.ledger().pool_listings() - before;
        assert!(looks > 2, "no worker lost a machine");
        finish(&sim, &jobs).await;
    });
}

#[test]
fn a_start_that_is_refused_leaves_the_machine_as_it_was_and_the_next_one_serves() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(20).await.with_pool();
        let refused = add_machines(&sim, "refused", "c6i.large", true, 3).await;
        let next = add_machines(&sim, "next", "m6i.large", true, 1).await;
        deplete(&sim, "c6i.large");
        boot_within(&sim, Duration::ZERO);
        // Standby machines may be older than reused machines.
        pass(sim.world.limits.age_max).await;
        let jobs = names(1);
        queue(&sim, &jobs).await;
        serve_once(&sim, "one").await;
        let row = sim.row(&jobs[0]).await;
        assert_eq!(machine_of(&sim, &jobs[0]).await, Some(next[0].id.clone()), "{row:?}");
        assert_eq!((row.attempts, row.setbacks.len()), (0, 1), "{row:?}");
        assert_eq!(row.setbacks[0].setback, Setback::NotStarted);
        for record in &refused {
            let state = state_of(&sim, &record.id).await;
            assert!(matches!(state, State::Idle { tier: Tier::Stopped, .. }), "{state:?}");
        }
        // The cloud would refuse every machine of this type in the same zone.
        let zones: BTreeSet<_> = refused.iter().map(|record| &record.facts.zone).collect();
        assert_eq!(sim.world.outside.fleet().asked(FleetCall::Start).len(), zones.len() + 1);
        for record in &refused {
            sim.world.outside.fleet().lose(&record.id);
        }
        finish(&sim, &jobs).await;
    });
}

/// The pool has no other machine: the worker launches a machine of another type at once.
#[test]
fn a_start_that_is_refused_is_replaced_by_a_launch_at_once() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(20).await.with_pool();
        let refused = add_machines(&sim, "refused", "c6i.large", true, 1).await;
        deplete(&sim, "c6i.large");
        let jobs = names(1);
        queue(&sim, &jobs).await;
        let launched = async || sim.launched() == 2;
        assert!(sim.serve_until("serve", AT_ONCE, |_| true, launched).await);
        let row = sim.row(&jobs[0]).await;
        assert!(row.overflowed && row.attempts == 0, "{row:?}");
        let state = state_of(&sim, &refused[0].id).await;
        assert!(matches!(state, State::Idle { tier: Tier::Stopped, .. }), "{state:?}");
        sim.world.outside.fleet().lose(&refused[0].id);
        finish(&sim, &jobs).await;
    });
}

#[test]
fn a_machine_that_cannot_be_started_ends_and_its_job_gets_another_at_once() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(20).await.with_pool();
        let machines = add_machines(&sim, "stopped", "*", true, 2).await;
        let jobs = names(1);
        // The first machine is gone, and its record does not show it yet.
        sim.world.outside.fleet().lose(&machines[0].id);
        boot_within(&sim, Duration::ZERO);
        queue(&sim, &jobs).await;
        let began = sim.world.outside.clock().true_now();
        serve_once(&sim, "one").await;
        let state = state_of(&sim, &machines[0].id).await;
        assert!(matches!(state, State::Terminating { .. }), "{state:?}");
        let row = sim.row(&jobs[0]).await;
        assert_eq!(machine_of(&sim, &jobs[0]).await, Some(machines[1].id.clone()), "{row:?}");
        let assigned =
            row.steps.iter().rev().find(|step| matches!(step.step, JobStep::Assigned { .. }));
        let after = assigned.expect("it has a machine").at.since(began);
        assert!(row.attempts == 0 && after < AT_ONCE, "{after:?}");
        finish(&sim, &jobs).await;
    });
}

/// A worker waits for the first heartbeat of a started machine up to its limit, and not longer.
#[test]
fn a_machine_that_never_beats_is_replaced_at_its_limit() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(20).await.with_pool();
        let machines = add_machines(&sim, "stopped", "*", true, 1).await;
        let jobs = names(1);
        boot_within(&sim, Duration::from_secs(3_600 * 24));
        queue(&sim, &jobs).await;
        let fleet = sim.world.outside.fleet();
        let started = async || !fleet.asked(FleetCall::Start).is_empty();
        let serve = async || {
            let tries = sim.world.limits.first_beat_stopped + AT_ONCE;
            sim.serve_until("serve", tries, |_| true, async || sim.launched() == 2).await
        };
        let (replaced, ()) = tokio::join!(serve(), async {
            while !started().await {
                pass(Duration::from_millis(100)).await;
            }
            boot_within(&sim, Duration::from_secs(10));
        });
        let row = sim.row(&jobs[0]).await;
        assert!(replaced && row.attempts == 0, "{row:?}");
        let done = async || sim.is_settled(&jobs[0]).await;
        assert!(
            sim.serve_until("next", LONG, |_| true, done).await,
            "{:?}",
            sim.row(&jobs[0]).await
        );
        assert_eq!(sim.launched(), 2);
        let state = state_of(&sim, &machines[0].id).await;
        assert!(!matches!(state, State::Idle { .. }), "a job would try it again: {state:?}");
        finish(&sim, &jobs).await;
    });
}

/// No machine of the pool starts: a job overflows before it has tried all.
#[test]
fn a_job_overflows_a_pool_whose_machines_do_not_start() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(20).await.with_pool();
        for machine in add_machines(&sim, "stopped", "*", true, 6).await {
            sim.world.outside.fleet().lose(&machine.id);
        }
        let jobs = names(1);
        queue(&sim, &jobs).await;
        serve_once(&sim, "one").await;
        let row = sim.row(&jobs[0]).await;
        assert!(row.overflowed && row.attempts == 0, "{row:?}");
        assert_eq!(sim.world.outside.fleet().asked(FleetCall::Start), [1, 1, 1]);
        finish(&sim, &jobs).await;
    });
}

#[test]
fn a_job_that_overflowed_tries_its_pool_once_more() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(20).await.with_pool();
        let jobs = names(1);
        queue(&sim, &jobs).await;
        serve_once(&sim, "empty").await;
        assert!(sim.row(&jobs[0]).await.overflowed);
        add_machines(&sim, "hot", "*", false, 1).await;
        let serve = async |service: &SimService<'_>| {
            launch_worker(service, Duration::ZERO).await.expect("calm")
        };
        sim.process("launches", None, serve).await;
        assert_eq!(sim.machine_source(&jobs[0]).await, Some(MachineSource::Picked));
        assert_eq!(sim.launched(), 1, "the worker launched beside the standby machine");
        finish(&sim, &jobs).await;
    });
}

/// A worker dies at await number `fuse` of a receive whose first machine cannot be started; returns
/// whether it died.
fn dies_at(fuse: u64) -> bool {
    on_virtual_time(async {
        let sim = ServiceWorld::new(20).await.with_pool();
        let machines = add_machines(&sim, "stopped", "*", true, 2).await;
        sim.world.outside.fleet().lose(&machines[0].id);
        boot_within(&sim, Duration::ZERO);
        let jobs = names(1);
        queue(&sim, &jobs).await;
        let serve = async |service: &SimService<'_>| pool_worker(service, Duration::ZERO).await;
        let lived = sim.process("dies", Some(fuse), serve).await.is_some();
        let takes = |fact: &JobFact| !matches!(fact.said, ReportedStatus::Queued { .. });
        let done = async || sim.is_settled(&jobs[0]).await;
        let served = sim.serve_until("next", LONG, takes, done).await;
        assert!(served, "died at {fuse}: {:?}", sim.row(&jobs[0]).await);
        assert!(sim.github.notices().is_empty(), "died at {fuse}");
        sim.end().await;
        !lived
    })
}

#[test]
fn a_job_is_served_wherever_the_worker_that_replaces_its_machine_dies() {
    let mut fuse = 0;
    while dies_at(fuse) {
        fuse += 1;
    }
    assert!(fuse > 30, "only {fuse} awaits: the worker did not replace the machine");
}
