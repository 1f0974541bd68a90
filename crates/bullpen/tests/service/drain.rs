//! Processes that drain, and the next process, which continues.
//!
//! Not here: processes that are killed (`killed`).

use bullpen_core::job::{Conclusion as Concluded, End};
use bullpen_github::stand_in::protocol::Conclusion;
use rustix::process::Signal;

use crate::waiting::until;
use crate::world::{HASTY, World};

/// Jobs run on while no process serves, and the next process gives their machines back.
#[tokio::test]
async fn jobs_outlive_the_service_and_the_next_one_settles_them() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let world = World::with(HASTY).await;
        let mut served = world.serve().await;
        let script = world.gated("go");
        let jobs: Vec<u64> = (0..3).map(|_| world.job("bullpen/runner=small", &script)).collect();
        for job in &jobs {
            world.started(*job).await;
        }
        world.github.webhooks_sent().await;
        assert!(!served.process.is_over());
        served.process.signal(signal);
        served.process.ends().await.exits(code);
        // No process hears of it.
        world.open("go");
        for job in &jobs {
            assert_eq!(world.over(*job).await.conclusion, Some(Conclusion::Success));
        }
        let unheard = world.job("bullpen/runner=small", "true");
        world.github.webhooks_sent().await;
        let _served = world.serve().await;
        world.over(unheard).await;
        for job in jobs.into_iter().chain([unheard]) {
            assert_eq!(world.settled(job).await, End::Completed(Concluded::new("success")));
        }
        world.quiet().await;
    }
}

/// A process drains with everything half done: it finishes attempts or hands them back, and the
/// next process loses no job.
#[tokio::test]
async fn attempts_under_way_are_finished_or_handed_back() {
    let world = World::with(HASTY).await;
    let served = world.serve().await;
    let jobs: Vec<u64> = (0..8).map(|_| world.job("bullpen/runner=small", "true")).collect();
    until("first row", async || world.row(jobs[0]).await).await;
    served.process.signal(Signal::TERM);
    let ran = served.process.ends().await;
    ran.exits(143);
    let _served = world.serve().await;
    for job in jobs {
        assert_eq!(world.over(job).await.conclusion, Some(Conclusion::Success), "{}", ran.talk);
        assert_eq!(world.settled(job).await, End::Completed(Concluded::new("success")));
    }
    world.quiet().await;
}
