//! A thousand jobs pick machines from a pool while the test shrinks, replaces, stops, drains or
//! removes the pool. Answers are lost and calls land late. No plan and no call of the pool may
//! touch a machine that a job holds.
//!
//! Not here: the checker, which checks every plan and every call that lands
//! (`bullpen_sim::checker`).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bullpen_core::creation::{Ceiling, Scope};
use bullpen_core::ids::PoolName;
use bullpen_core::instance::{State, Tier};
use bullpen_core::job::{JobStep, MachineSource};
use bullpen_core::limits::Limits;
use bullpen_core::pool::OperatorOrder;
use bullpen_core::ports::Ports;
use bullpen_engine::pools;
use bullpen_sim::clock::{on_virtual_time, pass};
use bullpen_sim::dice::Dice;
use bullpen_sim::life::make_queues;
use bullpen_sim::pool_world::PoolWorld;
use bullpen_sim::wire::Weather;
use bullpen_sim::world::{CALM, Climate, World};
use futures_util::future::join_all;

use super::MINUTE;
use super::side_by_side::side_by_side;

const WORLDS: u64 = 10;
const ROUNDS: u64 = 25;
/// The pools of one world; each has its own rounds.
const POOLS: [&str; 4] = ["ci", "nightly", "tests", "docs"];
/// A job and the change of its pool come at most this far apart.
const TOGETHER: Duration = Duration::from_secs(4);

/// The change of a pool while a job picks a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Shrunk,
    ReplacedAtOnce,
    ReplacedSlowly,
    Stopped,
    Drained,
    Removed,
}

const CHANGES: [Change; 6] = [
    Change::Shrunk,
    Change::ReplacedAtOnce,
    Change::ReplacedSlowly,
    Change::Stopped,
    Change::Drained,
    Change::Removed,
];

/// The targets of a pool before a round: hot and stopped machines.
const TARGETS: [(u32, u32); 3] = [(2, 1), (3, 0), (0, 2)];

/// The configuration of one pool.
#[derive(Clone, Copy, Debug)]
struct PoolSettings {
    targets: (u32, u32),
    version: u64,
    is_rolling: bool,
}

impl PoolSettings {
    const fn of(targets: (u32, u32), version: u64) -> Self {
        Self { targets, version, is_rolling: false }
    }
}

/// The outcome of one round: how the job got its machine, and the machine's tier before that.
#[derive(Clone, Copy, Debug)]
struct RoundOutcome {
    change: Change,
    how: Option<MachineSource>,
    tier: Option<Tier>,
}

/// A world, and the current configuration of its pools.
struct ConfiguredWorld {
    sim: PoolWorld,
    settings: RefCell<BTreeMap<&'static str, PoolSettings>>,
}

impl ConfiguredWorld {
    /// Configures a pool; `None` removes it.
    fn configure(&self, pool: &'static str, new: Option<PoolSettings>) {
        let mut settings = self.settings.borrow_mut();
        match new {
            Some(new) => drop(settings.insert(pool, new)),
            None => drop(settings.remove(pool)),
        }
        self.sim.configure(&config(&settings));
    }

    async fn order(&self, pool: &str, order: Option<OperatorOrder>) {
        let ordered = pools::order(&self.sim.world.onlooker(), &PoolName::new(pool), order).await;
        assert!(ordered.is_ok(), "the onlooker has no faults: {ordered:?}");
    }

    async fn change(&self, pool: &'static str, change: Change, was: PoolSettings) {
        let ((hot, stopped), next) = (was.targets, was.version + 1);
        let changed = match change {
            Change::Shrunk => PoolSettings { targets: (hot / 2, 0), ..was },
            Change::ReplacedAtOnce => PoolSettings { version: next, ..was },
            Change::ReplacedSlowly => PoolSettings { version: next, is_rolling: true, ..was },
            Change::Stopped => PoolSettings { targets: (0, hot + stopped), ..was },
            Change::Drained => return self.order(pool, Some(OperatorOrder::Drain)).await,
            Change::Removed => return self.configure(pool, None),
        };
        self.configure(pool, Some(changed));
    }

    /// One job, and the change of its pool.
    async fn round(&self, pool: &'static str, dice: &Dice, number: u64) -> RoundOutcome {
        let targets = *dice.pick(&TARGETS).expect("the list is not empty");
        let settings = PoolSettings::of(targets, 2 * number);
        self.order(pool, None).await;
        self.configure(pool, Some(settings));
        while self.sim.ready(pool).await == (0, 0) {
            pass(Duration::from_secs(1)).await;
        }
        let change = *dice.pick(&CHANGES).expect("the list is not empty");
        let soon = || dice.between(Duration::ZERO, TOGETHER);
        let (first, second) = (soon(), soon());
        let lasts = dice.between(Duration::from_secs(2), Duration::from_secs(40));
        let job = dice.any().to_string();
        tokio::join!(
            async {
                pass(first).await;
                self.change(pool, change, settings).await;
            },
            async {
                pass(second).await;
                self.sim.queue(&job, &format!("pool={pool}"), lasts);
            }
        );
        let tier = self.follow(&job).await;
        let steps = self.sim.job(&job).await.map(|row| row.steps).unwrap_or_default();
        let how = steps.iter().rev().find_map(|step| match step.step {
            JobStep::Assigned { how, .. } => Some(how),
            _ => None,
        });
        RoundOutcome { change, how, tier }
    }

