//! Jobs in foul weather: answers are lost, calls land late, processes die, clocks differ, and every job
//! still ends with a runner or with a word to its author.
//!
//! Not here: calm worlds, where each test shows one thing.

use std::time::Duration;

use bullpen_core::limits::Limits;
use bullpen_core::ports::Ports;
use bullpen_sim::clock::{on_virtual_time, pass};
use bullpen_sim::dice::Dice;
use bullpen_sim::life::make_queues;
use bullpen_sim::load;
use bullpen_sim::world::World;

use super::town::{Town, about_in};

/// How many worlds.
const SEEDS: u64 = 40;
const JOBS: u64 = 8;
const FAULTY: Duration = Duration::from_secs(15 * 60);

#[test]
fn every_job_ends_in_foul_weather() {
    let mut served = 0;
    for seed in 0..SEEDS {
        served += on_virtual_time(one_world(seed));
    }
    assert!(served > SEEDS * JOBS / 2, "only {served} jobs ran");
}

/// In some worlds GitHub is away for a while, in some the cloud has nothing, in some a machine dies.
async fn calamities(town: &Town, dice: &Dice) {
    pass(dice.between(Duration::from_secs(10), Duration::from_secs(300))).await;
    let length = dice.between(Duration::from_secs(20), Duration::from_secs(240));
    let (fleet, forge) = (town.world.outside.fleet(), town.world.outside.forge());
    match dice.below(4) {
        0 => {
            forge.set_outage(true);
            town.github.set_outage(true);
            pass(length).await;
            forge.set_outage(false);
            town.github.set_outage(false);
        }
        1 => {
            fleet.limit_capacity(Some(1));
            pass(length).await;
            fleet.limit_capacity(None);
        }
        2 => {
            if let Some(machine) = dice.pick(&fleet.snapshot()) {
                fleet.lose(&machine.id);
            }
        }
        _ => {}
    }
}

/// Returns how many jobs ran.
async fn one_world(seed: u64) -> u64 {
    let dice = Dice::new(seed, "jobs");
    let world = World::new(seed, Limits::DEFAULT, load::ceilings(&dice), load::climate(&dice));
    make_queues(&world).await;
    let town = Town::in_world(world).await;
    let town = if dice.chance(500) { town.reusing() } else { town };
    let jobs: Vec<String> = (0..JOBS).map(|number| format!("{}", 70 + number)).collect();
    let arrivals = async {
        for job in &jobs {
            pass(dice.between(Duration::ZERO, Duration::from_secs(60))).await;
            // Some share their labels, so that their runners are taken by others.
            let head = if dice.chance(300) { "runs-on".into() } else { format!("runs-on={job}") };
            let label = format!("{head}/runner=large");
            let fact = town.submit(job, about_in(job, "acme/app", &label));
            town.announce(&fact).await;
        }
    };
    let processes = async {
        let began = town.world.outside.clock().elapsed();
        let mut number = 0;
        while town.world.outside.clock().elapsed() < began + FAULTY {
            number += 1;
            let fuse = dice.chance(700).then(|| dice.below(600));
            let length = dice.between(Duration::from_secs(10), Duration::from_secs(200));
            let never = async || false;
            let name = format!("serve {number}");
            town.live_until(&name, fuse, length, |_| !dice.chance(100), never).await;
        }
    };
    tokio::join!(arrivals, processes, calamities(&town, &dice));
    town.world.heal();
    town.github.set_outage(false);
    let done = async || {
        for job in &jobs {
            if !town.is_settled(job).await {
                return false;
            }
        }
        true
    };
    let ended = town.live("heal", Duration::from_secs(3 * 3600), |_| true, done).await;
    let told = town.github.told();
    let mut ran = 0;
    for job in &jobs {
        let row = town.row(job).await;
        assert!(ended || town.is_settled(job).await, "seed {seed}: {row:?}");
        let is_told = told.iter().any(|notice| notice.job.as_str() == job);
        assert!(town.is_over(job) || is_told, "seed {seed}: {row:?}");
        ran += u64::from(town.is_over(job));
    }
    town.end_of(seed).await;
    ran
}
