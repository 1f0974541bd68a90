//! Fifty jobs at once against fifty idle machines with real agents.
//! Not here: five hundred jobs, which are simulated (`bullpen-sim`).
#![expect(clippy::print_stdout, reason = "the counts are reported in docs/benchmarks.md")]

use bullpen_github::stand_in::protocol::Conclusion;

use crate::world::World;

const JOBS: usize = 50;

#[tokio::test]
async fn fifty_jobs_take_fifty_idle_machines_and_github_never_refuses() {
    // With the short intervals of other worlds no points would be left to ask whose code ran: two
    // times all jobs within a minute need almost all points for reads.
    let world = World::with(&[("find", "10m"), ("upkeep", "10m")]).await;
    // GitHub's limit, or a stricter one.
    world.github.pull(|levers| levers.points_per_minute = Some(900));
    let _served = world.serve().await;
    run_all(&world, "first").await;
    let idle = world.quiet().await;
    assert_eq!(idle.len(), JOBS, "as many as ran at once");
    let (before, calls) = (world.github.answers(), world.github.calls());
    run_all(&world, "second").await;
    println!("{JOBS} jobs, all warm: {} calls of GitHub", world.github.calls() - calls);
    for ((kind, status), count) in world.github.answers() {
        let new = count - before.get(&(kind.clone(), status)).unwrap_or(&0);
        if new > 0 {
            println!("  {kind}: {status} {new} times");
        }
        assert_ne!(status, 403, "{kind}");
        assert_ne!(status, 429, "{kind}");
    }
    assert_eq!(world.machines().len(), JOBS, "nothing was launched for them");
    assert_eq!(world.quiet().await, idle, "and all of them came back");
    assert_eq!(world.github.limited(), 0);
}

/// Runs all jobs at once, so that no machine serves two of them.
async fn run_all(world: &World, gate: &str) {
    let script = world.gated(gate);
    let job = |number| world.job(&format!("bullpen/runner=small/tag={gate}-{number}"), &script);
    let jobs: Vec<u64> = (0..JOBS).map(job).collect();
    for job in &jobs {
        world.started(*job).await;
    }
    world.open(gate);
    for job in jobs {
        assert_eq!(world.over(job).await.conclusion, Some(Conclusion::Success));
        world.settled(job).await;
    }
}
