//! Jobs that are served from a pool: whom each gets, what that costs, and what follows a machine that
//! does not start.
//!
//! Not here: keeping a pool filled.

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
use bullpen_sim::clock::{on_virtual_time, pass};
use bullpen_sim::model::fleet::Delays;
use bullpen_sim::stage::{self, IdleMachines};

use super::town::{SimService, Town, about_in};

const LONG: Duration = Duration::from_secs(30 * 60);
/// A machine that boots at once, and a credential, and a claim: no backoff fits into it.
const AT_ONCE: Duration = Duration::from_secs(2);

/// Puts machines of this type into the pool.
async fn furnish(town: &Town, name: &str, of: &str, stopped: bool, count: u32) -> Vec<Record> {
    let plain = IdleMachines::plain(name, Usage::OnDemand, count);
    let types = vec![TypePattern::new(of)];
    let lasts = Duration::from_secs(3_600);
    let wanted = IdleMachines { stopped, types, lasts, pooled: true, ..plain };
    stage::furnish(&town.world, &wanted).await.expect("calm")
}

/// Jobs of the pool, each with a label of its own.
async fn queue(town: &Town, jobs: &[String]) {
    for job in jobs {
        let label = format!("runs-on={job}/pool=stage");
        let fact = town.submit(job, about_in(job, "acme/app", &label));
        town.say(&fact).await;
    }
}

fn names(count: u32) -> Vec<String> {
    (0..count).map(|number| format!("{}", 100 + number)).collect()
}

/// One receive of the pool queue.
async fn serve_once(town: &Town, process: &str) {
    let served =
        async |service: &SimService<'_>| pool_worker(service, Duration::ZERO).await.expect("calm");
    town.process(process, None, served).await;
}

/// The machine that a job has.
async fn machine_of(town: &Town, job: &str) -> Option<InstanceId> {
    town.row(job).await.held().map(|held| held.instance.clone())
}

/// The machines that were claimed for a job, and what they were.
fn claimed(row: &Job) -> Vec<(InstanceId, Tier)> {
    let claimed = row.steps.iter().filter_map(|step| match &step.step {
        JobStep::Claimed { instance, tier } => Some((instance.clone(), *tier)),
        _ => None,
    });
    claimed.collect()
}

async fn state_of(town: &Town, id: &InstanceId) -> State {
    let record = town.world.outside.ledger().read(id).await.expect("calm");
    record.expect("it is recorded").state
}

async fn finish(town: &Town, jobs: &[String]) {
    let done = async || {
        for job in jobs {
            if !town.is_settled(job).await {
                return false;
            }
        }
        true
    };
    assert!(town.live("finish", LONG, |_| true, done).await);
    town.end().await;
}

/// The cloud has no more machines of this type, wherever.
fn deplete(town: &Town, of: &str) {
    let fleet = town.world.outside.fleet();
    let short = |offering: &Offering| offering.instance_type.as_str() == of;
    for offering in fleet.offerings().into_iter().filter(short) {
        fleet.deplete(offering);
    }
}

fn boot_within(town: &Town, boot_max: Duration) {
    let delays = Delays { boot_max, stop_max: Duration::ZERO, visible_after_max: Duration::ZERO };
    town.world.outside.fleet().set_delays(delays);
}

#[test]
fn ten_jobs_make_one_listing_and_one_start_and_have_ten_machines() {
    on_virtual_time(async {
        let town = Town::new(20).await.with_pool();
        furnish(&town, "stopped", "*", true, 10).await;
        let jobs = names(10);
        queue(&town, &jobs).await;
        let (ledger, fleet) = (town.world.outside.ledger(), town.world.outside.fleet());
        let before = ledger.pool_listings();
        serve_once(&town, "ten").await;
        assert_eq!(ledger.pool_listings() - before, 1);
        assert_eq!(fleet.asked(FleetCall::Start), [10]);
        let mut machines = BTreeSet::new();
        for job in &jobs {
            assert_eq!(town.came_by(job).await, Some(MachineSource::Picked), "{job}");
            machines.extend(machine_of(&town, job).await);
        }
        assert_eq!((machines.len(), town.launched()), (10, 10));
        finish(&town, &jobs).await;
    });
}

