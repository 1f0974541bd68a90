//! Machines that never come up.
//!
//! Not here: how long a quarantine lasts (`bullpen_core::pool`).

use serde_json::Value;

use crate::standby::{file, pool};
use crate::waiting::until;
use crate::world::World;

/// Three machines whose script fails end, and the pool launches no fourth: its notes say so. It
/// tries another script at once.
#[tokio::test]
async fn three_boots_that_fail_are_a_quarantine_and_a_mended_file_ends_it() {
    let runs = |script: &str| file(&format!(", preinstall: {script}"), &[pool("ci", 1, 0)]);
    let world = World::keeping(&runs("exit 1")).await;
    let served = world.serve().await;
    let note = until("quarantine", async || {
        let told = world.run("pools --json").await.json();
        let notes = told["pools"][0]["notes"].as_array().expect("a list").clone();
        notes.into_iter().find(|note| note["note"] == "quarantined")
    });
    assert_eq!(note.await["failed"], 3);
    let said = "waits pool=ci note=\"quarantined\"";
    until("word of it", async || served.process.talk().contains(said).then_some(())).await;
    world.reaches("ci", 0, 0).await;
    assert_eq!(world.machines().len(), 3, "no fourth is tried");
    world.configure(&runs("\"true\""));
    world.reaches("ci", 1, 0).await;
    let told = world.run("pools --json").await.json();
    assert_eq!(told["pools"][0]["notes"], Value::Array(Vec::new()), "{told}");
    assert_eq!(world.machines().len(), 4);
    world.quiet().await;
}
