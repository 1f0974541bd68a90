//! The previous program beside the one under test, on one state: services, commands and agents of
//! both versions at once, killed again and again.
//!
//! Not here: kills of one version (`killed`), or the fixtures of what earlier versions stored.

use std::path::{Path, PathBuf};

use bullpen_core::job::{Conclusion as Concluded, End};
use serde_json::Value;

use crate::killed::{KILLS, Load};
use crate::process;
use crate::tool::variable;
use crate::world::{HASTY, Served, World};

/// Seeds that once failed are kept here.
const SEEDS: [u64; 1] = [1];
const MISSING: &str = "the previous program is not there: the deep part of the gate builds it";

fn previous() -> PathBuf {
    variable("BULLPEN_PREVIOUS").filter(|path| path.exists()).expect(MISSING)
}

/// Two processes of the service serve one load on one state. Each process that is started again is of
/// either version, so that jobs begun by one version are ended by the other, both ways.
#[tokio::test]
async fn kills_of_two_versions_side_by_side_lose_nothing_and_double_nothing() {
    let versions = [previous(), process::built()];
    for seed in SEEDS {
        let world = World::with(HASTY).await;
        let mut load = Load::new(seed);
        let mut processes: [Option<Served>; 2] = [None, None];
        for kill in 0..KILLS {
            for process in &mut processes {
                if process.is_none() {
                    let version = &versions[usize::from(load.dice.chance(500))];
                    *process = Some(world.serve_of(version, "").await);
                }
            }
            load.add(&world);
            load.passes().await;
            let dies = usize::from(load.dice.chance(500));
            if let Some(process) = processes[dies].take() {
                process.kill().await;
            }
            // A stack that was upgraded half-way is rolled back, and upgraded once more.
            if kill == KILLS / 2 {
                for process in processes.iter_mut().filter_map(Option::take) {
                    process.kill().await;
                }
            }
        }
        for process in processes.iter_mut().filter_map(Option::take) {
            process.kill().await;
        }
        let last = world.serve().await;
        load.is_done_once(&world).await;
        for job in &load.jobs {
            let end = world.settled(*job).await;
            assert_eq!(end, End::Completed(Concluded::new("success")), "seed {seed}");
        }
        world.quiet().await;
        drop(last);
        verifies(&world, &versions[0]).await;
    }
}

/// A command of one version releases what a command of the other provisioned, both ways, and the
/// agents of the first serve the requests of the second.
#[tokio::test]
async fn machines_of_one_version_serve_the_requests_of_the_other() {
    let versions = [previous(), process::built()];
    let world = World::with(HASTY).await;
    let mut machines = Vec::new();
    for (number, version) in [0, 1, 0, 1].into_iter().enumerate() {
        let (ours, others) = (&versions[version], &versions[1 - version]);
        let provision =
            format!("provision --count 2 --name n{number} --resource-class small --json");
        let told = world.command_of(ours, &provision).ends().await.json();
        machines.push(ids(&told));
        let request = told["request"].as_str().expect("it names the request");
        world.command_of(others, &format!("release --request {request}")).ends().await.exits(0);
        verifies(&world, ours).await;
    }
    assert!(machines.windows(2).all(|pair| pair[0] == pair[1]), "each reused: {machines:?}");
    world.quiet().await;
}

fn ids(told: &Value) -> Vec<String> {
    let listed = told["instances"].as_array().expect("a list").iter();
    let mut ids: Vec<String> = listed.map(|one| one["id"].to_string()).collect();
    ids.sort();
    ids
}

async fn verifies(world: &World, program: &Path) {
    world.command_of(program, "ledger verify").ends().await.exits(0);
}
