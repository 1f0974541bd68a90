//! Turns of calls to the cloud: a process sends a stop in time or not at all, and the replicas of a
//! service share the rate while replicas come and go.
//!
//! Not here: counting tokens (`core::rates`), or the rule that no process exceeds the rate
//! (`bullpen_sim::checker`, in every simulation).

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use bullpen_core::class::Usage;
use bullpen_core::ids::{InstanceId, StopOp};
use bullpen_core::instance::Record;
use bullpen_core::instance::standby::StandbyStatus;
use bullpen_core::ports::{Clock, Fault, Ledger, MachineState, Ports, StopOrder, Tag, Tags};
use bullpen_core::rates::{FleetCall, Rates};
use bullpen_core::replicas::COLLECTION;
use bullpen_engine::{Stack, replicas};
use bullpen_sim::calm_world;
use bullpen_sim::checker::Checker;
use bullpen_sim::clock::{on_virtual_time, pass};
use bullpen_sim::contract::fleet::any_machines;
use bullpen_sim::model::fleet::Listings;
use bullpen_sim::wire::{Planned, Trouble, Weather, Wire};
use bullpen_sim::world::{SimPorts, World};
use futures_util::future::join_all;

/// The stop calls that a command may make at once.
const BURST: usize = 5;
/// The time between two further turns.
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
        let world = calm_world::new(1, 10).await;
        let machines = calm_world::add_idle(&world, Usage::OnDemand, 7).await;
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
        assert_eq!(stack.fleet().stop(later, past).await, Err(Fault::Throttled), "it has a turn");
        assert_eq!(wire.counts().calls, calls, "the process sent a call");
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
        let world = calm_world::new(1, 10).await;
        let machines = calm_world::add_idle(&world, Usage::OnDemand, 1).await;
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

/// The launch's turn, and the turns of two more, 5 and 10 s later.
#[test]
fn turns_that_pass_while_a_process_stands_still_are_taken_again() {
    on_virtual_time(async {
        let world = calm_world::new(1, 10).await;
        let (wire, stack) = world.process("provision");
        let launch = async |number: u32| {
            let request = any_machines(&format!("launch-{number}"), 1);
            stack.fleet().launch(&request).await.expect("the world is calm")
        };
        let launches = async |_: &Stack<SimPorts>| join_all((0..3).map(launch)).await;
        let so_far = || world.outside.fleet().asked(FleetCall::Launch).len();
        let looks = async {
            pass(Duration::from_secs(1)).await;
            wire.pause(Duration::from_secs(60));
            let mut seen = vec![so_far()];
            for wait in [61, 3, 3] {
                pass(Duration::from_secs(wait)).await;
                seen.push(so_far());
            }
            seen
        };
        let (_, seen) = tokio::join!(world.run_on(&wire, &stack, launches), looks);
        assert_eq!(seen, [1, 2, 2, 3], "launches after 1, 62, 65 and 68 s");
    });
}

#[test]
fn tags_have_turns_of_their_own() {
    on_virtual_time(async {
        let world = calm_world::new(1, 10).await;
        let machines = calm_world::add_idle(&world, Usage::OnDemand, 2).await;
        let (_, stack) = world.process("pools");
        let ids: Vec<InstanceId> = machines.iter().map(|record| record.id.clone()).collect();
        let began = stack.ports.clock().monotonic();
        for _ in 0..=BURST {
            let tag = Tag::Standby(StandbyStatus::Ready);
            assert_eq!(stack.fleet().tag(&ids, tag).await, Ok(()));
        }
        let waited = stack.ports.clock().monotonic().saturating_sub(began);
        assert!(waited >= STEP && waited < 2 * STEP, "one call more than the burst: {waited:?}");
        let shown = Tags { standby: Some(StandbyStatus::Ready), job_started: false };
        let described = stack.fleet().describe(&ids).await.expect("the world is calm").items;
        assert!(described.iter().all(|machine| machine.tags == shown), "{described:?}");
    });
}

/// The cloud counts every page of a list as a call.
#[test]
fn each_page_of_a_list_waits_for_its_turn() {
    const AT_ONCE: u64 = 10;
    const A_SECOND: u64 = 2;
    on_virtual_time(async {
        let world = calm_world::new(1, 20).await;
        let machines = calm_world::add_idle(&world, Usage::OnDemand, 16).await;
        let fleet = world.outside.fleet();
        fleet.set_listings(Listings { page: 1, ..Listings::TRUE }, 1);
        let (_, stack) = world.process("upkeep");
        let (began, before) =
            (stack.ports.clock().monotonic(), fleet.asked(FleetCall::Describe).len());
        let listed = stack.fleet().list().await.expect("calm").items;
        assert_eq!(listed.len(), machines.len());
        assert_eq!(fleet.asked(FleetCall::Describe).len() - before, machines.len());
        let waited = stack.ports.clock().monotonic().saturating_sub(began);
        assert!(waited >= Duration::from_secs((16 - AT_ONCE) / A_SECOND), "{waited:?}");
    });
}

