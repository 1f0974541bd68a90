//! The seven steps, each by examples.
//!
//! Not here: rollouts (`rollouts`), or notes (`waiting`).

use super::*;
use crate::instance::EndReason;
use crate::samples::{claimed, created, job_owner, releasing, request_owner, running};

/// A name, the machines, and the planned actions.
type Case<'a> = (&'a str, Vec<PoolMachine>, &'a [&'a str]);

fn check(desired: &DesiredPool, cases: Vec<Case<'_>>) {
    for (name, instances, expected) in cases {
        assert_eq!(planned(instances, desired), expected, "{name}");
    }
}

fn interrupted(instance: PoolMachine) -> PoolMachine {
    PoolMachine { interrupted: true, ..instance }
}

fn with_job(instance: PoolMachine) -> PoolMachine {
    PoolMachine { job_started: true, ..instance }
}

fn of_pool(name: &str, mut instance: PoolMachine) -> PoolMachine {
    instance.record.facts.pool = Some(name.into());
    instance
}

fn tainted(mut instance: PoolMachine) -> PoolMachine {
    instance.record.tainted = true;
    instance
}

#[test]
fn the_safety_filter_comes_first() {
    let gone = |instance| seen_as(MachineState::Gone, instance);
    let protected = [
        ("claimed", standby("i", claimed(job_owner(), Tier::Hot))),
        ("claimed by a request", standby("i", claimed(request_owner(), Tier::Stopped))),
        ("running", standby("i", running(job_owner()))),
        ("releasing", standby("i", releasing(job_owner(), Tier::Hot))),
        ("created for a job", standby("i", created(job_owner()))),
        ("created for another pool", standby("i", created(Owner::Pool("other".into())))),
        ("idle, and a job has started", with_job(hot("i"))),
        ("stopped, and a job has started", with_job(stopped("i"))),
        ("another pool's", of_pool("other", hot("i"))),
    ];
    for (name, instance) in protected {
        for (how, instance) in [
            ("as it is", instance.clone()),
            ("outdated", old(instance.clone())),
            ("gone", gone(instance.clone())),
            ("interrupted", interrupted(instance.clone())),
            ("tainted", tainted(instance)),
        ] {
            for mode in [PoolMode::Kept, PoolMode::Draining, PoolMode::Removed] {
                let desired = DesiredPool { mode, ..desired(0, 0) };
                assert_eq!(planned([instance.clone()], &desired), [""; 0], "{name}, {how}");
            }
        }
    }
}

#[test]
fn detached_machines_are_no_supply() {
    let detached = standby("i", running(job_owner()));
    check(
        &desired(1, 0),
        vec![("replaced", vec![detached], &["create on-demand: 1 hot, 0 stopped"])],
    );
}

#[test]
fn errors_end() {
    let failed = PoolMachine { warm_up: WarmUp::Failed, ..warming("i") };
    let down = |instance| seen_as(MachineState::Stopped, instance);
    let gone = |instance| seen_as(MachineState::Gone, instance);
    let spot = |mut instance: PoolMachine| {
        instance.record.facts.usage = Usage::Spot;
        instance
    };
    let end = |why| vec![format!("end error: i {why}")];
    for (name, instance, expected) in [
        ("failed warm-up", failed.clone(), end("FailedWarmUp")),
        ("failed warm-up and gone", gone(failed.clone()), end("FailedWarmUp")),
        ("failed warm-up and taken away", gone(interrupted(failed)), end("MachineGone")),
        ("gone during warm-up", gone(warming("i")), end("FailedWarmUp")),
        ("taken away during warm-up", gone(spot(warming("i"))), end("MachineGone")),
        ("down during warm-up", down(warming("i")), end("FailedWarmUp")),
        ("hot and down", down(hot("i")), end("FailedChecks")),
        ("released and down", down(ready("i", Tier::Released, 0)), end("FailedChecks")),
        ("hot and gone", gone(hot("i")), end("MachineGone")),
        ("stopped and gone", gone(stopped("i")), end("MachineGone")),
        ("stopping and gone", gone(stopping("i")), end("MachineGone")),
        ("to be taken away", interrupted(hot("i")), end("MachineGone")),
        ("tainted", tainted(hot("i")), end("Untrusted")),
    ] {
        assert_eq!(planned([instance], &desired(0, 0)), expected, "{name}");
    }
    // An interrupted machine is no supply either.
    check(
        &desired(1, 0),
        vec![(
            "replaced at the notice",
            vec![interrupted(hot("i"))],
            &["end error: i MachineGone", "create on-demand: 1 hot, 0 stopped"],
        )],
    );
}

