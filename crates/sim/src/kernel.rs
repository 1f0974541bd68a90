//! The kernel: runs one seed's world from its first fault to its last machine.
//!
//! The world must be safe under faults; then the faults stop and it must become quiet: every
//! machine ended, every record a tombstone, no reservation. The seed decides everything; the same
//! seed gives the same digest.
//!
//! Not here: the checks ([`crate::checker`]), or what the seed draws ([`crate::load`]).

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use bullpen_core::instance::EndReason;
use bullpen_core::invariants::{Invariant, Violation};
use bullpen_core::ports::Ports;
use bullpen_engine::branch::branch;

use crate::checker::{Checker, CostSettings};
use crate::clock::{WORLD_BEGINS, on_virtual_time, pass};
use crate::dice::Dice;
use crate::life::{FAULTY, live, upkeepers};
use crate::load;
use crate::service::look_at_pools;
use crate::service::plan::{self, ServicePlan};
use crate::storm_plan;
use crate::wire::Counts;
use crate::world::World;

/// No world lasts longer; a world that does waits for an event that never comes.
const WORLD_ENDS: Duration = Duration::from_secs(8 * 3_600);
/// How often the checker looks at the whole world.
const LOOK: Duration = Duration::from_secs(30);

/// The figures of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Simulated time.
    pub simulated: Duration,
    /// The lifetimes of all machines, summed.
    pub machine_time: Duration,
    /// Ledger writes.
    pub writes: u64,
    /// Workflow runs.
    pub workflows: u64,
    /// Requests that were fulfilled.
    pub fulfilled: u64,
    /// Provisions that were cancelled.
    pub cancelled: u64,
    /// Provisions that ran again under the same id.
    pub resumed: u64,
    /// Requests that two processes worked on at once.
    pub doubled: u64,
    /// Workflow runs that had another attempt.
    pub reruns: u64,
    /// Runners that were reused.
    pub reused: u64,
    /// Runners that were created.
    pub created: u64,
    /// Jobs that finished.
    pub jobs: u64,
    /// Troubles that occurred.
    pub troubles: Counts,
    /// Machines that ended, by reason.
    pub ended: BTreeMap<EndReason, u64>,
}

impl std::ops::AddAssign for Stats {
    fn add_assign(&mut self, other: Self) {
        self.simulated += other.simulated;
        self.machine_time += other.machine_time;
        self.writes += other.writes;
        self.workflows += other.workflows;
        self.fulfilled += other.fulfilled;
        self.cancelled += other.cancelled;
        self.resumed += other.resumed;
        self.doubled += other.doubled;
        self.reruns += other.reruns;
        self.reused += other.reused;
        self.created += other.created;
        self.jobs += other.jobs;
        self.troubles += other.troubles;
        for (why, count) in other.ended {
            *self.ended.entry(why).or_default() += count;
        }
    }
}

/// A run in which every invariant held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Its seed.
    pub seed: u64,
    /// Equal for equal seeds.
    pub digest: u64,
    /// Its figures.
    pub stats: Stats,
    /// Every event line, if a trace was requested.
    pub trace: Vec<String>,
}

/// A run in which an invariant was violated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its seed.
    pub seed: u64,
    /// The violation.
    pub violation: Violation,
    /// The last events of the machine concerned.
    pub history: Vec<String>,
    /// Every event line, if a trace was requested.
    pub trace: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {}", self.seed, self.violation)?;
        for line in &self.history {
            writeln!(f, "  {line}")?;
        }
        write!(
            f,
            "repeat: cargo run --profile sim -p bullpen -- sim run --seeds {0}..{1} --trace",
            self.seed,
            self.seed + 1
        )
    }
}

/// Runs one seed.
pub fn run(seed: u64, trace: bool) -> Result<Run, Box<Failure>> {
    on_virtual_time(simulate(seed, trace))
}