/// A replica of a service that starts a machine as often as its rate allows.
struct Replica {
    wire: Wire,
    stack: Stack<SimPorts>,
}

impl Replica {
    fn new(world: &World, name: &str) -> Self {
        let (wire, stack) = world.process(name);
        Self { wire, stack }
    }

    /// Starts the machine until the replica dies; never returns.
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

    /// The ledger refuses the replica's next hundred calls.
    fn lose_its_ledger(&self) {
        let calls = self.wire.calls().get("ledger").copied().unwrap_or_default();
        for call in calls + 1..=calls + 100 {
            let trouble = Trouble::Refuse(Fault::unavailable("no answer"));
            self.wire.plan(Planned { port: "ledger".to_owned(), call, trouble });
        }
    }

    fn calls(&self) -> u64 {
        self.wire.calls().get("fleet").copied().unwrap_or_default()
    }
}

/// The number of calls that each replica makes in the next minute.
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

/// Whether each replica made its share, in thousandths, of the 120 calls a minute.
fn are_shares(calls: &[u64], permille: &[u64]) -> bool {
    let is_share = |(calls, permille): (&u64, &u64)| (permille * 120 / 1_000).abs_diff(*calls) <= 2;
    calls.len() == permille.len() && calls.iter().zip(permille).all(is_share)
}

#[test]
fn replicas_share_the_rate_that_a_command_leaves_while_they_come_and_go() {
    on_virtual_time(async {
        let world = calm_world::new(1, 10).await;
        let checker = Checker::watch(&world, false);
        let machine = calm_world::add_idle(&world, Usage::OnDemand, 1).await.remove(0).id;
        let [one, two, three] = ["one", "two", "three"].map(|name| Replica::new(&world, name));
        let limits = &world.limits;
        let over = limits.pool_lease + Duration::from_secs(30);
        let both = async { tokio::join!(one.serve(&machine), two.serve(&machine)).0 };
        let mut life = Box::pin(both);
        let calls = in_a_minute(&[&one, &two], &mut life).await;
        assert!(are_shares(&calls, &[100, 100]), "no replica has counted them yet: {calls:?}");
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
        assert!(are_shares(&calls, &[0, 300, 300]), "its entry has not expired yet: {calls:?}");
        live_for(over.saturating_sub(Duration::from_secs(60)) + limits.pool_lease_renew, &mut life)
            .await;
        let calls = in_a_minute(&[&one, &two, &three], &mut life).await;
        assert!(are_shares(&calls, &[0, 450, 450]), "{calls:?}");
        drop(life);
        replicas::leave(&two.stack).await;
        let mut life = Box::pin(three.serve(&machine));
        live_for(limits.pool_lease_renew, &mut life).await;
        let calls = in_a_minute(&[&two, &three], &mut life).await;
        assert!(
            are_shares(&calls, &[0, 900]),
            "a replica that leaves frees its share at once: {calls:?}"
        );
        live_for(limits.pool_lease * 10, &mut life).await;
        let entries = world.outside.ledger().documents(COLLECTION).await.expect("calm");
        assert_eq!(entries.items.len(), 1, "entries of dead replicas are left: {entries:?}");
        assert_eq!(checker.verdict(), None);
        assert_eq!(world.counts().happened.get("cloud's bucket empty"), None);
    });
}

/// A replica costs one listing and one write at each renewal, and none if the cloud has no rate
/// limit.
#[test]
fn counting_replicas_costs_two_calls_a_renewal() {
    for (rates, rounds) in [(Rates::ec2(), 31), (Rates::unlimited(), 0)] {
        on_virtual_time(async {
            let world = calm_world::new(1, 10).await;
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

/// A replica whose ledger does not answer takes only the share of a process that no replica counts.
#[test]
fn a_replica_without_a_ledger_takes_the_share_of_an_uncounted_process() {
    on_virtual_time(async {
        let world = calm_world::new(1, 10).await;
        let checker = Checker::watch(&world, false);
        let machine = calm_world::add_idle(&world, Usage::OnDemand, 1).await.remove(0).id;
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
