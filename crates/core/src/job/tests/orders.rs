//! Every order of a job's facts, with every fact twice and any one lost, leaves the same row.
//!
//! Not here: what the row holds (`rules`).

use super::*;

fn facts() -> [JobFact; 4] {
    [held_back(), queued(), started(), completed("success")]
}

/// Calls `each` with every distinct order of `items`, which are told apart by their index.
fn orders(items: &[usize], each: &mut impl FnMut(&[usize])) {
    fn place(left: &mut Vec<usize>, order: &mut Vec<usize>, each: &mut impl FnMut(&[usize])) {
        if left.is_empty() {
            return each(order);
        }
        for index in 0..left.len() {
            // Equal items are interchangeable: the first of them stands for all.
            if left[..index].contains(&left[index]) {
                continue;
            }
            let item = left.remove(index);
            order.push(item);
            place(left, order, each);
            order.pop();
            left.insert(index, item);
        }
    }
    place(&mut items.to_vec(), &mut Vec::new(), each);
}

fn count(items: &[usize]) -> usize {
    let mut count = 0;
    orders(items, &mut |_| count += 1);
    count
}

fn in_order(facts: &[JobFact], order: &[usize]) -> Vec<JobFact> {
    order.iter().map(|&index| facts[index].clone()).collect()
}

#[test]
fn every_order_with_everything_twice_is_the_same_row() {
    let facts = facts();
    let row = learned(&facts);
    assert!(matches!(&row.state, JobState::Ended { end: End::Completed(_), .. }), "{row:?}");
    let twice = [0, 0, 1, 1, 2, 2, 3, 3];
    assert_eq!(count(&twice), 2520);
    orders(&twice, &mut |order| assert_eq!(learned(&in_order(&facts, order)), row, "{order:?}"));
}

#[test]
fn a_lost_fact_that_is_learned_last_leaves_the_same_row() {
    let facts = facts();
    let whole = learned(&facts);
    for lost in 0..facts.len() {
        let left: Vec<usize> = (0..8).map(|n| n / 2).filter(|&index| index != lost).collect();
        let without = learned(&in_order(&facts, &left));
        orders(&left, &mut |order| {
            let row = learned(&in_order(&facts, order));
            assert_eq!(row, without, "without {lost}: {order:?}");
            let asked = row.learn(&facts[lost], at(100), &LIMITS).unwrap();
            assert_eq!(asked, whole, "{lost} came last: {order:?}");
        });
    }
}

/// A redelivery under the same id after a crash is the same fact again: the row merges it, because
/// the service keeps no list of deliveries that it has seen.
#[test]
fn every_fact_is_its_own_redelivery() {
    for subset in 1_u32..16 {
        let some: Vec<usize> = (0..4).filter(|index| subset & (1 << index) != 0).collect();
        let facts = facts();
        orders(&some, &mut |order| {
            let row = learned(&in_order(&facts, order));
            for &again in order {
                assert_eq!(row.learn(&facts[again], at(900), &LIMITS).unwrap(), row);
            }
        });
    }
}

/// A worker's events in between change no fact: a job that is over still ends, and its machine is
/// still to be released.
#[test]
fn a_worker_in_between_changes_only_what_is_ours() {
    let facts = facts();
    let known = learned(&facts).known;
    let ours = [
        JobEvent::Routed { lane: lane(), at: at(100) },
        begun(100),
        JobEvent::Assigned {
            worker: worker(),
            held: held(),
            how: MachineSource::Created,
            at: at(100),
            notes: vec![],
        },
    ];
    orders(&[0, 0, 1, 1, 2, 3], &mut |order| {
        for moment in 1..=order.len() {
            let (before, rest) = order.split_at(moment);
            let mut job = learned(&in_order(&facts, before));
            let mut had = None;
            for event in &ours {
                job = job.on(event).unwrap_or(job);
                had = job.held().cloned();
            }
            for fact in in_order(&facts, rest) {
                job = job.learn(&fact, at(101), &LIMITS).unwrap();
            }
            assert_eq!(job.known, known);
            let JobState::Ended { end: End::Completed(_), debts, .. } = &job.state else {
                panic!("{order:?} at {moment}: {job:?}");
            };
            assert_eq!(debts.release, had, "{order:?} at {moment}");
            let wanted = before.contains(&1) && !before.contains(&2) && !before.contains(&3);
            assert_eq!(had.is_some(), wanted, "only a queued job gets a machine");
        }
    });
}

#[test]
fn facts_that_disagree_are_joined_the_same_way_round_and_back() {
    let renamed = |said| {
        let mut fact = fact(said);
        fact.about.repository = Repository::new("acme/renamed");
        fact.about.name.clear();
        fact
    };
    let odd = [
        held_back(),
        queued(),
        fact(ReportedStatus::Queued { at: None }),
        renamed(ReportedStatus::Queued { at: Some(at(0)) }),
        fact(ReportedStatus::Started { runner: None, at: None }),
        renamed(ReportedStatus::Started { runner: Some(other().runner), at: Some(at(8)) }),
        started(),
        completed("success"),
        renamed(ReportedStatus::Completed {
            conclusion: Conclusion::new("failure"),
            runner: None,
            at: None,
        }),
    ];
    let all: Vec<JobKnowledge> = odd.iter().map(JobKnowledge::of).collect();
    for a in &all {
        assert_eq!(a.clone().join(a.clone()), *a, "idempotent");
        for b in &all {
            let both = a.clone().join(b.clone());
            assert_eq!(both, b.clone().join(a.clone()), "commutative");
            assert_eq!(both.phase(), a.phase().max(b.phase()), "never back");
            for c in &all {
                let right = a.clone().join(b.clone().join(c.clone()));
                assert_eq!(both.clone().join(c.clone()), right, "associative");
            }
        }
    }
}
