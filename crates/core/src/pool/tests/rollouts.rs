//! Replacing machines of another specification, and specifications that do not boot.
//!
//! Not here: rollouts carried through to their end (`world`).

use super::*;
use crate::config::pool::Rollout;

fn olds(count: usize) -> Vec<PoolMachine> {
    (0..count).map(|n| old(ready(&format!("o{n}"), Tier::Hot, n as u64))).collect()
}

fn news(count: usize) -> Vec<PoolMachine> {
    (0..count).map(|n| hot(&format!("n{n}"))).collect()
}

fn rolling(hot: u32, stopped: u32) -> DesiredPool {
    DesiredPool { rollout: Some(Rollout::Rolling), ..desired(hot, stopped) }
}

fn capped(max: u32, desired: DesiredPool) -> DesiredPool {
    DesiredPool { allowances: vec![allowance(Scope::Pool(pool()), max, 0)], ..desired }
}

/// The actions and the notes' codes for these machines and failed boots.
fn with(
    instances: Vec<PoolMachine>,
    failures: Vec<BootFailure>,
    desired: &DesiredPool,
    seconds: u64,
) -> (Vec<String>, Vec<&'static str>) {
    let plan = plan(&ObservedPool { failures, ..observed(instances) }, desired, at(seconds));
    (actions_of(&plan), codes(&plan))
}

#[test]
fn pools_larger_than_four_roll() {
    let small = planned(olds(4), &desired(3, 1));
    assert_eq!(small[0], "end outdated: o0 Outdated, o1 Outdated, o2 Outdated, o3 Outdated");
    assert_eq!(planned(olds(4), &desired(4, 1)), ["create on-demand: 1 hot, 1 stopped"]);
    let said_so = DesiredPool { rollout: Some(Rollout::Immediate), ..desired(4, 1) };
    assert_eq!(planned(olds(4), &said_so)[1], "create on-demand: 4 hot, 1 stopped");
}

#[test]
fn rolling_replaces_a_quarter_at_a_time() {
    for (name, instances, expected) in [
        ("a surge first", olds(8), vec!["create on-demand: 2 hot, 0 stopped"]),
        (
            "the surge is coming",
            [olds(8), vec![warming("n0"), warm("n1")]].concat(),
            vec!["keep hot: n1"],
        ),
        (
            "two are ready, and two go",
            [olds(8), news(2)].concat(),
            vec!["end outdated: o0 Outdated, o1 Outdated", "create on-demand: 2 hot, 0 stopped"],
        ),
        ("the last", [olds(1), news(8)].concat(), vec!["end outdated: o0 Outdated"]),
        ("one was picked", olds(7), vec!["create on-demand: 3 hot, 0 stopped"]),
        (
            "old machines go at once if they are not ready",
            [olds(8), vec![old(warming("w"))]].concat(),
            vec!["end outdated: w Outdated", "create on-demand: 2 hot, 0 stopped"],
        ),
    ] {
        assert_eq!(planned(instances, &rolling(8, 0)), expected, "{name}");
    }
    let stopped: Vec<_> = (0..4).map(|n| old(stopped(&format!("s{n}")))).collect();
    let actions = planned([olds(4), stopped].concat(), &rolling(4, 4));
    assert_eq!(actions, ["create on-demand: 1 hot, 1 stopped"], "each kind by itself");
}

#[test]
fn without_capacity_for_a_surge_a_quarter_goes_first() {
    let full = capped(8, rolling(8, 0));
    let going = "end outdated: o0 Outdated, o1 Outdated";
    assert_eq!(planned(olds(8), &full), [going]);
    let ended = |id: &str| {
        let why = crate::instance::EndReason::Outdated;
        standby(id, State::Terminating { why, since: at(0) })
    };
    let six = || olds(8).split_off(2);
    let leaving = [six(), vec![ended("o0"), ended("o1")]].concat();
    assert_eq!(planned(leaving, &full), [""; 0], "they still take the capacity");
    assert_eq!(planned(six(), &full), ["create on-demand: 2 hot, 0 stopped"]);
    // Others took the capacity meanwhile: no more than a quarter is ever missing for a rollout.
    let stack = vec![allowance(Scope::Stack, 100, 100)];
    let shared = DesiredPool { allowances: stack, ..rolling(8, 0) };
    assert_eq!(planned(six(), &shared), [""; 0]);
    // A pool that may have fewer than its target rolls by what it may have.
    assert_eq!(planned(olds(4), &capped(4, rolling(8, 0))), ["end outdated: o0 Outdated"]);
}

