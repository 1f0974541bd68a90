//! The service killed at random moments under load, and started again each time.
//!
//! Not here: processes that are asked to end (`drain`).

use std::collections::BTreeMap;
use std::time::Duration;

use bullpen_core::job::{Conclusion as Concluded, End};
use bullpen_github::stand_in::protocol::Conclusion;
use bullpen_sim::dice::Dice;

use crate::process::pass;
use crate::stage::{HASTY, Stage};

const KILLS: u32 = 20;
/// The longest that a process lives; a job takes about a third of it.
const LIFE_MAX: Duration = Duration::from_millis(1_500);

/// Seeds that once failed are kept here.
const SEEDS: [u64; 6] = [1, 2, 3, 4, 5, 6];

/// No job lost, none run twice by us, no machine without an owner or a record.
#[tokio::test]
async fn twenty_kills_lose_nothing_and_double_nothing() {
    for seed in SEEDS {
        killed_again_and_again(seed).await;
    }
}

async fn killed_again_and_again(seed: u64) {
    let dice = Dice::new(seed, "kills");
    let stage = Stage::with(HASTY).await;
    let script = format!("echo \"$JOB\" >> {}", stage.path("ran").display());
    let mut jobs = Vec::new();
    for _ in 0..KILLS {
        let served = stage.serve().await;
        for _ in 0..dice.below(6) {
            jobs.push(submit(&stage, &script, jobs.len(), &dice));
        }
        pass(dice.between(Duration::ZERO, LIFE_MAX)).await;
        served.kill().await;
    }
    let _served = stage.serve().await;
    for job in &jobs {
        assert_eq!(stage.over(*job).await.conclusion, Some(Conclusion::Success), "seed {seed}");
        let end = stage.settled(*job).await;
        assert_eq!(end, End::Completed(Concluded::new("success")), "seed {seed}");
    }
    let ran = std::fs::read_to_string(stage.path("ran")).expect("they ran");
    let mut times: BTreeMap<&str, u32> = BTreeMap::new();
    for line in ran.lines() {
        *times.entry(line).or_default() += 1;
    }
    assert_eq!(times.len(), jobs.len(), "seed {seed}");
    assert!(times.values().all(|times| *times == 1), "seed {seed}: {times:?}");
    stage.quiet().await;
    let online = stage.github.runners().into_iter().filter(|runner| runner.online).count();
    assert_eq!(online, 0, "seed {seed}: nobody listens for nothing");
}

/// A job of a class with reuse or of one without, with a label of its own or one that others have.
fn submit(stage: &Stage, script: &str, number: usize, dice: &Dice) -> u64 {
    let head = if dice.chance(500) { format!("bullpen={number}") } else { "bullpen".to_owned() };
    let class = if dice.chance(700) { "small" } else { "once" };
    let mut order = crate::stage::order(&format!("{head}/runner={class}"), script);
    order.env.insert("JOB".to_owned(), number.to_string());
    stage.github.submit(order).id
}
