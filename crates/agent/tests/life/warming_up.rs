//! Tests of the warm-up under virtual time: its order, its frequencies, and its failures.

use crate::stage::{Stage, secs};
use bullpen_agent::SelfEndReason;
use bullpen_agent::warm_up::{Frequency, Step};
use bullpen_core::limits::Limits;
use bullpen_core::mailbox::{AgentPhase, SignalKind};
use bullpen_sim::clock::pass;

fn step(name: &str, program: &str, often: Frequency) -> Step {
    let (name, program) = (name.to_owned(), program.into());
    Step { name, program, arguments: Vec::new(), often }
}

fn usual() -> Vec<Step> {
    vec![
        step("preinstall", "", Frequency::OncePerMachine),
        step("prerun", "", Frequency::EachBoot),
        step("pre-runner", "", Frequency::EachBoot),
    ]
}

#[tokio::test(start_paused = true)]
async fn steps_run_in_order_once_per_boot_and_preinstall_once_per_machine() {
    let mut stage = Stage::new();
    stage.steps = usual();
    stage.during(stage.signal(SignalKind::WarmUpOk, 0)).await;
    assert_eq!(*stage.machine.ran.lock().unwrap(), ["preinstall", "prerun", "pre-runner"]);
    stage.during(pass(secs(30))).await;
    assert_eq!(stage.machine.ran.lock().unwrap().len(), 3, "the same boot is warm already");
    stage.boot = String::from("boot-2");
    stage.during(pass(secs(30))).await;
    assert_eq!(stage.machine.ran.lock().unwrap()[3..], ["prerun", "pre-runner"]);
}

#[tokio::test(start_paused = true)]
async fn d59_a_failing_script_is_reported_with_its_tail_and_ends_the_machine() {
    let mut stage = Stage::new();
    stage.steps = usual();
    stage.steps.insert(2, step("broken", "fails", Frequency::EachBoot));
    let (agent, _interrupter) = stage.agent();
    assert_eq!(agent.await, SelfEndReason::WarmUpFailed);
    let failed = stage.signal(SignalKind::WarmUpFailed, 0).await;
    assert_eq!(failed.detail, "broken: exit status: 3\nno such package");
    assert!(!stage.has(SignalKind::WarmUpOk, 0));
    assert_eq!(*stage.machine.ran.lock().unwrap(), ["preinstall", "prerun", "broken"]);
    assert!(!stage.machine.shortened.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_hanging_script_is_given_up_while_the_agent_beats() {
    let mut stage = Stage::new();
    stage.steps = vec![step("endless", "hangs", Frequency::EachBoot)];
    let (agent, _interrupter) = stage.agent();
    tokio::pin!(agent);
    let watch = async {
        pass(Limits::DEFAULT.warm_up.saturating_sub(secs(10))).await;
        let beat = stage.beat().unwrap();
        assert_eq!(beat.phase, AgentPhase::WarmingUp);
        assert!(stage.now().since(beat.at) <= Limits::DEFAULT.heartbeat + secs(1));
    };
    tokio::select! {
        biased;
        ending = &mut agent => panic!("it ended early: {ending:?}"),
        () = watch => {}
    }
    assert_eq!(agent.await, SelfEndReason::WarmUpFailed);
    let failed = stage.signal(SignalKind::WarmUpFailed, 0).await;
    assert_eq!(failed.detail, "endless: did not end within 600 s\nstill waiting");
}
