//! Standby pools kept by the production engine, against models on virtual time.
//!
//! Not here: what a plan says (`core::pool`), or seeds' worlds (`bullpen_sim::kernel`).

pub(crate) mod calls;
pub(crate) mod converging;
pub(crate) mod crashes;
pub(crate) mod hostile;
pub(crate) mod keepers;
mod leaving;
mod lifetimes;
pub(crate) mod replacing;
pub(crate) mod rounds;
#[path = "../side_by_side/mod.rs"]
pub(crate) mod side_by_side;
pub(crate) mod troubles;

use std::time::Duration;

use bullpen_sim::pool_world::PoolWorld;

const MINUTE: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(15 * 60);

/// A pool `ci` with these entries, other keys and extensions. Its hot machines last the whole test.
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

/// Two hot machines and one that is stopped.
fn two_and_one() -> String {
    ci("{name: always, hot: 2, stopped: 1}", "", "")
}

/// A keeper makes the pool what is configured: so many hot and stopped, and nothing left to do.
async fn fill(yard: &PoolWorld, hot: usize, stopped: usize) {
    fill_as(yard, "first", hot, stopped).await;
}

async fn fill_as(yard: &PoolWorld, name: &str, hot: usize, stopped: usize) {
    let full = async || yard.ready("ci").await == (hot, stopped) && yard.has_converged().await;
    let filled = yard.keep(name, LONG, full).await;
    assert!(filled, "{:?} {:?}", yard.checker.verdict(), yard.look().await);
}

async fn end(yard: &PoolWorld) {
    yard.end().await.unwrap_or_else(|why| panic!("{why}"));
}
