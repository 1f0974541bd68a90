//! Jobs in foul weather: answers are lost, calls land late, processes die and clocks differ. Every
//! job still gets a runner, or its author a notice.
//!
//! Not here: calm worlds, where each test shows one thing (the other modules).

use std::time::Duration;

use bullpen_core::limits::Limits;
use bullpen_core::ports::Ports;
use bullpen_sim::clock::{on_virtual_time, pass};
use bullpen_sim::dice::Dice;
use bullpen_sim::life::make_queues;
use bullpen_sim::load;
use bullpen_sim::world::World;

use super::service_world::{ServiceWorld, about_in};

/// The number of worlds.
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

/// GitHub is down for a while, the cloud has no capacity, a machine is lost, or nothing happens.
async fn calamities(sim: &ServiceWorld, dice: &Dice) {
    pass(dice.between(Duration::from_secs(10), Duration::from_secs(300))).await;
    let length = dice.between(Duration::from_secs(20), Duration::from_secs(240));
    let (fleet, forge) = (sim.world.outside.fleet(), sim.world.outside.forge());
    match dice.below(4) {
        0 => {
            forge.set_outage(true);
            sim.github.set_outage(true);
            pass(length).await;
            forge.set_outage(false);
            sim.github.set_outage(false);
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
    let sim = ServiceWorld::in_world(world).await;
    let sim = if dice.chance(500) { sim.reusing() } else { sim };
    let jobs: Vec<String> = (0..JOBS).map(|number| format!("{}", 70 + number)).collect();
    let arrivals = async {
        for job in &jobs {
            pass(dice.between(Duration::ZERO, Duration::from_secs(60))).await;
            // Some jobs share their labels, so that one takes the runner of another.
            let head = if dice.chance(300) { "runs-on".into() } else { format!("runs-on={job}") };
            let label = format!("{head}/runner=large");
            let fact = sim.submit(job, about_in(job, "acme/app", &label));
            sim.deliver_until_taken(&fact).await;
        }
    };
    let processes = async {
        let began = sim.world.outside.clock().elapsed();
        let mut number = 0;
        while sim.world.outside.clock().elapsed() < began + FAULTY {
            number += 1;
            let fuse = dice.chance(700).then(|| dice.below(600));
            let length = dice.between(Duration::from_secs(10), Duration::from_secs(200));
            let never = async || false;
            let name = format!("serve {number}");
            sim.serve_with_fuse(&name, fuse, length, |_| !dice.chance(100), never).await;
        }
    };
    tokio::join!(arrivals, processes, calamities(&sim, &dice));
    sim.world.heal();
    sim.github.set_outage(false);
    let done = async || {
        for job in &jobs {
            if !sim.is_settled(job).await {
                return false;
            }
        }
        true
    };
    let ended = sim.serve_until("heal", Duration::from_secs(3 * 3600), |_| true, done).await;
    let notices = sim.github.notices();
    let mut ran = 0;
    for job in &jobs {
        let row = sim.row(job).await;
        assert!(ended || sim.is_settled(job).await, "seed {seed}: {row:?}");
        let is_told = notices.iter().any(|notice| notice.job.as_str() == job);
        assert!(sim.is_over(job) || is_told, "seed {seed}: {row:?}");
        ran += u64::from(sim.is_over(job));
    }
    sim.end_of(seed).await;
    ran
}
