//! Standby pools.
//!
//! Not here: jobs of no pool (`service`).

use std::collections::BTreeSet;

use bullpen_github::stand_in::protocol::Conclusion;
use serde_json::Value;

use crate::waiting::until;
use crate::world::World;

/// A service with short intervals and short stop fences, so that tests need not wait a minute.
pub(crate) const QUICK: &[(&str, &str)] = &[
    ("configuration", "100ms"),
    ("converge", "2s"),
    ("upkeep", "1s"),
    ("stop-fence", "6s"),
    ("stop-send-within", "2s"),
    ("stop-call-timeout", "2s"),
    ("clock-skew", "100ms"),
];

/// A file with one pool of this size.
pub(crate) fn file(hot: u32, stopped: u32, version: u32) -> String {
    format!(
        "runners:\n  small: {{cpu: 2, ram: 4, family: c6i}}\npools:\n  ci: {{runner: small, version: \
         {version}, schedule: [{{name: default, hot: {hot}, stopped: {stopped}}}]}}\n"
    )
}

/// The idle machines, hot and stopped.
type Standing = (BTreeSet<String>, BTreeSet<String>);

impl World {
    async fn standing(&self) -> Standing {
        let status = self.status().await;
        let of = |tier: &str| {
            let all = status["instances"].as_array().expect("a list").iter();
            let idle = all.filter(|one| one["state"] == "idle" && one["tier"] == tier);
            idle.map(|one| one["id"].as_str().expect("an id").to_owned()).collect()
        };
        (of("hot"), of("stopped"))
    }

    pub(crate) async fn reaches(&self, hot: usize, stopped: usize) -> Standing {
        until(&format!("{hot} hot and {stopped} stopped"), async || {
            let standing = self.standing().await;
            ((standing.0.len(), standing.1.len()) == (hot, stopped)).then_some(standing)
        })
        .await
    }
}

/// From empty to its target; a hot machine for the first job, and a stopped machine, started, for
/// the second; full again; another version; removed.
#[tokio::test]
async fn a_pool_lives_on_ec2_as_it_does_on_processes() {
    let world = World::in_cloud(&file(1, 1, 1), QUICK).await;
    let _served = world.serve().await;
    let first = world.reaches(1, 1).await;
    let held: Vec<u64> = (0..2).map(|_| world.job("runs-on/pool=ci", &world.gated("go"))).collect();
    for job in &held {
        world.started(*job).await;
    }
    let status = world.status().await;
    let busy = busy(&status);
    assert!(busy.is_superset(&first.0) && busy.is_superset(&first.1), "{busy:?} of {first:?}");
    let second = world.reaches(1, 1).await;
    world.open("go");
    for job in held {
        assert_eq!(world.over(job).await.conclusion, Some(Conclusion::Success));
        world.ended(job).await;
    }
    world.configure(&file(1, 1, 2));
    until("machines of the new version", async || {
        let (hot, stopped) = world.reaches(1, 1).await;
        (hot.is_disjoint(&second.0) && stopped.is_disjoint(&second.1)).then_some(())
    })
    .await;
    world.configure("runners:\n  small: {cpu: 2, ram: 4, family: c6i}\n");
    world.reaches(0, 0).await;
    assert_eq!(world.quiet().await.len(), 0);
}

fn busy(status: &Value) -> BTreeSet<String> {
    let all = status["instances"].as_array().expect("a list").iter();
    let busy = all.filter(|one| one["state"] == "running" || one["state"] == "claimed");
    busy.map(|one| one["id"].as_str().expect("an id").to_owned()).collect()
}
