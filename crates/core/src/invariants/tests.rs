//! Tests that the checks report a violation: each test breaks an invariant on purpose.
//!
//! Not here: that the transitions keep the invariants (`instance::transition`).

use std::time::Duration;

use super::*;
use crate::creation::Scope;
use crate::ids::{ClaimId, IntentId, Revision};
use crate::instance::{Owner, Tier};
use crate::samples::{
    LIMITS, at, claimed, created, facts, idle, job_owner, machine, record, request_owner, running,
};

/// The write of `state` over `before`, one revision and `generations` later.
fn write(before: &Record, state: State, generations: u64) -> Record {
    let mut after = before.clone();
    after.state = state;
    after.revision = before.revision.next();
    after.generation.0 += generations;
    after
}

fn broken(before: &Record, after: &Record) -> Invariant {
    on_write(Some(before), after).unwrap_err().invariant
}

#[test]
fn a_record_begins_as_created() {
    on_write(None, &record(created(job_owner()))).unwrap();
    let error = on_write(None, &record(idle(Tier::Hot))).unwrap_err();
    assert_eq!(error.to_string(), "invariant 3 (OneOwner) on i-1: a record begins as idle");
}

#[test]
fn facts_revisions_generations_and_tombstones_never_go_back() {
    let before = record(running(job_owner()));
    let good = write(&before, running(job_owner()), 0);
    on_write(Some(&before), &good).unwrap();

    let mut facts = good.clone();
    facts.facts.vcpu += 1;
    let stale = Record { revision: before.revision, ..good.clone() };
    let mut fallen = good.clone();
    fallen.generation.0 -= 1;
    for after in [facts, stale, fallen] {
        assert_eq!(broken(&before, &after), Invariant::OneOwner);
    }
    let why = EndReason::Operator;
    let tombstone = record(State::Terminated { why, at: at(0), forget_at: at(9) });
    let risen = write(&tombstone, idle(Tier::Hot), 1);
    assert_eq!(broken(&tombstone, &risen), Invariant::OneOwner);
}

#[test]
fn an_owner_changes_only_with_a_new_generation_and_after_a_release() {
    let before = record(running(job_owner()));
    let passed = write(&before, running(request_owner()), 0);
    assert_eq!(broken(&before, &passed), Invariant::OneOwner);
    let raised = write(&before, running(request_owner()), 1);
    assert_eq!(broken(&before, &raised), Invariant::OneOwner);
    let released = write(&before, idle(Tier::Released), 0);
    assert_eq!(broken(&before, &released), Invariant::OneOwner);
}

#[test]
fn a_claim_is_taken_over_only_with_a_new_generation() {
    let before = record(claimed(job_owner(), Tier::Hot));
    let State::Claimed { owner, tier, trusted_before, lease, .. } = before.state.clone() else {
        panic!("claimed");
    };
    let claim = ClaimId::new("claim-2");
    let state = State::Claimed { owner, claim, tier, trusted_before, lease };
    on_write(Some(&before), &write(&before, state.clone(), 1)).unwrap();
    let same = write(&before, state, 0);
    assert_eq!(broken(&before, &same), Invariant::OneOwner);
}

#[test]
fn a_claimed_or_running_machine_ends_only_for_the_reasons_that_may() {
    let ended = |before: &Record, why, since| {
        let after = write(before, State::Terminating { why, since }, 1);
        on_write(Some(before), &after).map_err(|error| error.invariant)
    };
    let (claimed, running) =
        (record(claimed(job_owner(), Tier::Hot)), record(running(job_owner())));
    for before in [&claimed, &running] {
        let (deadline, protected) = (before.state.deadline(), Err(Invariant::Protected));
        let early = deadline.before(Duration::from_millis(1));
        assert_eq!(ended(before, EndReason::DeadlinePassed, early), protected);
        assert_eq!(ended(before, EndReason::DeadlinePassed, deadline), Ok(()));
        for why in [EndReason::Surplus, EndReason::Outdated, EndReason::WornOut] {
            assert_eq!(ended(before, why, deadline), protected, "{why:?}");
        }
        for why in [EndReason::Operator, EndReason::MachineGone, EndReason::Dumped] {
            assert_eq!(ended(before, why, at(1)), Ok(()), "{why:?}");
        }
    }
    assert_eq!(ended(&claimed, EndReason::FailedChecks, at(1)), Ok(()));
    assert_eq!(ended(&running, EndReason::FailedChecks, at(1)), Err(Invariant::Protected));
    assert_eq!(ended(&claimed, EndReason::Untrusted, at(1)), Ok(()));
    assert_eq!(ended(&running, EndReason::Untrusted, at(1)), Err(Invariant::Protected));
    assert_eq!(ended(&record(idle(Tier::Hot)), EndReason::Surplus, at(1)), Ok(()));
}

fn intent(outstanding: u32, deadline: Timestamp) -> Intent {
    let facts = facts();
    Intent {
        id: IntentId::new("intent-1"),
        owner: Owner::Pool(crate::samples::pool()),
        trust: None,
        class: facts.class,
        pool: facts.pool,
        usage: facts.usage,
        spec_hash: facts.spec_hash,
        count: outstanding,
        avoid: std::collections::BTreeSet::new(),
        outstanding,
        deadline,
        revision: Revision(1),
    }
}

/// The invariants that a stack of these breaks, this long after noon.
fn broken_in_stack(
    seconds: u64,
    records: &[Record],
    machines: &[Machine],
    intents: &[Intent],
    max: u32,
) -> Vec<Invariant> {
    let ceilings = [Ceiling { scope: Scope::Stack, max }];
    let (now, limits) = (at(seconds), &LIMITS);
    let stack = StackSnapshot { now, records, intents, machines, ceilings: &ceilings, limits };
    on_world(&stack).into_iter().map(|violation| violation.invariant).collect()
}

#[test]
fn a_machine_without_a_record_is_noticed_after_the_grace() {
    let (machines, grace) = ([machine("i-9")], 10 * 60 + 30);
    assert_eq!(broken_in_stack(grace, &[], &machines, &[], 9), []);
    assert_eq!(broken_in_stack(grace + 1, &[], &machines, &[], 9), [Invariant::Conservation]);
    let live = [intent(1, at(9_000))];
    assert_eq!(broken_in_stack(grace + 1, &[], &machines, &live, 9), [], "under a live intent");
    let gone = [Machine { state: MachineState::Gone, ..machine("i-9") }];
    assert_eq!(broken_in_stack(grace + 1, &[], &gone, &[], 9), []);
}

#[test]
fn a_record_without_a_machine_is_noticed_after_its_deadline_and_the_grace() {
    let (records, late) = ([record(idle(Tier::Hot))], 420 + 10 * 60 + 30);
    assert_eq!(broken_in_stack(late, &records, &[], &[], 9), []);
    assert_eq!(broken_in_stack(late + 1, &records, &[], &[], 9), [Invariant::Conservation]);
    assert_eq!(broken_in_stack(late + 1, &records, &[machine("i-1")], &[], 9), []);
}

#[test]
fn a_ceiling_counts_records_and_launches_in_flight() {
    let (records, machines) = ([record(idle(Tier::Hot))], [machine("i-1")]);
    let intents = [intent(2, at(9_000))];
    assert_eq!(broken_in_stack(1, &records, &machines, &intents, 3), []);
    assert_eq!(broken_in_stack(1, &records, &machines, &intents, 2), [Invariant::Ceilings]);
}