#[test]
fn what_dangles_ends() {
    // The writer of the deadline may have had another clock.
    let over = at(NOW).before(LIMITS.clock_skew);
    let idle =
        |tier| standby("i", State::Idle { tier, since: at(0), deadline: over, shared: false });
    let late = |deadline| standby("i", State::Created { owner: pool_owner(), deadline });
    let stopping = |deadline| {
        let (op, until) = (samples::stop_op(), at(60));
        standby("i", State::Stopping { op, until, deadline })
    };
    let end = |why: &str| vec![format!("end dangling: i {why}"), create(1, 1)];
    for (name, instance, expected) in [
        ("not warm in time", late(over), end("FailedWarmUp")),
        (
            "warm just now",
            PoolMachine { warm_up: WarmUp::Complete, ..late(over) },
            vec!["keep hot: i".to_owned(), create(0, 1)],
        ),
        ("warming", late(at(NOW)), vec![create(0, 1)]),
        ("hot too long", idle(Tier::Hot), end("DeadlinePassed")),
        ("stopped too long", idle(Tier::Stopped), end("DeadlinePassed")),
        ("released too long", idle(Tier::Released), end("DeadlinePassed")),
        ("never stopped", stopping(over), end("DeadlinePassed")),
        ("stopping", stopping(at(NOW)), vec![create(1, 0)]),
    ] {
        assert_eq!(planned([instance], &desired(1, 1)), expected, "{name}");
    }
}

fn create(hot: u32, stopped: u32) -> String {
    format!("create on-demand: {hot} hot, {stopped} stopped")
}

#[test]
fn the_outdated_go_at_once_from_a_small_pool() {
    let all = vec![old(hot("a")), old(stopped("b")), old(warming("c")), old(stopping("d"))];
    let released = old(ready("e", Tier::Released, 0));
    check(
        &desired(1, 1),
        vec![
            (
                "in every state",
                [all, vec![released]].concat(),
                &[
                    "end outdated: a Outdated, b Outdated, c Outdated, d Outdated, e Outdated",
                    "create on-demand: 1 hot, 1 stopped",
                ],
            ),
            (
                "an upgrade of ours is not drift",
                vec![built(OTHER_VERSION, hot("a")), built(OTHER_VERSION, stopped("b"))],
                &[],
            ),
        ],
    );
}

#[test]
fn the_ready_to_stop_are_stopped() {
    let found = |machine| seen_as(machine, stopped("i"));
    let fence = 60 + LIMITS.clock_skew.as_secs();
    let desired = desired(0, 1);
    check(
        &desired,
        vec![
            ("warm", vec![warm("i")], &["stop: i WarmedUp"]),
            ("a late start", vec![found(MachineState::Running)], &["stop: i FoundRunning"]),
            ("still starting", vec![found(MachineState::Pending)], &[]),
            (
                "the call can no longer land",
                vec![seen_as(MachineState::Running, stopping("i"))],
                &["stop: i Again"],
            ),
            ("stopped", vec![seen_as(MachineState::Stopped, stopping("i"))], &["keep stopped: i"]),
        ],
    );
    for (machine, seconds, expected) in [
        (MachineState::Stopped, fence - 1, vec![]),
        (MachineState::Stopped, fence, vec!["keep stopped: i"]),
        (MachineState::Running, 59, vec![]),
        (MachineState::Running, 60, vec!["stop: i Again"]),
    ] {
        let observed = observed([seen_as(machine, stopping("i"))]);
        assert_eq!(
            actions_of(&plan(&observed, &desired, at(seconds))),
            expected,
            "{machine:?} {seconds}"
        );
    }
}

