//! A thousand jobs that pick from a pool while it is shrunk, replaced, stopped, drained or removed
//! under them, with answers that are lost and calls that land late: no plan and no call of the pool
//! touches what a job has.
//!
//! Not here: that is seen by the checker, which looks at every plan and at every call that lands.

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
/// Pools of one world, each with rounds of its own.
const POOLS: [&str; 4] = ["ci", "nightly", "tests", "docs"];
/// A job and what happens to its pool come within this of each other.
const TOGETHER: Duration = Duration::from_secs(4);

/// What happens to a pool while a job picks.
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

/// What a pool is before a round: hot and stopped.
const KEPT: [(u32, u32); 3] = [(2, 1), (3, 0), (0, 2)];

/// What is configured of one pool.
#[derive(Clone, Copy, Debug)]
struct Promise {
    kept: (u32, u32),
    version: u64,
    is_rolling: bool,
}

impl Promise {
    const fn of(kept: (u32, u32), version: u64) -> Self {
        Self { kept, version, is_rolling: false }
    }
}

/// How a job came by its machine, and of what kind that was.
#[derive(Clone, Copy, Debug)]
struct Came {
    change: Change,
    how: Option<MachineSource>,
    tier: Option<Tier>,
}

/// A yard, and what is configured in it.
struct Field {
    yard: PoolWorld,
    promised: RefCell<BTreeMap<&'static str, Promise>>,
}

impl Field {
    fn promise(&self, pool: &'static str, promise: Option<Promise>) {
        let mut promised = self.promised.borrow_mut();
        match promise {
            Some(promise) => drop(promised.insert(pool, promise)),
            None => drop(promised.remove(pool)),
        }
        self.yard.configure(&config(&promised));
    }

    async fn order(&self, pool: &str, order: Option<OperatorOrder>) {
        let ordered = pools::order(&self.yard.world.onlooker(), &PoolName::new(pool), order).await;
        assert!(ordered.is_ok(), "it is calm outside: {ordered:?}");
    }

    async fn change(&self, pool: &'static str, change: Change, was: Promise) {
        let ((hot, stopped), next) = (was.kept, was.version + 1);
        let promise = match change {
            Change::Shrunk => Promise { kept: (hot / 2, 0), ..was },
            Change::ReplacedAtOnce => Promise { version: next, ..was },
            Change::ReplacedSlowly => Promise { version: next, is_rolling: true, ..was },
            Change::Stopped => Promise { kept: (0, hot + stopped), ..was },
            Change::Drained => return self.order(pool, Some(OperatorOrder::Drain)).await,
            Change::Removed => return self.promise(pool, None),
        };
        self.promise(pool, Some(promise));
    }

    /// One job, and what happens to its pool.
    async fn round(&self, pool: &'static str, dice: &Dice, number: u64) -> Came {
        let promise = Promise::of(*dice.pick(&KEPT).expect("there are some"), 2 * number);
        self.order(pool, None).await;
        self.promise(pool, Some(promise));
        while self.yard.ready(pool).await == (0, 0) {
            pass(Duration::from_secs(1)).await;
        }
        let change = *dice.pick(&CHANGES).expect("there are some");
        let soon = || dice.between(Duration::ZERO, TOGETHER);
        let (first, second) = (soon(), soon());
        let lasts = dice.between(Duration::from_secs(2), Duration::from_secs(40));
        let job = dice.any().to_string();
        tokio::join!(
            async {
                pass(first).await;
                self.change(pool, change, promise).await;
            },
            async {
                pass(second).await;
                self.yard.queue(&job, &format!("pool={pool}"), lasts);
            }
        );
        let tier = self.follow(&job).await;
        let steps = self.yard.job(&job).await.map(|row| row.steps).unwrap_or_default();
        let how = steps.iter().rev().find_map(|step| match step.step {
            JobStep::Assigned { how, .. } => Some(how),
            _ => None,
        });
        Came { change, how, tier }
    }

