//! Calls to the cloud that wait for their turn: a stop is sent in time or not at all.
//!
//! Not here: how tokens are counted (`core::rates`), or that nobody asks too often, which every
//! simulation looks at.

use std::time::Duration;

use bullpen_core::class::Usage;
use bullpen_core::ids::{InstanceId, StopOp};
use bullpen_core::instance::Record;
use bullpen_core::instance::standby::StandbyStatus;
use bullpen_core::ports::{Clock, Fault, MachineState, Ports, StopOrder, Tag, Tags};
use bullpen_engine::Stack;
use bullpen_sim::clock::{on_virtual_time, pass};
use bullpen_sim::stage;
use bullpen_sim::wire::Weather;
use bullpen_sim::world::{SimPorts, World};

/// What a command may stop at once.
const BURST: usize = 5;
/// How long after that each further turn is.
const STEP: Duration = Duration::from_secs(2);

fn orders(records: &[Record], stack: &Stack<SimPorts>) -> Vec<StopOrder> {
    let until = stack.now().after(stack.limits.stop_fence);
    let order = |record: &Record| {
        let op = StopOp::new(format!("stop-{}", record.id));
        StopOrder { id: record.id.clone(), op, until }
    };
    records.iter().map(order).collect()
}

fn in_time(stack: &Stack<SimPorts>, within: Duration) -> Duration {
    stack.ports.clock().monotonic() + within
}

fn state(world: &World, id: &InstanceId) -> MachineState {
    let all = world.outside.fleet().snapshot();
    all.into_iter().find(|machine| machine.id == *id).expect("it was launched").state
}

#[test]
fn a_stop_whose_turn_is_too_late_is_not_sent() {
    on_virtual_time(async {
        let world = stage::calm(1, 10).await;
        let machines = stage::idle(&world, Usage::OnDemand, 7).await;
        let (wire, stack) = world.process("pools");
        let orders = orders(&machines, &stack);
        let (at_once, later) = orders.split_at(BURST);
        for order in at_once {
            let sent = stack.fleet().stop(std::slice::from_ref(order), in_time(&stack, STEP)).await;
            assert_eq!(sent, Ok(()));
        }
        let calls = wire.counts().calls;
        let hasty = in_time(&stack, STEP / 2);
        assert_eq!(stack.fleet().stop(later, hasty).await, Err(Fault::Throttled));
        let past = stack.ports.clock().monotonic().saturating_sub(Duration::from_millis(1));
        assert_eq!(stack.fleet().stop(later, past).await, Err(Fault::Throttled));
        pass(Duration::from_secs(60)).await;
        assert_eq!(stack.fleet().stop(later, past).await, Err(Fault::Throttled), "had its turn");
        assert_eq!(wire.counts().calls, calls, "nothing was sent");
        for (number, order) in orders.iter().enumerate() {
            let is_stopped = state(&world, &order.id) == MachineState::Stopped;
            assert_eq!(is_stopped, number < BURST, "{order:?}");
        }
        assert_eq!(stack.fleet().stop(later, in_time(&stack, STEP)).await, Ok(()));
        pass(Duration::from_secs(60)).await;
        assert_eq!(state(&world, &later[0].id), MachineState::Stopped);
    });
}

#[test]
fn a_stop_without_an_answer_is_given_up_in_its_time() {
    on_virtual_time(async {
        let world = stage::calm(1, 10).await;
        let machines = stage::idle(&world, Usage::OnDemand, 1).await;
        let (wire, stack) = world.process("pools");
        wire.set_weather(Weather { latency_max: Duration::from_secs(100_000), ..wire.weather() });
        let began = stack.ports.clock().monotonic();
        let order = orders(&machines, &stack);
        let answer = stack.fleet().stop(&order, in_time(&stack, STEP)).await;
        assert!(matches!(answer, Err(Fault::Unavailable(_))), "{answer:?}");
        let took = stack.ports.clock().monotonic().saturating_sub(began);
        assert_eq!(took, stack.limits.stop_call_timeout);
    });
}

#[test]
fn tags_have_turns_of_their_own() {
    on_virtual_time(async {
        let world = stage::calm(1, 10).await;
        let machines = stage::idle(&world, Usage::OnDemand, 2).await;
        let (_, stack) = world.process("pools");
        let ids: Vec<InstanceId> = machines.iter().map(|record| record.id.clone()).collect();
        let began = stack.ports.clock().monotonic();
        for _ in 0..=BURST {
            let tag = Tag::Standby(StandbyStatus::Ready);
            assert_eq!(stack.fleet().tag(&ids, tag).await, Ok(()));
        }
        let waited = stack.ports.clock().monotonic().saturating_sub(began);
        assert!(waited >= STEP && waited < 2 * STEP, "one more than could be had: {waited:?}");
        let shown = Tags { standby: Some(StandbyStatus::Ready), job_started: false };
        let described = stack.fleet().describe(&ids).await.expect("the stage is calm");
        assert!(described.iter().all(|machine| machine.tags == shown), "{described:?}");
    });
}
