//! Two thousand webhooks at once: every row is durable when its webhook was answered, and memory is
//! bounded.
//!
//! Not here: how fast it is (the benchmark `webhooks`).

use bullpen_core::ids::JobId;
use bullpen_core::job::Job;
use bullpen_core::ports::Ledger as _;

use crate::process::within;
use crate::world::World;

const JOBS: usize = 2_000;
/// Generous: more than a debug build takes, and far less than all webhooks together.
const PEAK_KIB_MAX: u64 = 256 * 1024;

#[tokio::test]
async fn two_thousand_webhooks_are_durable_when_they_are_answered() {
    let world = World::new().await;
    let served = world.serve_with("--roles webhook").await;
    let jobs: Vec<u64> = (0..JOBS)
        .map(|number| world.job(&format!("bullpen/runner=small/tag={number}"), "true"))
        .collect();
    within("answers", world.github.webhooks_sent()).await;
    let peak = served.process.peak_kib();
    served.kill().await;
    assert_eq!(world.github.webhook_answers(), [204; JOBS]);
    let ledger = world.ledger();
    for job in jobs {
        let row = ledger.row(&JobId::new(job.to_string())).await.expect("it is readable");
        let row = row.unwrap_or_else(|| panic!("job {job} was answered and is lost"));
        Job::decode(&row.body).expect("it is a job");
    }
    assert!(peak < PEAK_KIB_MAX, "{peak} KiB");
}
