//! The configuration of the service's tests, and helpers of a process or a world for them alone.
//!
//! Not here: the world (`world`).

use std::fs;

use crate::process::Process;
use crate::waiting::until;
use crate::world::World;

/// A class with reuse, a class without, and a pool with a target of zero.
pub(crate) const CONFIG: &str = "\
runners:
  small: {cpu: 2, ram: 4, family: c6i}
  once: {cpu: 2, ram: 4, family: c6i}
pools:
  builders:
    runner: small
    schedule: [{name: default, hot: 0, stopped: 0}]
x-bullpen:
  runners:
    small: {reuse: {max-uses: 1000}}
";

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(&[]).await
    }

    /// A world with these limits in its `bullpen.toml`.
    pub(crate) async fn with(limits: &[(&str, &str)]) -> Self {
        Self::configured(CONFIG, limits).await
    }

    /// Waits until the service has asked GitHub once for jobs that no webhook announced, as it does
    /// at its start: for queued runs and for runs in progress.
    pub(crate) async fn has_asked(&self) {
        let runs = ("GET actions/runs".to_owned(), 200);
        until("question about runs", async || {
            self.github.answers().get(&runs).is_some_and(|count| *count >= 2).then_some(())
        })
        .await;
    }
}

impl Process {
    pub(crate) fn is_over(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_some()
    }

    /// The most memory it ever had, in KiB.
    pub(crate) fn peak_kib(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = fs::read_to_string(path).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        number.and_then(|text| text.parse().ok()).expect("it has memory")
    }
}
