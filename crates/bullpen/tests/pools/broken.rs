//! Broken pools beside a good one.
//!
//! Not here: all the errors of a file (`bullpen_core::config`).

use bullpen_core::job::JobState;
use bullpen_github::stand_in::protocol::Conclusion;

use crate::waiting::until;
use crate::world::World;

const BROKEN: &str = "\
runners:
  small: {cpu: 2, ram: 4, family: c6i}
  windows: {cpu: 2, ram: 4, family: c6i, image: windows22-full-x64}
pools:
  good: {runner: small, schedule: [{name: default, hot: 1, stopped: 0}]}
  unknown: {runner: smal, schedule: [{name: default, hot: 1, stopped: 0}]}
  dreams: {runner: windows, schedule: [{name: default, hot: 1, stopped: 0}]}
  high: {runner: small, schedule: [{name: default, hot: 3, stopped: 0}]}
  never:
    runner: small
    schedule: [{name: first, hot: 9, stopped: 9}, {name: default, hot: 0, stopped: 1}]
x-bullpen:
  pools:
    high: {max: 2}
";

/// Their errors, as the command and the service report them.
const SAID: [&str; 4] = [
    "did you mean `small`?",
    "boots Windows, and pools are Linux",
    "more than the pool's `max`, 2",
    "\"first\" never applies",
];

/// The command and the service name each broken pool, the good ones reach their target, and a job
/// of a broken pool waits until the file is corrected.
#[tokio::test]
async fn broken_pools_are_named_and_the_good_ones_are_kept() {
    let world = World::keeping(BROKEN).await;
    let line = format!("lint {}", world.path("runs-on.yml").display());
    let told = world.run(&line).await;
    for word in SAID {
        assert!(told.exits(1).data.contains(word), "{word}: {} {}", told.data, told.talk);
    }
    let served = world.serve().await;
    let waits = world.job("bullpen/pool=unknown", "true");
    world.reaches("good", 1, 0).await;
    world.reaches("never", 0, 1).await;
    let talk = served.process.talk().replace("\\\"", "\"");
    for word in SAID {
        assert!(talk.contains(word), "{word}: {talk}");
    }
    let row = until("row", async || world.row(waits).await).await;
    assert!(matches!(row.state, JobState::Waiting { .. } | JobState::Dormant), "{row:?}");
    for pool in ["unknown", "dreams", "high"] {
        world.reaches(pool, 0, 0).await;
    }
    world.configure(&BROKEN.replace("smal,", "small,"));
    assert_eq!(world.over(waits).await.conclusion, Some(Conclusion::Success));
    world.settled(waits).await;
    world.reaches("unknown", 1, 0).await;
    assert_eq!(world.quiet().await.len(), 3);
}
