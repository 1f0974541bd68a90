//! The notes of a plan, and pools that an operator or the configuration has stopped.
//!
//! Not here: notes during rollouts (`rollouts`).

use super::*;
use crate::samples::{job_owner, running};

fn everything() -> Vec<PoolMachine> {
    vec![
        hot("a"),
        stopped("b"),
        warming("c"),
        warm("d"),
        stopping("e"),
        ready("f", Tier::Released, 0),
        old(hot("g")),
        standby("h", running(job_owner())),
    ]
}

#[test]
fn a_paused_pool_plans_nothing_and_says_so() {
    let desired = DesiredPool { mode: PoolMode::Paused, ..desired(5, 5) };
    let plan = plan(&observed(everything()), &desired, at(NOW));
    assert_eq!((actions_of(&plan), codes(&plan)), (vec![], vec!["paused"]));
    assert_eq!(plan.notes[0].to_string(), "paused by an operator: nothing is changed");
}

#[test]
fn a_pool_that_is_drained_or_gone_keeps_nothing_it_may_touch() {
    for (mode, why, code, text) in [
        (PoolMode::Draining, "Operator", "draining", "drained by an operator; still in use: 1"),
        (
            PoolMode::Removed,
            "Surplus",
            "removed",
            "no longer in the configuration; still in use: 1",
        ),
    ] {
        let desired = DesiredPool { mode, ..desired(5, 5) };
        let plan = plan(&observed(everything()), &desired, at(NOW));
        let each = ["a", "b", "c", "d", "e", "f"].map(|id| format!(" {id} {why}")).join(",");
        let expected = ["end outdated: g Outdated".to_owned(), format!("end excess:{each}")];
        assert_eq!(actions_of(&plan), expected);
        assert_eq!(codes(&plan), [code]);
        assert_eq!(plan.notes[0].to_string(), text);
    }
}

#[test]
fn what_is_waited_on_is_said() {
    let fenced = seen_as(MachineState::Stopped, stopping("c"));
    let early = at(60);
    let instances = vec![warming("a"), stopping("b"), fenced, hot("d")];
    let launches = vec![launch("one", Usage::OnDemand, 2)];
    let observed = ObservedPool { instances, launches, ..ObservedPool::default() };
    let plan = plan(&observed, &desired(4, 2), early);
    assert_eq!(actions_of(&plan), [""; 0]);
    let notes: Vec<_> = plan.notes.iter().map(ToString::to_string).collect();
    assert_eq!(
        notes,
        [
            "being launched: 2",
            "warming up: 1",
            "being stopped: 1",
            "stopped, and left alone until 2026-01-01T12:01:30Z because a stop call may be late: 1",
        ]
    );
    assert_eq!(codes(&plan), ["launching", "warming-up", "stopping", "fenced"]);
}

#[test]
fn a_ceiling_in_the_way_is_named() {
    let target = desired(2, 3);
    let actions_and_notes = |allowances: Vec<Allowance>, instances: Vec<PoolMachine>| {
        let desired = DesiredPool { allowances, ..target.clone() };
        let plan = plan(&observed(instances), &desired, at(NOW));
        (actions_of(&plan), plan.notes.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    let pool_max = || vec![allowance(Scope::Pool(pool()), 3, 0)];
    let (actions, notes) = actions_and_notes(pool_max(), vec![]);
    assert_eq!(actions, ["create on-demand: 2 hot, 1 stopped"]);
    assert_eq!(notes, ["pool ci holds 0 of at most 3 machines; wanted more: 2"]);
    // The note stays as long as the ceiling is in the way, also if no action is left.
    let (actions, notes) = actions_and_notes(pool_max(), vec![hot("a"), hot("b"), stopped("c")]);
    assert_eq!(actions, [""; 0]);
    assert_eq!(notes, ["pool ci holds 3 of at most 3 machines; wanted more: 2"]);
    let (actions, notes) =
        actions_and_notes(vec![allowance(Scope::Stack, 9, 8)], vec![hot("a"), hot("b")]);
    assert_eq!(actions, ["create on-demand: 0 hot, 1 stopped"]);
    assert_eq!(notes, ["stack holds 8 of at most 9 machines; wanted more: 2"]);
    // If a ceiling was lowered, the plan ends standby machines above it.
    let (actions, _) =
        actions_and_notes(pool_max(), vec![hot("a"), hot("b"), stopped("c"), stopped("d")]);
    assert_eq!(actions, ["end excess: c Surplus"]);
}

#[test]
fn a_schedule_with_a_hole_and_a_listing_with_one_are_named() {
    let nothing = DesiredPool { target: Target::NOTHING, ..desired(0, 0) };
    let plan_of = |instances: Vec<PoolMachine>, desired: &DesiredPool, seconds| {
        plan(&observed(instances), desired, at(seconds))
    };
    let plan = plan_of(vec![], &nothing, NOW);
    assert_eq!((actions_of(&plan), codes(&plan)), (vec![], vec!["no-entry"]));
    let unlisted = PoolMachine { machine: None, ..stopped("a") };
    assert_eq!(codes(&plan_of(vec![unlisted.clone()], &desired(0, 1), 599)), [""; 0]);
    let late = plan_of(vec![unlisted], &desired(0, 1), 600);
    assert_eq!((actions_of(&late), codes(&late)), (vec![], vec!["unseen"]));
    let due = plan_of(vec![hot("a")], &desired(1, 0), 12 * 60);
    assert_eq!(codes(&due), ["expiring"]);
}

#[test]
fn a_cloud_without_capacity_is_not_asked_again_before_its_time() {
    let observed = ObservedPool { short_until: Some(at(NOW + 60)), ..ObservedPool::default() };
    let planned_at = |seconds| {
        let plan = plan(&observed, &desired(1, 1), at(seconds));
        (actions_of(&plan), plan.notes.iter().map(Note::code).collect::<Vec<_>>())
    };
    assert_eq!(planned_at(NOW), (vec![], vec!["no-capacity"]));
    let create = "create on-demand: 1 hot, 1 stopped".to_owned();
    assert_eq!(planned_at(NOW + 60), (vec![create], vec![]));
    let full = ObservedPool { instances: vec![hot("a"), stopped("b")], ..observed.clone() };
    assert_eq!(plan(&full, &desired(1, 1), at(NOW)), Plan::default(), "nothing is wanted");
}
