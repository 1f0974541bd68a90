//! When a hot machine is due to be replaced, and when it goes.
//!
//! Not here: hours of replacing (`world`).

use super::*;

#[test]
fn an_expiring_hot_machine_waits_for_its_replacement() {
    let id = InstanceId::new("a");
    let due = at(0).after(lifetime(&id, LIMITS.hot_lifetime));
    let end = hot_deadline(&id, at(0), LIMITS.hot_lifetime, &LIMITS);
    let desired = desired(1, 0);
    let second = std::time::Duration::from_secs(1);
    let fresh = |id| PoolMachine { record: ready(id, Tier::Hot, 550).record, ..hot(id) };
    let ends = |id| {
        let state = State::Idle { tier: Tier::Hot, since: at(0), deadline: end, shared: false };
        standby(id, state)
    };
    for (name, instances, when, expected) in [
        ("young", vec![hot("a")], due.before(second), vec![]),
        ("due", vec![hot("a")], due, vec![create()]),
        ("its replacement comes", vec![hot("a"), warm("b")], due, vec!["keep hot: b".to_owned()]),
        (
            "its replacement is ready",
            vec![hot("a"), fresh("b")],
            due,
            vec!["end excess: a Surplus".to_owned()],
        ),
        (
            "at the hard end of a lifetime that was shortened",
            vec![hot("a")],
            end,
            vec!["end dangling: a WornOut".to_owned(), create()],
        ),
        (
            "at its deadline, on every clock",
            vec![ends("a")],
            end.after(LIMITS.clock_skew),
            vec!["end dangling: a DeadlinePassed".to_owned(), create()],
        ),
    ] {
        assert_eq!(actions_of(&plan(&observed(instances), &desired, when)), expected, "{name}");
    }
}

#[test]
fn lifetimes_are_spread_by_the_id_and_nothing_else() {
    let base = minutes(10);
    let ids = (0..500).map(|n| InstanceId::new(format!("i-{n:017x}")));
    let lives: Vec<_> = ids.clone().map(|id| lifetime(&id, base)).collect();
    assert_eq!(lives, ids.map(|id| lifetime(&id, base)).collect::<Vec<_>>());
    let (least, most) = (*lives.iter().min().unwrap(), *lives.iter().max().unwrap());
    assert!(least >= base * 8 / 10 && most <= base * 12 / 10, "{least:?} {most:?}");
    assert!(least < base * 82 / 100 && most > base * 118 / 100, "they are spread over all of it");
    assert!(lifetime(&InstanceId::new("i"), std::time::Duration::MAX) > base);
}

fn create() -> String {
    "create on-demand: 1 hot, 0 stopped".to_owned()
}
