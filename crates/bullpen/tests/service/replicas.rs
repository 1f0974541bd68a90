//! Two processes of the service on one ledger, with DynamoDB and SQS on an emulator, killed in
//! turn.
//!
//! Not here: one process (`killed`).

use crate::killed::{KILLS, Load};
use crate::setup::CONFIG;
use crate::stage::{HASTY, Served, Stage};

/// Seeds that once failed are kept here.
const SEEDS: [u64; 1] = [1];

/// Kills of either replica: no job lost, none run twice, no machine without an owner or a record.
#[tokio::test]
async fn twenty_kills_of_two_replicas_lose_nothing_and_double_nothing() {
    for seed in SEEDS {
        let stage = Stage::on_aws(CONFIG, HASTY).await;
        let mut load = Load::new(seed);
        let mut replicas: [Option<Served>; 2] = [Some(stage.serve().await), None];
        for _ in 0..KILLS {
            for replica in &mut replicas {
                if replica.is_none() {
                    *replica = Some(stage.serve().await);
                }
            }
            load.add(&stage);
            load.passes().await;
            let dies = usize::from(load.dice.chance(500));
            if let Some(replica) = replicas[dies].take() {
                replica.kill().await;
            }
        }
        let _last = stage.serve().await;
        load.is_done_once(&stage).await;
        for job in &load.jobs {
            stage.ended(*job).await;
        }
        stage.quiet().await;
    }
}