#[test]
fn a_rollout_pauses_when_a_boot_fails() {
    let failed = || vec![failure("x", 50)];
    let (actions, codes) = with(olds(8), failed(), &rolling(8, 0), NOW);
    assert_eq!(actions, ["create on-demand: 1 hot, 0 stopped"], "one is tried");
    assert_eq!(codes, ["rollout-paused"]);
    let trying = [olds(8), vec![warming("n")]].concat();
    assert_eq!(with(trying, failed(), &rolling(8, 0), NOW).0, [""; 0], "one at a time");
    let tried = ObservedPool {
        failures: failed(),
        booted: Some(at(60)),
        ..observed([olds(8), news(1)].concat())
    };
    let plan = plan(&tried, &rolling(8, 0), at(NOW));
    let goes_on = ["end outdated: o0 Outdated", "create on-demand: 2 hot, 0 stopped"];
    assert_eq!(
        (actions_of(&plan), super::codes(&plan)),
        (goes_on.map(str::to_owned).into(), vec!["rolling-out"])
    );
    // Without a rollout a single failure holds nothing back: its machine may be the cause.
    assert_eq!(
        with(vec![], failed(), &rolling(8, 0), NOW).0,
        ["create on-demand: 8 hot, 0 stopped"]
    );
    // A failure that only this plan sees counts.
    let failing = [olds(8), vec![PoolMachine { warm_up: WarmUp::Failed, ..warming("n") }]].concat();
    let (actions, _) = with(failing, vec![], &rolling(8, 0), NOW);
    assert_eq!(actions, ["end error: n FailedWarmUp", "create on-demand: 1 hot, 0 stopped"]);
}

#[test]
fn what_does_not_boot_is_quarantined() {
    let three = || vec![failure("x", 0), failure("y", 10), failure("z", 20)];
    let small = desired(2, 0);
    // Three launches failed: twice doubled.
    let until = 20 + 20 * 60;
    let (actions, codes) = with(vec![], three(), &small, until - 1);
    assert_eq!((actions, codes), (vec![], vec!["quarantined"]));
    let (actions, codes) = with(vec![], three(), &small, until);
    assert_eq!(codes, ["probing"]);
    assert_eq!(actions, ["create on-demand: 1 hot, 0 stopped"], "then one is tried");
    let probe = PoolMachine { record: warming("p").record, ..warming("p") };
    let mut young = probe;
    young.record.state = State::Created { owner: pool_owner(), deadline: at(until + 600) };
    assert_eq!(with(vec![young], three(), &small, until).0, [""; 0], "and no second");
    // Old machines stay although the pool replaces at once: better old than none.
    let (actions, _) = with(olds(2), three(), &small, NOW);
    assert_eq!(actions, [""; 0]);
    let (actions, _) = with(olds(3), three(), &small, NOW);
    assert_eq!(actions, ["end outdated: o0 Outdated"], "as many as are wanted");
    // Other specifications' failures, and failures before the last boot, do not count.
    let others = three().into_iter().map(|f| BootFailure { spec_hash: SpecHash::new(OLD), ..f });
    let (actions, _) = with(vec![], others.collect(), &small, NOW);
    assert_eq!(actions, ["create on-demand: 2 hot, 0 stopped"]);
    let observed =
        ObservedPool { failures: three(), booted: Some(at(10)), ..ObservedPool::default() };
    assert_eq!(
        actions_of(&plan(&observed, &small, at(NOW))),
        ["create on-demand: 2 hot, 0 stopped"]
    );
    // A failure that is both remembered and seen counts once.
    let failing = |id| PoolMachine { warm_up: WarmUp::Failed, ..warming(id) };
    let (_, codes) = with(vec![failing("x"), failing("y")], vec![failure("x", 1)], &small, NOW);
    assert_eq!(codes, [""; 0]);
}

#[test]
fn a_quarantine_doubles_with_each_launch_and_has_an_end() {
    let failures = |launches: usize| -> Vec<BootFailure> {
        let each = |n: usize| failure(&format!("x{n}"), 0);
        let three_of_one = ["a", "b"].map(|id| BootFailure { id: id.into(), ..each(0) });
        (0..launches).map(each).chain(three_of_one).collect()
    };
    for (launches, minutes) in [(1, 5), (2, 10), (3, 20), (4, 40), (5, 60), (200, 60)] {
        let codes = |seconds| with(vec![], failures(launches), &desired(1, 0), seconds).1;
        assert_eq!(codes(minutes * 60 - 1), ["quarantined"], "{launches}");
        assert_eq!(codes(minutes * 60), ["probing"], "{launches}");
    }
}