    /// Waits for a job's end; the answer is what its machine was when it was claimed.
    async fn follow(&self, job: &str) -> Option<Tier> {
        let (id, mut tier) = (job.into(), None);
        while !self.yard.world.jobs.is_over(&id) {
            pass(Duration::from_secs(2)).await;
            if tier.is_some() {
                continue;
            }
            let Some(held) = self.yard.job(job).await.and_then(|row| row.held().cloned()) else {
                continue;
            };
            let record = self.yard.world.outside.ledger().read_now(&held.instance);
            if let Some(State::Claimed { tier: of, .. }) = record.map(|record| record.state) {
                tier = Some(of);
            }
        }
        tier
    }
}

fn config(promised: &BTreeMap<&str, Promise>) -> String {
    let (mut pools, mut extensions) = (String::new(), String::new());
    for (name, Promise { kept: (hot, stopped), version, is_rolling }) in promised {
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

/// Answers are lost, and calls land late.
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

/// So many rounds of each pool in one world; then everything heals, and the pools become what they
/// should be.
async fn rounds(seed: u64, count: u64) -> Result<Vec<Came>, String> {
    let yard = PoolWorld::in_world(world(seed).await, &config(&BTreeMap::new())).await;
    let field = Field { yard, promised: RefCell::default() };
    let yard = &field.yard;
    let (came, over) = (RefCell::new(Vec::new()), Cell::new(false));
    let plot = async {
        join_all(POOLS.iter().map(async |pool| {
            let dice = Dice::new(seed, pool);
            for number in 0..count {
                let round = field.round(pool, &dice, number).await;
                came.borrow_mut().push(round);
            }
            field.order(pool, None).await;
            field.promise(pool, Some(Promise::of(KEPT[0], 2 * count)));
        }))
        .await;
        yard.world.heal();
        over.set(true);
        pending::<Infallible>().await
    };
    let life = async { tokio::join!(Box::pin(plot), Box::pin(yard.serving("service"))).0 };
    let converged = async || over.get() && yard.has_converged().await;
    let within = MINUTE * u32::try_from(10 * count).unwrap_or(u32::MAX);
    if !yard.until(within, converged, life).await {
        let verdict = yard.checker.verdict();
        return Err(format!("seed {seed}: {verdict:?} {:?}", yard.look().await));
    }
    yard.end().await.map_err(|why| format!("seed {seed}: {why}"))?;
    Ok(came.into_inner())
}

/// Some rounds, for whoever wants to know whether a mistake is found.
#[cfg(sabotage)]
pub(crate) fn a_few_rounds() {
    for seed in 0..4 {
        on_virtual_time(rounds(seed, 6)).unwrap_or_else(|why| panic!("{why}"));
    }
}

#[test]
fn nobody_touches_what_a_job_has_picked_in_a_thousand_rounds() {
    let (seeds, came) = ((0..WORLDS).collect::<Vec<_>>(), Mutex::new(Vec::new()));
    side_by_side(&seeds, |seed| {
        let more = on_virtual_time(rounds(*seed, ROUNDS));
        came.lock().unwrap().extend(more.unwrap_or_else(|why| panic!("{why}")));
    });
    let came = came.into_inner().unwrap();
    assert_eq!(came.len(), 1_000);
    let count = |which: &dyn Fn(&Came) -> bool| came.iter().filter(|one| which(one)).count();
    let unserved = count(&|one| one.how.is_none() && one.change != Change::Removed);
    assert_eq!(unserved, 0, "only a pool that is gone serves nobody");
    for change in CHANGES {
        let picked = count(&|one| one.change == change && one.how == Some(MachineSource::Picked));
        assert!(picked >= 25, "{change:?}: {picked}");
    }
    let started = count(&|one| one.tier == Some(Tier::Stopped));
    assert!(started >= 100, "{started} of the machines had to be started");
}
