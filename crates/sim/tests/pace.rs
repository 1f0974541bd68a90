//! Calls to the cloud that wait for their turn: a stop is sent in time or not at all, and a service's
//! processes share what there is, whoever comes and goes.
//!
//! Not here: how tokens are counted (`core::rates`), or that nobody asks too often, which every
//! simulation looks at.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use bullpen_core::class::Usage;
use bullpen_core::ids::{InstanceId, StopOp};
use bullpen_core::instance::Record;
use bullpen_core::instance::standby::StandbyStatus;
use bullpen_core::ports::{Clock, Fault, Ledger, MachineState, Ports, StopOrder, Tag, Tags};
use bullpen_core::rates::Rates;
use bullpen_core::replicas::COLLECTION;
use bullpen_engine::{Stack, replicas};
use bullpen_sim::checker::Checker;
use bullpen_sim::clock::{on_virtual_time, pass};
use bullpen_sim::stage;
use bullpen_sim::wire::{Planned, Trouble, Weather, Wire};
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

/// A process of a service that starts a machine again and again, as often as it may.
struct Replica {
    wire: Wire,
    stack: Stack<SimPorts>,
}

impl Replica {
    fn new(world: &World, name: &str) -> Self {
        let (wire, stack) = world.process(name);
        Self { wire, stack }
    }

    /// Until it dies.
    async fn serve(&self, machine: &InstanceId) -> Infallible {
        let busy = async {
            loop {
                if self.stack.fleet().start(std::slice::from_ref(machine)).await.is_err() {
                    pass(Duration::from_millis(100)).await;
                }
            }
        };
        tokio::select! {
            biased;
            () = self.wire.died() => pending().await,
            never = replicas::run(&self.stack) => match never {},
            never = busy => never,
        }
    }

    /// From now on its ledger does not answer.
    fn lose_its_ledger(&self) {
        let made = self.wire.calls().get("ledger").copied().unwrap_or_default();
        for call in made + 1..=made + 100 {
            let trouble = Trouble::Refuse(Fault::unavailable("no answer"));
            self.wire.plan(Planned { port: "ledger".to_owned(), call, trouble });
        }
    }

    fn calls(&self) -> u64 {
        self.wire.calls().get("fleet").copied().unwrap_or_default()
    }
}

/// How many calls each of them makes in a minute, while these live.
async fn in_a_minute(
    replicas: &[&Replica],
    life: &mut (impl Future<Output = Infallible> + Unpin),
) -> Vec<u64> {
    let before: Vec<u64> = replicas.iter().map(|replica| replica.calls()).collect();
    live_for(Duration::from_secs(60), life).await;
    replicas.iter().zip(before).map(|(replica, before)| replica.calls() - before).collect()
}

async fn live_for(time: Duration, life: &mut (impl Future<Output = Infallible> + Unpin)) {
    tokio::select! {
        biased;
        () = pass(time) => {}
        never = life => match never {},
    }
}

/// Whether each is as many as a share of so many thousandths of two a second.
fn are_shares(calls: &[u64], permille: &[u64]) -> bool {
    let is_share = |(calls, permille): (&u64, &u64)| (permille * 120 / 1_000).abs_diff(*calls) <= 2;
    calls.len() == permille.len() && calls.iter().zip(permille).all(is_share)
}

