//! Processes that drain, and the next process, which continues.
//!
//! Not here: processes that are killed (`killed`).

use bullpen_core::job::{Conclusion as Concluded, End};
use bullpen_github::stand_in::protocol::Conclusion;
use rustix::process::Signal;

use crate::stage::{HASTY, Stage};
use crate::waiting::until;

/// Jobs run on while no process serves, and the next process gives their machines back.
#[tokio::test]
async fn jobs_outlive_the_service_and_the_next_one_settles_them() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let stage = Stage::with(HASTY).await;
        let mut served = stage.serve().await;
        let script = stage.gated("go");
        let jobs: Vec<u64> = (0..3).map(|_| stage.job("bullpen/runner=small", &script)).collect();
        for job in &jobs {
            stage.started(*job).await;
        }
        stage.github.webhooks_sent().await;
        assert!(!served.process.is_over());
        served.process.signal(signal);
        served.process.ends().await.exits(code);
        // No process hears of it.
        stage.open("go");
        for job in &jobs {
            assert_eq!(stage.over(*job).await.conclusion, Some(Conclusion::Success));
        }
        let unheard = stage.job("bullpen/runner=small", "true");
        stage.github.webhooks_sent().await;
        let _served = stage.serve().await;
        stage.over(unheard).await;
        for job in jobs.into_iter().chain([unheard]) {
            assert_eq!(stage.settled(job).await, End::Completed(Concluded::new("success")));
        }
        stage.quiet().await;
    }
}

/// A process drains with everything half done: it finishes attempts or hands them back, and the
/// next process loses no job.
#[tokio::test]
async fn attempts_under_way_are_finished_or_handed_back() {
    let stage = Stage::with(HASTY).await;
    let served = stage.serve().await;
    let jobs: Vec<u64> = (0..8).map(|_| stage.job("bullpen/runner=small", "true")).collect();
    until("first row", async || stage.row(jobs[0]).await).await;
    served.process.signal(Signal::TERM);
    let ran = served.process.ends().await;
    ran.exits(143);
    let _served = stage.serve().await;
    for job in jobs {
        assert_eq!(stage.over(job).await.conclusion, Some(Conclusion::Success), "{}", ran.talk);
        assert_eq!(stage.settled(job).await, End::Completed(Concluded::new("success")));
    }
    stage.quiet().await;
}
