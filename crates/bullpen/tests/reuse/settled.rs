//! Checks of a settled world: every leftover of a killed or cancelled command is cleaned up.
//!
//! Not here: the kills and cancellations (`killed`, `cancelled`).

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::shared::processes_under;
use crate::waiting::until;
use crate::world::World;

impl World {
    /// Every machine's directory.
    pub(crate) fn machines(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.state().join("machines")) else { return Vec::new() };
        let paths = entries.flatten().map(|entry| entry.path());
        paths.filter(|path| path.join("machine.json").exists()).collect()
    }

    /// The directories of machines that were launched for the request of this name.
    pub(crate) fn launched_for(&self, name: &str) -> Vec<PathBuf> {
        let intent = format!("\"local.1.{name}.");
        let is_its = |path: &PathBuf| {
            let text = fs::read_to_string(path.join("machine.json")).unwrap_or_default();
            text.contains(&intent)
        };
        self.machines().into_iter().filter(is_its).collect()
    }

    /// Refreshes until no machine has an owner and every remaining machine is idle; then checks
    /// processes and ledger. Returns the idle machines.
    pub(crate) async fn settles(&self) -> BTreeSet<String> {
        let mut last = Value::Null;
        let settled = until("settled world", async || {
            self.refresh().await;
            last = self.status().await;
            is_settled(&last).then(|| last.clone())
        });
        let status = settled.await;
        let ids = status["instances"].as_array().expect("a list").iter();
        let idle: BTreeSet<String> =
            ids.map(|one| one["id"].as_str().expect("an id").to_owned()).collect();
        for machine in self.machines() {
            let name = machine.file_name().expect("it has a name").to_string_lossy().into_owned();
            let left = processes_under(&machine);
            assert!(idle.contains(&name) || left.is_empty(), "{name} is an orphan: {left:?}");
            assert!(!idle.contains(&name) || !left.is_empty(), "{name} is a ghost");
        }
        self.verify().await;
        idle
    }

    /// Asserts that the next request finds every idle machine: none is lost.
    pub(crate) async fn reuses(&self, idle: &BTreeSet<String>) {
        if idle.is_empty() {
            return;
        }
        let all = self.provision(idle.len(), "afterwards").await;
        assert_eq!((all.counts().1, &all.ids()), (0, idle));
    }
}

fn is_settled(status: &Value) -> bool {
    let all = status["instances"].as_array().expect("a list");
    let is_idle = |one: &Value| one["state"] == "idle" && one["machine"] == "running";
    status["unrecorded"] == Value::Array(Vec::new()) && all.iter().all(is_idle)
}