#[test]
fn released_before_hot_before_stopped_and_the_oldest_first() {
    on_virtual_time(async {
        let mut town = Town::new(20).await.with_pool();
        let large = town.config.runners.get_mut(&ClassName::new("large")).expect("there is one");
        large.reuse = Some(Reuse::default());
        let stopped = furnish(&town, "stopped", "*", true, 1).await;
        let mut hot = Vec::new();
        for name in ["first", "second", "third"] {
            hot.extend(furnish(&town, name, "*", false, 1).await);
        }
        // The oldest hot one is used, and comes back.
        let used = names(1);
        queue(&town, &used).await;
        let done = async || town.is_settled(&used[0]).await;
        assert!(town.live("use", LONG, |_| true, done).await);
        let later = names(5).split_off(1);
        queue(&town, &later).await;
        serve_once(&town, "four").await;
        let mut had = Vec::new();
        for job in &later {
            had.extend(claimed(&town.row(job).await));
        }
        let expected = [
            (hot[0].id.clone(), Tier::Released),
            (hot[1].id.clone(), Tier::Hot),
            (hot[2].id.clone(), Tier::Hot),
            (stopped[0].id.clone(), Tier::Stopped),
        ];
        assert_eq!(had, expected);
        finish(&town, &later).await;
    });
}

/// Two processes see the same machines at the same time: who loses looks again, and nothing is
/// launched while there is a machine for everybody.
#[test]
fn whoever_loses_a_machine_has_another() {
    on_virtual_time(async {
        let town = Town::new(40).await.with_pool();
        furnish(&town, "hot", "*", false, 20).await;
        let jobs = names(20);
        queue(&town, &jobs).await;
        let before = town.world.outside.ledger().pool_listings();
        tokio::join!(serve_once(&town, "one"), serve_once(&town, "other"));
        let mut machines = BTreeSet::new();
        for job in &jobs {
            assert_eq!(
                town.came_by(job).await,
                Some(MachineSource::Picked),
                "{:?}",
                town.row(job).await
            );
            machines.extend(machine_of(&town, job).await);
        }
        assert_eq!((machines.len(), town.launched()), (20, 20));
        let looks = town.world.outside.ledger().pool_listings() - before;
        assert!(looks > 2, "nobody lost anything");
        finish(&town, &jobs).await;
    });
}

#[test]
fn a_start_that_is_refused_leaves_the_machine_as_it_was_and_the_next_one_serves() {
    on_virtual_time(async {
        let town = Town::new(20).await.with_pool();
        let refused = furnish(&town, "refused", "c6i.large", true, 3).await;
        let next = furnish(&town, "next", "m6i.large", true, 1).await;
        deplete(&town, "c6i.large");
        boot_within(&town, Duration::ZERO);
        // Older than machines that are used become: what stands by may.
        pass(town.world.limits.age_max).await;
        let jobs = names(1);
        queue(&town, &jobs).await;
        serve_once(&town, "one").await;
        let row = town.row(&jobs[0]).await;
        assert_eq!(machine_of(&town, &jobs[0]).await, Some(next[0].id.clone()), "{row:?}");
        assert_eq!((row.attempts, row.setbacks.len()), (0, 1), "{row:?}");
        assert_eq!(row.setbacks[0].setback, Setback::NotStarted);
        for record in &refused {
            let state = state_of(&town, &record.id).await;
            assert!(matches!(state, State::Idle { tier: Tier::Stopped, .. }), "{state:?}");
        }
        // Whoever stands in the same zone would have been refused as well.
        let zones: BTreeSet<_> = refused.iter().map(|record| &record.facts.zone).collect();
        assert_eq!(town.world.outside.fleet().asked(FleetCall::Start).len(), zones.len() + 1);
        for record in &refused {
            town.world.outside.fleet().lose(&record.id);
        }
        finish(&town, &jobs).await;
    });
}

/// Nothing else stands by: a machine is launched, of another type, and nobody waits before that.
#[test]
fn a_start_that_is_refused_is_covered_by_a_launch_at_once() {
    on_virtual_time(async {
        let town = Town::new(20).await.with_pool();
        let refused = furnish(&town, "refused", "c6i.large", true, 1).await;
        deplete(&town, "c6i.large");
        let jobs = names(1);
        queue(&town, &jobs).await;
        let launched = async || town.launched() == 2;
        assert!(town.live("serve", AT_ONCE, |_| true, launched).await);
        let row = town.row(&jobs[0]).await;
        assert!(row.overflowed && row.attempts == 0, "{row:?}");
        let state = state_of(&town, &refused[0].id).await;
        assert!(matches!(state, State::Idle { tier: Tier::Stopped, .. }), "{state:?}");
        town.world.outside.fleet().lose(&refused[0].id);
        finish(&town, &jobs).await;
    });
}

#[test]
fn a_machine_that_cannot_be_started_ends_and_its_job_is_covered_at_once() {
    on_virtual_time(async {
        let town = Town::new(20).await.with_pool();
        let machines = furnish(&town, "stopped", "*", true, 2).await;
        let jobs = names(1);
        // The first in line is gone, and nobody knows yet.
        town.world.outside.fleet().lose(&machines[0].id);
        boot_within(&town, Duration::ZERO);
        queue(&town, &jobs).await;
        let began = town.world.outside.clock().true_now();
        serve_once(&town, "one").await;
        let state = state_of(&town, &machines[0].id).await;
        assert!(matches!(state, State::Terminating { .. }), "{state:?}");
        let row = town.row(&jobs[0]).await;
        assert_eq!(machine_of(&town, &jobs[0]).await, Some(machines[1].id.clone()), "{row:?}");
        let named =
            row.steps.iter().rev().find(|step| matches!(step.step, JobStep::Assigned { .. }));
        let after = named.expect("it has a machine").at.since(began);
        assert!(row.attempts == 0 && after < AT_ONCE, "{after:?}");
        finish(&town, &jobs).await;
    });
}