    /// Waits for the end of a job; returns the tier that its machine had when it was claimed.
    async fn follow(&self, job: &str) -> Option<Tier> {
        let (id, mut tier) = (job.into(), None);
        while !self.sim.world.jobs.is_over(&id) {
            pass(Duration::from_secs(2)).await;
            if tier.is_some() {
                continue;
            }
            let Some(held) = self.sim.job(job).await.and_then(|row| row.held().cloned()) else {
                continue;
            };
            let record = self.sim.world.outside.ledger().read_now(&held.instance);
            if let Some(State::Claimed { tier: of, .. }) = record.map(|record| record.state) {
                tier = Some(of);
            }
        }
        tier
    }
}

fn config(settings: &BTreeMap<&str, PoolSettings>) -> String {
    let (mut pools, mut extensions) = (String::new(), String::new());
    for (name, PoolSettings { targets: (hot, stopped), version, is_rolling }) in settings {
        let entry = format!("{{name: always, hot: {hot}, stopped: {stopped}}}");
        let pool = format!("{{runner: large, version: v{version}, schedule: [{entry}]}}");
        writeln!(pools, "  {name}: {pool}").expect("memory");
        let rollout = if *is_rolling { "rolling" } else { "immediate" };
        writeln!(extensions, "    {name}: {{hot-lifetime: 16h, rollout: {rollout}}}")
            .expect("memory");
    }
    if pools.is_empty() {
        return "runners: {large: {cpu: 2, ram: 4}}".to_owned();
    }
    format!(
        "runners: {{large: {{cpu: 2, ram: 4}}}}\npools:\n{pools}x-bullpen:\n  pools:\n{extensions}"
    )
}

/// A world in which answers are lost and calls land late.
async fn world(seed: u64) -> Arc<World> {
    let weather = Weather {
        lose_answer: 10,
        land_late: 10,
        late_max: Duration::from_secs(20),
        ..CALM.control
    };
    let climate = Climate { control: weather, ..CALM.clone() };
    let ceilings = vec![Ceiling { scope: Scope::Stack, max: 40 }];
    let world = World::new(seed, Limits::DEFAULT, ceilings, climate);
    make_queues(&world).await;
    world
}

/// Plays `count` rounds of each pool in one world; then the faults stop, and the pools must
/// converge.
async fn rounds(seed: u64, count: u64) -> Result<Vec<RoundOutcome>, String> {
    let sim = PoolWorld::in_world(world(seed).await, &config(&BTreeMap::new())).await;
    let configured = ConfiguredWorld { sim, settings: RefCell::default() };
    let sim = &configured.sim;
    let (outcomes, over) = (RefCell::new(Vec::new()), Cell::new(false));
    let play = async {
        join_all(POOLS.iter().map(async |pool| {
            let dice = Dice::new(seed, pool);
            for number in 0..count {
                let outcome = configured.round(pool, &dice, number).await;
                outcomes.borrow_mut().push(outcome);
            }
            configured.order(pool, None).await;
            configured.configure(pool, Some(PoolSettings::of(TARGETS[0], 2 * count)));
        }))
        .await;
        sim.world.heal();
        over.set(true);
        pending::<Infallible>().await
    };
    let life = async { tokio::join!(Box::pin(play), Box::pin(sim.serving("service"))).0 };
    let converged = async || over.get() && sim.has_converged().await;
    let within = MINUTE * u32::try_from(10 * count).unwrap_or(u32::MAX);
    if !sim.until(within, converged, life).await {
        let verdict = sim.checker.verdict();
        return Err(format!("seed {seed}: {verdict:?} {:?}", sim.look().await));
    }
    sim.end().await.map_err(|why| format!("seed {seed}: {why}"))?;
    Ok(outcomes.into_inner())
}

/// Enough rounds to find a planted bug.
#[cfg(sabotage)]
pub(crate) fn a_few_rounds() {
    for seed in 0..4 {
        on_virtual_time(rounds(seed, 6)).unwrap_or_else(|why| panic!("{why}"));
    }
}

#[test]
fn no_pool_touches_a_machine_that_a_job_picked_in_a_thousand_rounds() {
    let (seeds, outcomes) = ((0..WORLDS).collect::<Vec<_>>(), Mutex::new(Vec::new()));
    side_by_side(&seeds, |seed| {
        let more = on_virtual_time(rounds(*seed, ROUNDS));
        outcomes.lock().unwrap().extend(more.unwrap_or_else(|why| panic!("{why}")));
    });
    let outcomes = outcomes.into_inner().unwrap();
    assert_eq!(outcomes.len(), 1_000);
    let count = |which: &dyn Fn(&RoundOutcome) -> bool| {
        outcomes.iter().filter(|round| which(round)).count()
    };
    let unserved = count(&|round| round.how.is_none() && round.change != Change::Removed);
    assert_eq!(unserved, 0, "a job may stay unserved only if its pool is removed");
    for change in CHANGES {
        let picked =
            count(&|round| round.change == change && round.how == Some(MachineSource::Picked));
        assert!(picked >= 25, "{change:?}: {picked}");
    }
    let started = count(&|round| round.tier == Some(Tier::Stopped));
    assert!(started >= 100, "workers started only {started} of the machines");
}
