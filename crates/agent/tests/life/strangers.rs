//! Tests of a job of another run on a listener that serves one run only.
//!
//! Not here: the hook that reports it (`runner::hook`).

use std::time::Duration;

use bullpen_agent::runner::Observed;
use bullpen_core::ids::Repository;
use bullpen_core::mailbox::{Assignment, Order, SignalKind, WithdrawalMode};
use bullpen_core::request::stranger::{OwnRun, RanJob};
use bullpen_sim::clock::pass;

use crate::stage::Stage;

const A_WHILE: Duration = Duration::from_secs(30);

fn of_run(run: u64) -> RanJob {
    RanJob {
        repository: Repository::new("acme/app"),
        run,
        attempt: 1,
        job: String::from("test"),
        event: String::from("push"),
    }
}

fn of_run_one(stage: &Stage, generation: u64) -> Order {
    let own_run = Some(OwnRun { repository: None, run: Some(1) });
    Order::Assigned(Assignment { own_run, ..stage.assignment(generation) })
}

#[tokio::test(start_paused = true)]
async fn a_strangers_job_is_killed_and_no_removal_is_acknowledged_after_it() {
    let stage = Stage::new();
    stage
        .during(async {
            stage.post(of_run_one(&stage, 1)).await;
            stage.signal(SignalKind::Registered, 1).await;
            stage.runner().starts_job("test");
            stage.runner().sees(Observed::JobOf(of_run(1)));
            pass(A_WHILE).await;
            assert_eq!(stage.signal(SignalKind::JobStarted, 1).await.ran, Some(of_run(1)));
            stage.runner().finishes_job("test");
            stage.runner().starts_job("test");
            stage.runner().sees(Observed::JobOf(of_run(2)));
            stage.signal(SignalKind::ListenerEnded, 1).await;
            assert_eq!(stage.signal(SignalKind::JobStarted, 1).await.ran, Some(of_run(2)));
            stage.post(of_run_one(&stage, 2)).await;
            stage.signal(SignalKind::RegistrationFailed, 2).await;
            stage.withdraw(3, WithdrawalMode::Stop).await;
            pass(A_WHILE).await;
            assert!(
                !stage.has(SignalKind::Removed, 3),
                "a control plane could use the machine again"
            );
            assert_eq!(stage.signal(SignalKind::JobStarted, 2).await.ran, Some(of_run(2)));
        })
        .await;
    assert_eq!(stage.runner().did(), ["registered 1", "listens 1", "killed"]);
}
