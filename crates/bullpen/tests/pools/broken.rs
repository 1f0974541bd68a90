//! Broken pools beside a good one.
//!
//! Not here: all the errors of a file (`bullpen_core::config`).

use bullpen_core::job::JobState;
use bullpen_github::stand_in::protocol::Conclusion;

use crate::stage::Stage;
use crate::waiting::until;

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
    let stage = Stage::keeping(BROKEN).await;
    let line = format!("lint {}", stage.path("runs-on.yml").display());
    let told = stage.run(&line).await;
    for word in SAID {
        assert!(told.exits(1).data.contains(word), "{word}: {} {}", told.data, told.talk);
    }
    let served = stage.serve().await;
    let waits = stage.job("bullpen/pool=unknown", "true");
    stage.reaches("good", 1, 0).await;
    stage.reaches("never", 0, 1).await;
    let talk = served.process.talk().replace("\\\"", "\"");
    for word in SAID {
        assert!(talk.contains(word), "{word}: {talk}");
    }
    let row = until("row", async || stage.row(waits).await).await;
    assert!(matches!(row.state, JobState::Waiting { .. } | JobState::Dormant), "{row:?}");
    for pool in ["unknown", "dreams", "high"] {
        stage.reaches(pool, 0, 0).await;
    }
    stage.configure(&BROKEN.replace("smal,", "small,"));
    assert_eq!(stage.over(waits).await.conclusion, Some(Conclusion::Success));
    stage.settled(waits).await;
    stage.reaches("unknown", 1, 0).await;
    assert_eq!(stage.quiet().await.len(), 3);
}
