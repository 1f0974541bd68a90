//! Tests of standby pools that the production engine keeps, against models on virtual time.
//!
//! Not here: the planner's decisions (`core::pool`), or worlds drawn from seeds
//! (`bullpen_sim::kernel`).

pub(crate) mod calls;
pub(crate) mod converging;
pub(crate) mod crashes;
pub(crate) mod defects;
pub(crate) mod hostile;
pub(crate) mod keepers;
mod leaving;
mod lifetimes;
pub(crate) mod many;
pub(crate) mod replacing;
pub(crate) mod rounds;
#[path = "../side_by_side/mod.rs"]
pub(crate) mod side_by_side;
pub(crate) mod troubles;
mod unreadable;

use std::time::Duration;

use bullpen_sim::pool_world::PoolWorld;

const MINUTE: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(15 * 60);

/// A pool `ci` with these schedule entries, other keys and extensions. No hot machine expires
/// during the test.
fn ci(schedule: &str, keys: &str, extensions: &str) -> String {
    format!(
        "
runners:
  large: {{cpu: 2, ram: 4}}
pools:
  ci:
    runner: large
    schedule: [{schedule}]
    {keys}
x-bullpen:
  pools:
    ci: {{hot-lifetime: 16h{extensions}}}
"
    )
}

/// A pool `ci` of two hot machines and one stopped machine.
fn two_and_one() -> String {
    ci("{name: always, hot: 2, stopped: 1}", "", "")
}

/// A keeper fills the pool to these numbers of hot and stopped machines, until its plan is empty.
async fn fill(sim: &PoolWorld, hot: usize, stopped: usize) {
    fill_as(sim, "first", hot, stopped).await;
}

async fn fill_as(sim: &PoolWorld, name: &str, hot: usize, stopped: usize) {
    let full = async || sim.ready("ci").await == (hot, stopped) && sim.has_converged().await;
    let filled = sim.keep(name, LONG, full).await;
    assert!(filled, "{:?} {:?}", sim.checker.verdict(), sim.look().await);
}

async fn end(sim: &PoolWorld) {
    sim.end().await.unwrap_or_else(|why| panic!("{why}"));
}