#[test]
fn what_is_missing_is_created_and_what_is_coming_counts() {
    check(
        &desired(2, 2),
        vec![
            ("empty", vec![], &["create on-demand: 2 hot, 2 stopped"]),
            ("one hot", vec![hot("a")], &["create on-demand: 1 hot, 2 stopped"]),
            (
                "warming counts, as hot first",
                vec![warming("a"), warming("b"), warming("c")],
                &["create on-demand: 0 hot, 1 stopped"],
            ),
            ("stopping counts", vec![stopping("a"), stopping("b"), hot("c"), hot("d")], &[]),
            (
                "starting counts",
                vec![
                    seen_as(MachineState::Pending, stopped("a")),
                    stopped("b"),
                    hot("c"),
                    hot("d"),
                ],
                &[],
            ),
            (
                "released ones do not",
                vec![ready("a", Tier::Released, 0), hot("b"), hot("c")],
                &["create on-demand: 0 hot, 2 stopped"],
            ),
            (
                "warm machines fill missing places",
                vec![hot("a"), warm("b"), warm("c"), stopped("d")],
                &["keep hot: b", "stop: c WarmedUp"],
            ),
            (
                "unlisted ones count",
                vec![PoolMachine { machine: None, ..hot("a") }, hot("b")],
                &["create on-demand: 0 hot, 2 stopped"],
            ),
        ],
    );
}

#[test]
fn hot_ones_can_be_spot_and_stopped_ones_cannot() {
    let spot = |mut instance: PoolMachine| {
        instance.record.facts.usage = Usage::Spot;
        instance
    };
    let desired = DesiredPool { hot_usage: Usage::Spot, ..desired(1, 1) };
    check(
        &desired,
        vec![
            (
                "one launch each",
                vec![],
                &["create spot: 1 hot, 0 stopped", "create on-demand: 0 hot, 1 stopped"],
            ),
            (
                "on-demand is to be stopped",
                vec![warm("a")],
                &["stop: a WarmedUp", "create spot: 1 hot, 0 stopped"],
            ),
            (
                "spot stays hot",
                vec![spot(warm("a"))],
                &["keep hot: a", "create on-demand: 0 hot, 1 stopped"],
            ),
            ("on-demand is good enough", vec![warm("a"), stopped("b")], &["keep hot: a"]),
            (
                "spot is never stopped",
                vec![spot(warm("a")), spot(warm("b"))],
                &["keep hot: a", "create on-demand: 0 hot, 1 stopped", "end excess: b Surplus"],
            ),
        ],
    );
}

#[test]
fn launches_in_flight_are_supply() {
    let in_flight = |launch: Intent| {
        let observed = ObservedPool { launches: vec![launch], ..ObservedPool::default() };
        actions_of(&plan(&observed, &desired(2, 1), at(NOW)))
    };
    let three = launch("one", Usage::OnDemand, 3);
    assert_eq!(in_flight(three.clone()), [""; 0]);
    assert_eq!(in_flight(launch("one", Usage::OnDemand, 2)), [create(0, 1)]);
    assert_eq!(in_flight(launch("one", Usage::Spot, 3)), [create(0, 1)]);
    for (name, launch) in [
        ("given up", Intent { deadline: at(NOW), ..three.clone() }),
        ("of another specification", Intent { spec_hash: SpecHash::new(OLD), ..three.clone() }),
        ("for a job", Intent { owner: job_owner(), ..three }),
    ] {
        assert_eq!(in_flight(launch), [create(2, 1)], "{name}");
    }
}

