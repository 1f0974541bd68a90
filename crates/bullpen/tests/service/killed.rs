//! The service killed at random moments under load, and started again each time.
//!
//! Not here: processes that are asked to end (`drain`), or several of them (`replicas`).

use std::collections::BTreeMap;
use std::time::Duration;

use bullpen_core::job::{Conclusion as Concluded, End};
use bullpen_github::stand_in::protocol::Conclusion;
use bullpen_sim::dice::Dice;

use crate::process::pass;
use crate::world::{HASTY, World, order};

pub(crate) const KILLS: u32 = 20;
/// The longest that a process lives: a job takes about a third of it.
const LIFE_MAX: Duration = Duration::from_millis(1_500);
/// The most jobs that are queued between two kills.
const BURST_MAX: u64 = 5;

/// Seeds that once failed are kept here.
const SEEDS: [u64; 1] = [1];

/// No job lost, none run twice by the service, no machine without an owner or a record.
#[tokio::test]
async fn twenty_kills_lose_nothing_and_double_nothing() {
    for seed in SEEDS {
        let world = World::with(HASTY).await;
        let mut load = Load::new(seed);
        for _ in 0..KILLS {
            let served = world.serve().await;
            load.add(&world);
            load.passes().await;
            served.kill().await;
        }
        let _served = world.serve().await;
        load.is_done_once(&world).await;
        for job in load.jobs {
            let end = world.settled(job).await;
            assert_eq!(end, End::Completed(Concluded::new("success")), "seed {seed}");
        }
        world.quiet().await;
        let online = world.github.runners().into_iter().filter(|runner| runner.online).count();
        assert_eq!(online, 0, "seed {seed}: a listener is left without a job");
    }
}

/// Jobs that come again and again, each recording that it ran; one seed decides which and when.
pub(crate) struct Load {
    seed: u64,
    pub(crate) dice: Dice,
    pub(crate) jobs: Vec<u64>,
}

impl Load {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, dice: Dice::new(seed, "kills"), jobs: Vec::new() }
    }

    /// Queues a few more, of a class with or without reuse, with a label of their own or a shared
    /// one.
    pub(crate) fn add(&mut self, world: &World) {
        let script = format!("echo \"$JOB\" >> {}", world.path("ran").display());
        for _ in 0..=self.dice.below(BURST_MAX) {
            let number = self.jobs.len();
            let alone = self.dice.chance(500);
            let head = if alone { format!("bullpen/tag={number}") } else { "bullpen".to_owned() };
            let class = if self.dice.chance(700) { "small" } else { "once" };
            let mut order = order(&format!("{head}/runner={class}"), &script);
            order.env.insert("JOB".to_owned(), number.to_string());
            self.jobs.push(world.github.submit(order).id);
        }
    }

    /// Waits until a random moment.
    pub(crate) async fn passes(&self) {
        pass(self.dice.between(Duration::ZERO, LIFE_MAX)).await;
    }

    /// Asserts that every job ends well, and none ran twice.
    pub(crate) async fn is_done_once(&self, world: &World) {
        let seed = self.seed;
        for job in &self.jobs {
            let over = world.over(*job).await;
            assert_eq!(over.conclusion, Some(Conclusion::Success), "seed {seed}");
        }
        let ran = std::fs::read_to_string(world.path("ran")).expect("they ran");
        let mut times: BTreeMap<&str, u32> = BTreeMap::new();
        for line in ran.lines() {
            *times.entry(line).or_default() += 1;
        }
        assert_eq!(times.len(), self.jobs.len(), "seed {seed}");
        assert!(times.values().all(|times| *times == 1), "seed {seed}: {times:?}");
    }
}