#[test]
fn processes_of_a_service_share_what_a_command_leaves_whoever_comes_and_goes() {
    on_virtual_time(async {
        let world = stage::calm(1, 10).await;
        let checker = Checker::watch(&world, false);
        let machine = stage::idle(&world, Usage::OnDemand, 1).await.remove(0).id;
        let [one, two, three] = ["one", "two", "three"].map(|name| Replica::new(&world, name));
        let limits = &world.limits;
        let over = limits.pool_lease + Duration::from_secs(30);
        let both = async { tokio::join!(one.serve(&machine), two.serve(&machine)).0 };
        let mut life = Box::pin(both);
        let calls = in_a_minute(&[&one, &two], &mut life).await;
        assert!(are_shares(&calls, &[100, 100]), "nobody has counted them yet: {calls:?}");
        live_for(over, &mut life).await;
        let calls = in_a_minute(&[&one, &two], &mut life).await;
        assert!(are_shares(&calls, &[450, 450]), "{calls:?}");
        let all = async { tokio::join!(life, three.serve(&machine)).0 };
        let mut life = Box::pin(all);
        live_for(limits.pool_lease_renew, &mut life).await;
        let calls = in_a_minute(&[&one, &two, &three], &mut life).await;
        assert!(are_shares(&calls, &[300, 300, 100]), "the third has just come: {calls:?}");
        live_for(over.saturating_sub(Duration::from_secs(60)), &mut life).await;
        let calls = in_a_minute(&[&one, &two, &three], &mut life).await;
        assert!(are_shares(&calls, &[300, 300, 300]), "{calls:?}");
        one.wire.kill();
        let calls = in_a_minute(&[&one, &two, &three], &mut life).await;
        assert!(are_shares(&calls, &[0, 300, 300]), "nobody knows yet: {calls:?}");
        live_for(over.saturating_sub(Duration::from_secs(60)) + limits.pool_lease_renew, &mut life)
            .await;
        let calls = in_a_minute(&[&one, &two, &three], &mut life).await;
        assert!(are_shares(&calls, &[0, 450, 450]), "{calls:?}");
        drop(life);
        replicas::leave(&two.stack).await;
        let mut life = Box::pin(three.serve(&machine));
        live_for(limits.pool_lease_renew, &mut life).await;
        let calls = in_a_minute(&[&two, &three], &mut life).await;
        assert!(are_shares(&calls, &[0, 900]), "whoever leaves is not waited for: {calls:?}");
        live_for(limits.pool_lease * 10, &mut life).await;
        let entries = world.outside.ledger().documents(COLLECTION).await.expect("calm");
        assert_eq!(entries.len(), 1, "the dead are forgotten: {entries:?}");
        assert_eq!(checker.verdict(), None);
        assert_eq!(world.counts().happened.get("cloud's bucket empty"), None);
    });
}

/// However much is asked of the cloud: a listing and a write each renewal, and nothing where the cloud
/// can be asked as often as one likes.
#[test]
fn being_counted_costs_two_calls_a_renewal() {
    for (rates, rounds) in [(Rates::ec2(), 31), (Rates::unlimited(), 0)] {
        on_virtual_time(async {
            let world = stage::calm(1, 10).await;
            world.outside.fleet().set_rates(rates);
            let replica = Replica::new(&world, "one");
            let mut life = Box::pin(replicas::run(&replica.stack));
            live_for(world.limits.pool_lease_renew * 30 + Duration::from_secs(10), &mut life).await;
            let (calls, writes) = (replica.wire.calls(), replica.wire.writes());
            assert_eq!(calls.get("ledger").copied().unwrap_or_default(), 2 * rounds);
            assert_eq!(writes.get("ledger").copied().unwrap_or_default(), rounds);
            assert_eq!(calls.len(), usize::from(rounds > 0), "{calls:?}");
        });
    }
}

/// A process that its ledger does not answer takes no more than one that nobody knows of.
#[test]
fn a_process_without_a_ledger_is_an_outsider() {
    on_virtual_time(async {
        let world = stage::calm(1, 10).await;
        let checker = Checker::watch(&world, false);
        let machine = stage::idle(&world, Usage::OnDemand, 1).await.remove(0).id;
        let [one, two] = ["one", "two"].map(|name| Replica::new(&world, name));
        let both = async { tokio::join!(one.serve(&machine), two.serve(&machine)).0 };
        let mut life = Box::pin(both);
        live_for(Duration::from_secs(180), &mut life).await;
        one.lose_its_ledger();
        live_for(world.limits.pool_lease, &mut life).await;
        let calls = in_a_minute(&[&one, &two], &mut life).await;
        assert!(calls[0] <= 13 && calls[1] >= 53, "{calls:?}");
        live_for(Duration::from_secs(60), &mut life).await;
        let calls = in_a_minute(&[&one, &two], &mut life).await;
        assert!(are_shares(&calls, &[100, 900]), "{calls:?}");
        assert_eq!(checker.verdict(), None);
        assert_eq!(world.counts().happened.get("cloud's bucket empty"), None);
    });
}