#[test]
fn ceilings_count_everything_and_hot_comes_first() {
    let class = || Scope::Class(samples::facts().class);
    let instances = || vec![hot("a"), standby("b", running(job_owner()))];
    let ended = State::Terminating { why: EndReason::Surplus, since: at(0) };
    let tombstone = State::Terminated { why: EndReason::Surplus, at: at(0), forget_at: at(9_999) };
    let with = |allowances: Vec<Allowance>, more: Vec<PoolMachine>, launches: Vec<Intent>| {
        let desired = DesiredPool { allowances, ..desired(3, 3) };
        let instances = [instances(), more].concat();
        actions_of(&plan(
            &ObservedPool { instances, launches, ..ObservedPool::default() },
            &desired,
            at(NOW),
        ))
    };
    let stack = |max, used| vec![allowance(Scope::Stack, max, used)];
    assert_eq!(with(stack(99, 99), vec![], vec![]), [""; 0], "the ledger knows of more");
    assert_eq!(with(stack(3, 0), vec![], vec![]), [create(1, 0)], "what is seen counts");
    assert_eq!(with(stack(5, 0), vec![], vec![]), [create(2, 1)]);
    let other = launch("one", Usage::OnDemand, 2);
    assert_eq!(with(stack(5, 0), vec![], vec![other.clone()]), [create(0, 1)]);
    let foreign = Intent { owner: job_owner(), ..other };
    assert_eq!(with(stack(5, 0), vec![], vec![foreign]), [create(1, 0)]);
    assert_eq!(with(stack(3, 0), vec![standby("c", ended)], vec![]), [""; 0], "not gone yet");
    assert_eq!(with(stack(3, 0), vec![standby("c", tombstone)], vec![]), [create(1, 0)]);
    let nearest = [stack(99, 0), vec![allowance(class(), 4, 2)]].concat();
    assert_eq!(with(nearest, vec![], vec![]), [create(2, 0)], "the nearest ceiling");
}

#[test]
fn the_excess_ends_oldest_first() {
    let since = |id: &str, seconds| ready(id, Tier::Hot, seconds);
    check(
        &desired(1, 1),
        vec![
            (
                "oldest",
                vec![since("a", 30), since("b", 10), since("c", 20), stopped("d")],
                &["end excess: b Surplus, c Surplus"],
            ),
            (
                "what is coming for nothing goes",
                vec![hot("a"), stopped("b"), warming("c"), stopping("d"), warm("e")],
                &["end excess: c Surplus, d Surplus, e Surplus"],
            ),
            (
                "released ones stay",
                vec![hot("a"), stopped("b"), ready("c", Tier::Released, 0)],
                &[],
            ),
            (
                "found running and not wanted",
                vec![hot("a"), stopped("b"), seen_as(MachineState::Running, stopped("c"))],
                &["end excess: c Surplus"],
            ),
        ],
    );
}

#[test]
fn the_steps_come_in_their_order() {
    let over = at(NOW).before(LIMITS.clock_skew);
    let late = standby("b", State::Created { owner: pool_owner(), deadline: over });
    let instances = vec![
        PoolMachine { warm_up: WarmUp::Failed, ..warming("a") },
        late,
        old(hot("c")),
        warm("d"),
        warm("e"),
        seen_as(MachineState::Stopped, stopping("f")),
        ready("g", Tier::Stopped, 5),
        warming("h"),
    ];
    let desired = DesiredPool { hot_usage: Usage::Spot, ..desired(1, 3) };
    let spot_surplus = {
        let mut instance = ready("s", Tier::Hot, 1);
        instance.record.facts.usage = Usage::Spot;
        vec![instance, ready("t", Tier::Hot, 2)]
    };
    let instances = [instances, spot_surplus].concat();
    let actions = planned(instances, &desired);
    assert_eq!(
        actions,
        [
            "end error: a FailedWarmUp",
            "end dangling: b FailedWarmUp",
            "end outdated: c Outdated",
            "stop: d WarmedUp",
            "keep stopped: f",
            "end excess: e Surplus, h Surplus, s Surplus",
        ]
    );
}
