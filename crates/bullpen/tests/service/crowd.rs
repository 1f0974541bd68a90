//! Fifty jobs at once against fifty idle machines with real agents.
//! Not here: five hundred jobs, which are simulated (`bullpen-sim`).
#![expect(clippy::print_stdout, reason = "the counts are reported in docs/benchmarks.md")]

use bullpen_github::stand_in::protocol::Conclusion;

use crate::stage::Stage;

const CROWD: usize = 50;

#[tokio::test]
async fn fifty_jobs_take_fifty_idle_machines_and_github_never_refuses() {
    // With the short intervals of other worlds no points would be left to ask whose code ran: two
    // crowds within a minute need almost all points for reads.
    let stage = Stage::with(&[("find", "10m"), ("upkeep", "10m")]).await;
    // GitHub's limit, or a stricter one.
    stage.github.pull(|levers| levers.points_per_minute = Some(900));
    let _served = stage.serve().await;
    crowd(&stage, "first").await;
    let idle = stage.quiet().await;
    assert_eq!(idle.len(), CROWD, "as many as ran at once");
    let (before, calls) = (stage.github.answers(), stage.github.calls());
    crowd(&stage, "second").await;
    println!("{CROWD} jobs, all warm: {} calls of GitHub", stage.github.calls() - calls);
    for ((kind, status), count) in stage.github.answers() {
        let new = count - before.get(&(kind.clone(), status)).unwrap_or(&0);
        if new > 0 {
            println!("  {kind}: {status} {new} times");
        }
        assert_ne!(status, 403, "{kind}");
        assert_ne!(status, 429, "{kind}");
    }
    assert_eq!(stage.machines().len(), CROWD, "nothing was launched for them");
    assert_eq!(stage.quiet().await, idle, "and all of them came back");
    assert_eq!(stage.github.limited(), 0);
}

/// Runs all jobs at once, so that no machine serves two of them.
async fn crowd(stage: &Stage, gate: &str) {
    let script = stage.gated(gate);
    let job = |number| stage.job(&format!("bullpen/runner=small/tag={gate}-{number}"), &script);
    let jobs: Vec<u64> = (0..CROWD).map(job).collect();
    for job in &jobs {
        stage.started(*job).await;
    }
    stage.open(gate);
    for job in jobs {
        assert_eq!(stage.over(job).await.conclusion, Some(Conclusion::Success));
        stage.settled(job).await;
    }
}