async fn simulate(seed: u64, trace: bool) -> Result<Run, Box<Failure>> {
    let dice = Dice::new(seed, "world");
    let limits = load::limits(&Dice::new(seed, "limits"));
    let mut climate = load::climate(&dice);
    climate.temper.updates = load::updates(&Dice::new(seed, "updates"));
    let workflows = load::workflows(&dice, &climate, &limits, FAULTY);
    let calamities = load::calamities(&dice, FAULTY);
    let service = plan::draw(seed, FAULTY);
    let storms = storm_plan::draw(seed, FAULTY).unwrap_or_default();
    storms.change(&mut climate);
    let begins = service.as_ref().and_then(|plan| plan.timeline.begins).unwrap_or(WORLD_BEGINS);
    let is_big = service.as_ref().is_some_and(|plan| plan.is_big);
    let ceilings = if is_big { load::big_ceilings() } else { load::ceilings(&dice) };
    let world = World::beginning(begins, seed, limits, ceilings, climate);
    if is_big {
        world.happened("big world");
    }
    let checker = Checker::watch(&world, trace);
    checker.settle_costs(cost_settings(seed, service.as_ref()));
    checker.jobs_trust(service.as_ref().and_then(ServicePlan::trust));
    let timeline = service.as_ref().map(|plan| plan.timeline.clone()).unwrap_or_default();
    for ceiling in timeline.ceilings() {
        checker.add_ceiling(ceiling);
    }
    let lived = tokio::select! {
        biased;
        () = checker.violated() => None,
        () = branch(look_until_the_end(&world, &checker, service.as_ref())) => None,
        stats = branch(live(&world, &checker, (workflows, calamities, &storms), service.as_ref())) => Some(stats),
    };
    checker.look(&world);
    if let Some(defect) = world.defect() {
        panic!("seed {seed}: a process caught a panic: {defect}");
    }
    if let Some((violation, history)) = checker.verdict() {
        let trace = checker.take_trace();
        return Err(Box::new(Failure { seed, violation, history, trace }));
    }
    let mut stats = lived.unwrap_or_default();
    stats.simulated = world.outside.clock().elapsed();
    stats.machine_time = checker.machine_time();
    stats.writes = checker.writes();
    stats.jobs = world.outside.forge().completed();
    stats.troubles = world.counts();
    stats.ended = checker.ended();
    Ok(Run { seed, digest: checker.digest(), stats, trace: checker.take_trace() })
}

/// What a seed's plan says of its cost.
fn cost_settings(seed: u64, service: Option<&ServicePlan>) -> CostSettings {
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let replicas = service.map_or(0, |plan| plan.replicas);
    CostSettings {
        processes: u32::try_from(upkeepers(seed) + replicas).unwrap_or(u32::MAX),
        repositories: service.map_or(0, |plan| count(plan.repositories.len())),
        loses_webhooks: service.is_some_and(|plan| plan.webhooks.lose_any()),
    }
}

async fn look_until_the_end(world: &World, checker: &Checker, service: Option<&ServicePlan>) {
    let keeping = service.filter(|plan| plan.timeline.is_kept());
    while world.outside.clock().elapsed() < WORLD_ENDS {
        pass(LOOK).await;
        checker.look(world);
        if let Some(plan) = keeping {
            checker.look_at_plans(&look_at_pools(world, plan).await);
        }
        checker.machines_lived(LOOK);
    }
    checker.report(Violation {
        invariant: Invariant::EveryJobEnds,
        instance: None,
        what: format!("the world still waits for something after {WORLD_ENDS:?}"),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_seeds_are_clean() {
        for seed in 0..8 {
            if let Err(failure) = run(seed, false) {
                panic!("{failure}");
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_run() {
        for seed in [3, 7] {
            let (first, second) = (run(seed, true).unwrap(), run(seed, true).unwrap());
            assert_eq!(first.digest, second.digest);
            assert_eq!(first, second);
            assert!(!first.trace.is_empty());
        }
    }
}
