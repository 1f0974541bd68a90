//! Two processes of the service on one ledger, with DynamoDB and SQS on an emulator, killed in
//! turn.
//!
//! Not here: one process (`killed`).

use crate::killed::{KILLS, Load};
use crate::setup::CONFIG;
use crate::world::{HASTY, Served, World};

/// Seeds that once failed are kept here.
const SEEDS: [u64; 1] = [1];

/// Kills of either replica: no job lost, none run twice, no machine without an owner or a record.
#[tokio::test]
async fn twenty_kills_of_two_replicas_lose_nothing_and_double_nothing() {
    for seed in SEEDS {
        let world = World::on_aws(CONFIG, HASTY).await;
        let mut load = Load::new(seed);
        let mut replicas: [Option<Served>; 2] = [Some(world.serve().await), None];
        for _ in 0..KILLS {
            for replica in &mut replicas {
                if replica.is_none() {
                    *replica = Some(world.serve().await);
                }
            }
            load.add(&world);
            load.passes().await;
            let dies = usize::from(load.dice.chance(500));
            if let Some(replica) = replicas[dies].take() {
                replica.kill().await;
            }
        }
        let _last = world.serve().await;
        load.is_done_once(&world).await;
        for job in &load.jobs {
            world.ended(*job).await;
        }
        world.quiet().await;
    }
}
