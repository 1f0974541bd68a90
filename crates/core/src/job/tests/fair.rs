//! Turns: nobody starves, nobody gets more than they may, nothing is left idle.
//!
//! Not here: loading what waits.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::fair::{Queue, choose};
use super::super::placing::{Placed, place};
use super::*;
use crate::route::{NotOurs, Route};

fn queue(name: &str, jobs: usize, weight: u32, free: u32) -> Queue {
    let jobs = (0..jobs).map(|number| JobId::new(format!("{name}{number}"))).collect();
    Queue { repository: Repository::new(name), jobs, weight, free }
}

fn chosen(queues: &[Queue], room: usize, last: Option<&str>) -> String {
    let last = last.map(Repository::new);
    let turn = choose(queues, room, last.as_ref());
    turn.chosen.iter().map(JobId::as_str).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_burst_waits_for_its_turn_like_everybody() {
    let queues = [queue("a", 100, 1, 100), queue("b", 1, 1, 9), queue("c", 2, 1, 9)];
    assert_eq!(chosen(&queues, 6, None), "a0 b0 c0 a1 c1 a2");
    assert_eq!(chosen(&queues, 2, Some("a")), "b0 c0");
    assert_eq!(chosen(&queues, 2, Some("c")), "a0 b0");
    assert_eq!(chosen(&queues, 2, Some("bb")), "c0 a0", "also after one that waits no more");
}

#[test]
fn weights_and_caps_are_kept() {
    let queues = [queue("a", 9, 2, 9), queue("b", 9, 1, 2), queue("c", 9, 0, 0)];
    assert_eq!(chosen(&queues, 8, None), "a0 a1 b0 a2 a3 b1 a4 a5");
    assert_eq!(chosen(&queues, 0, None), "");
    assert_eq!(chosen(&[], 8, None), "");
}

fn arbitrary() -> impl Strategy<Value = Vec<Queue>> {
    let one = (0_usize..8, 0_u32..4, 0_u32..6);
    prop::collection::vec(one, 0..6).prop_map(|all| {
        let names = ["a", "b", "c", "d", "e", "f"];
        let queues = names.into_iter().zip(all);
        queues.map(|(name, (jobs, weight, free))| queue(name, jobs, weight, free)).collect()
    })
}

proptest! {
    #[test]
    fn a_turn_is_within_bounds_and_leaves_nothing_idle(queues in arbitrary(), room in 0_usize..20) {
        let turn = choose(&queues, room, None);
        let able = |queue: &Queue| queue.jobs.len().min(queue.free as usize);
        let all: usize = queues.iter().map(able).sum();
        prop_assert_eq!(turn.chosen.len(), all.min(room), "as many as there are and may be");
        for queue in &queues {
            let mut got = turn.chosen.clone();
            got.retain(|job| queue.jobs.contains(job));
            prop_assert!(got.len() <= able(queue));
            prop_assert!(queue.jobs.starts_with(&got), "in their order, each once");
        }
    }

    #[test]
    fn nobody_starves_in_a_small_room(queues in arbitrary(), room in 1_usize..5) {
        let mut last = None;
        let mut served: BTreeMap<Repository, u32> = BTreeMap::new();
        // Nothing is taken away: whoever waits waits again, and one place is given in each turn.
        for _ in 0..queues.len() {
            let turn = choose(&queues, room, last.as_ref());
            for job in &turn.chosen {
                let of = |queue: &&Queue| queue.jobs.contains(job);
                let queue = queues.iter().find(of).expect("it was chosen from there");
                *served.entry(queue.repository.clone()).or_default() += 1;
            }
            last = turn.last;
        }
        for queue in queues.iter().filter(|queue| queue.free > 0 && !queue.jobs.is_empty()) {
            prop_assert!(served.contains_key(&queue.repository), "{:?} starved", queue.repository);
        }
    }
}

#[test]
fn a_route_is_a_lane_a_failure_or_nothing() {
    let ci = PoolName::new("ci");
    let event = |route: &Route| match place(route, at(1), None) {
        Placed::Event(event) => waiting().on(&event).expect("a waiting job takes it"),
        other => panic!("{other:?}"),
    };
    assert_eq!(event(&Route::Pool(ci.clone())).lane, Some(Lane::Pool(ci.clone())));
    let unknown = Route::UnknownPool { pool: ci, suggestions: vec![] };
    let job = event(&unknown);
    assert!(matches!(&job.life, Life::Ended { end: End::Failed(reason), debts, .. }
        if reason.code() == "unknown-pool" && debts.tell));
    assert_eq!(place(&Route::Wait, at(1), None), Placed::Waits);
    let theirs = Route::NotOurs(NotOurs::NoHead);
    assert_eq!(place(&theirs, at(1), None), Placed::NotOurs(NotOurs::NoHead));
}
