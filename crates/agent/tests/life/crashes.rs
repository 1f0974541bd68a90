//! Tests with an agent that dies at any await: the next agent starts nothing twice and forgets
//! nothing.

use bullpen_core::mailbox::{Assignment, Order, SignalKind, WithdrawalMode};
use bullpen_sim::clock::pass;
use bullpen_sim::wire::Wire;

use crate::stage::{Stage, secs};

/// The number of awaits at which the tests let an agent die: more than the tested path has.
const AWAITS: u64 = 60;

/// Runs an agent until it dies at its await number `awaits` from now, or for 20 s; then the machine
/// is ready for the next agent.
async fn doomed(stage: &mut Stage, awaits: u64) {
    stage.wire.die_after(awaits);
    let (agent, _interrupter) = stage.agent();
    tokio::select! {
        biased;
        () = stage.wire.died() => {}
        ending = agent => panic!("it ended: {ending:?}"),
        () = pass(secs(20)) => {}
    }
    stage.wire = Wire::calm();
}

fn listened(stage: &Stage) -> usize {
    stage.runner().did().iter().filter(|did| did.starts_with("listens")).count()
}

#[tokio::test(start_paused = true)]
async fn an_assignment_is_served_once_wherever_an_agent_dies() {
    for awaits in 0..AWAITS {
        let mut stage = Stage::new();
        stage.runner().script().register_takes = secs(1);
        let order = Assignment { register_by: None, ..stage.assignment(1) };
        stage.post(Order::Assigned(order)).await;
        doomed(&mut stage, awaits).await;
        stage.during(stage.signal(SignalKind::Registered, 1)).await;
        assert_eq!(listened(&stage), 1, "died after {awaits} awaits: {:?}", stage.runner().did());
    }
}

#[tokio::test(start_paused = true)]
async fn a_removal_is_acknowledged_wherever_an_agent_dies() {
    for awaits in 0..AWAITS {
        let mut stage = Stage::new();
        stage.assign(1).await;
        stage.during(stage.signal(SignalKind::Registered, 1)).await;
        stage.withdraw(2, WithdrawalMode::Stop).await;
        doomed(&mut stage, awaits).await;
        stage.during(stage.signal(SignalKind::Removed, 2)).await;
        let did = stage.runner().did();
        assert_eq!(listened(&stage), 1, "died after {awaits} awaits: {did:?}");
        assert_eq!(did.last().unwrap(), "cleaned", "died after {awaits} awaits: {did:?}");
    }
}