/// A machine that starts and never comes up is waited for as long as one may take, and not longer.
#[test]
fn a_machine_that_never_beats_is_covered_when_its_time_is_up() {
    on_virtual_time(async {
        let town = Town::new(20).await.with_pool();
        let machines = furnish(&town, "stopped", "*", true, 1).await;
        let jobs = names(1);
        boot_within(&town, Duration::from_secs(3_600 * 24));
        queue(&town, &jobs).await;
        let fleet = town.world.outside.fleet();
        let started = async || !fleet.asked(FleetCall::Start).is_empty();
        let serve = async || {
            let tries = town.world.limits.first_beat_stopped + AT_ONCE;
            town.live("serve", tries, |_| true, async || town.launched() == 2).await
        };
        let (covered, ()) = tokio::join!(serve(), async {
            while !started().await {
                pass(Duration::from_millis(100)).await;
            }
            boot_within(&town, Duration::from_secs(10));
        });
        let row = town.row(&jobs[0]).await;
        assert!(covered && row.attempts == 0, "{row:?}");
        let done = async || town.is_settled(&jobs[0]).await;
        assert!(town.live("next", LONG, |_| true, done).await, "{:?}", town.row(&jobs[0]).await);
        assert_eq!(town.launched(), 2);
        let state = state_of(&town, &machines[0].id).await;
        assert!(!matches!(state, State::Idle { .. }), "it would be tried again: {state:?}");
        finish(&town, &jobs).await;
    });
}

/// Whatever is wrong with all of them: a job does not try them all.
#[test]
fn a_job_turns_away_from_a_pool_whose_machines_do_not_start() {
    on_virtual_time(async {
        let town = Town::new(20).await.with_pool();
        for machine in furnish(&town, "stopped", "*", true, 6).await {
            town.world.outside.fleet().lose(&machine.id);
        }
        let jobs = names(1);
        queue(&town, &jobs).await;
        serve_once(&town, "one").await;
        let row = town.row(&jobs[0]).await;
        assert!(row.overflowed && row.attempts == 0, "{row:?}");
        assert_eq!(town.world.outside.fleet().asked(FleetCall::Start), [1, 1, 1]);
        finish(&town, &jobs).await;
    });
}

#[test]
fn a_job_that_overflowed_tries_its_pool_once_more() {
    on_virtual_time(async {
        let town = Town::new(20).await.with_pool();
        let jobs = names(1);
        queue(&town, &jobs).await;
        serve_once(&town, "empty").await;
        assert!(town.row(&jobs[0]).await.overflowed);
        furnish(&town, "hot", "*", false, 1).await;
        let serve = async |service: &SimService<'_>| {
            launch_worker(service, Duration::ZERO).await.expect("calm")
        };
        town.process("launches", None, serve).await;
        assert_eq!(town.came_by(&jobs[0]).await, Some(MachineSource::Picked));
        assert_eq!(town.launched(), 1, "the one that stood by");
        finish(&town, &jobs).await;
    });
}

/// Dies at await number `fuse` of a receive whose first machine cannot be started; returns whether
/// it died.
fn dies_at(fuse: u64) -> bool {
    on_virtual_time(async {
        let town = Town::new(20).await.with_pool();
        let machines = furnish(&town, "stopped", "*", true, 2).await;
        town.world.outside.fleet().lose(&machines[0].id);
        boot_within(&town, Duration::ZERO);
        let jobs = names(1);
        queue(&town, &jobs).await;
        let serve = async |service: &SimService<'_>| pool_worker(service, Duration::ZERO).await;
        let lived = town.process("dies", Some(fuse), serve).await.is_some();
        let heard = |fact: &JobFact| !matches!(fact.said, ReportedStatus::Queued { .. });
        let done = async || town.is_settled(&jobs[0]).await;
        let served = town.live("next", LONG, heard, done).await;
        assert!(served, "died at {fuse}: {:?}", town.row(&jobs[0]).await);
        assert!(town.github.told().is_empty(), "died at {fuse}");
        town.end().await;
        !lived
    })
}

#[test]
fn a_job_is_served_wherever_the_worker_dies_that_covers_a_failed_start() {
    let mut fuse = 0;
    while dies_at(fuse) {
        fuse += 1;
    }
    assert!(fuse > 30, "only {fuse} awaits: it did not get that far");
}
