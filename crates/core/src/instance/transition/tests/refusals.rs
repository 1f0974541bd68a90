//! One test for each refusal: which writer lacks the authority, and which refusal it gets.
//!
//! Not here: accepted events (`rules`), or events that a state never accepts (`table`).

use std::time::Duration;

use super::super::{AfterWarmUp, Authority, InstanceEvent, InstanceRefusal};
use crate::ids::{ClaimId, Generation, PoolName};
use crate::instance::{EndReason, Owner, State, StateName, Tier};
use crate::mailbox::{RemovalProof, Unexposed};
use crate::samples::{
    GENERATION, LIMITS, at, claimed, created, idle, job_owner, nonce, pool, pool_owner, record,
    releasing, request_owner, running, stop_op, stopping, trust,
};

const STALE: Generation = Generation(GENERATION.0 - 1);
const FENCED: InstanceRefusal = InstanceRefusal::Fenced { claimed: STALE, actual: GENERATION };

fn refusal(state: State, event: &InstanceEvent) -> InstanceRefusal {
    record(state).on(event).unwrap_err()
}

fn claim(seen: Generation, now: u64) -> InstanceEvent {
    InstanceEvent::Claimed {
        owner: job_owner(),
        claim: nonce(),
        trust: trust(),
        seen,
        at: at(now),
        margin: LIMITS.not_claimable_before_deadline,
        lease: at(now + 300),
    }
}

fn withdrawn(authority: Authority) -> InstanceEvent {
    InstanceEvent::Withdrawn { authority, warm: true, at: at(20), cap: at(9_000) }
}

fn condemned(authority: Authority) -> InstanceEvent {
    InstanceEvent::Condemned { authority, why: EndReason::Surplus, at: at(20) }
}

fn registered(owner: Owner, generation: Generation, claim: Option<ClaimId>) -> InstanceEvent {
    InstanceEvent::Registered {
        owner,
        generation,
        claim,
        at: at(1),
        deadline: at(99),
        cap: at(100),
    }
}

fn returned(generation: Generation, removal: RemovalProof) -> InstanceEvent {
    let proof = Unexposed::assumed(generation, removal);
    InstanceEvent::Returned { proof, at: at(3), deadline: at(423), shared: true }
}

/// The events of a job's owner, written by `owner` at `generation`.
fn owners_events(owner: &Owner, generation: Generation) -> [(State, InstanceEvent); 5] {
    let name = || owner.clone();
    let mine = || Authority::Owner { owner: name(), generation };
    let (claim, lease, deadline) = (ClaimId::new("claim-2"), at(400), at(2_000));
    let ours = || claimed(job_owner(), Tier::Hot);
    [
        (ours(), InstanceEvent::TakenOver { owner: name(), generation, claim, lease }),
        (ours(), registered(name(), generation, Some(nonce()))),
        (ours(), condemned(mine())),
        (running(job_owner()), InstanceEvent::Extended { owner: name(), generation, deadline }),
        (running(job_owner()), withdrawn(mine())),
    ]
}

#[test]
fn an_owner_of_an_earlier_generation_is_fenced_from_everything() {
    for (state, event) in owners_events(&job_owner(), STALE) {
        assert_eq!(refusal(state, &event), FENCED, "{}", event.name());
    }
    let renewal = InstanceEvent::Renewed { claim: nonce(), generation: STALE, lease: at(400) };
    assert_eq!(refusal(claimed(job_owner(), Tier::Hot), &renewal), FENCED);
    let late = registered(job_owner(), STALE, None);
    assert_eq!(refusal(created(job_owner()), &late), FENCED, "also on a machine created for it");
}

#[test]
fn another_owner_at_the_right_generation_is_refused() {
    for (state, event) in owners_events(&Owner::Job("4243".into()), GENERATION) {
        assert_eq!(refusal(state, &event), InstanceRefusal::NotTheOwner, "{}", event.name());
    }
}

#[test]
fn a_claimer_that_saw_an_earlier_generation_is_fenced() {
    assert_eq!(refusal(idle(Tier::Hot), &claim(STALE, 1)), FENCED);
}

#[test]
fn an_equal_owner_proves_nothing_without_the_claims_nonce() {
    let other = ClaimId::new("claim-2");
    for event in [
        InstanceEvent::Renewed { claim: other.clone(), generation: GENERATION, lease: at(400) },
        registered(job_owner(), GENERATION, Some(other)),
        registered(job_owner(), GENERATION, None),
    ] {
        let refusal = refusal(claimed(job_owner(), Tier::Hot), &event);
        assert_eq!(refusal, InstanceRefusal::AnotherClaim, "{event:?}");
    }
}

#[test]
fn a_machine_within_the_margin_of_its_deadline_is_not_claimed() {
    let margin = LIMITS.not_claimable_before_deadline.as_secs();
    record(idle(Tier::Hot)).on(&claim(GENERATION, 420 - margin - 1)).unwrap();
    for now in [420 - margin, 419, 420, 500] {
        let expected = InstanceRefusal::Expiring { deadline: at(420) };
        assert_eq!(refusal(idle(Tier::Hot), &claim(GENERATION, now)), expected, "at {now}");
    }
}

#[test]
fn a_machine_is_not_called_stopped_while_a_stop_call_may_land() {
    let event = InstanceEvent::FoundStopped {
        at: at(59),
        skew: Duration::ZERO,
        deadline: at(900),
        shared: true,
    };
    assert_eq!(refusal(stopping(), &event), InstanceRefusal::TooEarly { until: at(60) });
}

#[test]
fn a_deadline_gives_no_authority_before_it_has_passed() {
    for state in [
        created(job_owner()),
        idle(Tier::Hot),
        claimed(job_owner(), Tier::Hot),
        running(job_owner()),
        releasing(job_owner(), Tier::Hot),
        stopping(),
    ] {
        let until = state.deadline();
        let early = Authority::Deadline { at: until.before(Duration::from_millis(1)) };
        assert_eq!(refusal(state.clone(), &condemned(early)), InstanceRefusal::TooEarly { until });
        record(state).on(&condemned(Authority::Deadline { at: until })).unwrap();
    }
}

#[test]
fn a_created_machine_that_is_not_warm_is_ended_and_never_reused() {
    let authority = Authority::Owner { owner: request_owner(), generation: GENERATION };
    let event = InstanceEvent::Withdrawn { authority, warm: false, at: at(20), cap: at(90) };
    assert_eq!(refusal(created(request_owner()), &event), InstanceRefusal::NotWarm);
}

#[test]
fn a_proof_of_another_release_does_not_fit() {
    for removal in
        [RemovalProof::NeverAssigned, RemovalProof::Acknowledged, RemovalProof::MachineStopped]
    {
        for generation in [STALE, GENERATION.next()] {
            let event = returned(generation, removal);
            let state = releasing(job_owner(), Tier::Stopped);
            assert_eq!(
                refusal(state, &event),
                InstanceRefusal::UnfitProof,
                "{removal:?} {generation}"
            );
        }
    }
}

#[test]
fn a_running_machine_that_reads_as_stopped_proves_nothing() {
    let event = returned(GENERATION, RemovalProof::MachineStopped);
    for tier in [Tier::Hot, Tier::Released] {
        assert_eq!(refusal(releasing(job_owner(), tier), &event), InstanceRefusal::UnfitProof);
    }
}

#[test]
fn a_pool_reaches_nothing_that_is_claimed_running_or_being_released() {
    for state in
        [claimed(job_owner(), Tier::Hot), running(job_owner()), releasing(job_owner(), Tier::Hot)]
    {
        let expected = InstanceRefusal::Protected { state: state.name() };
        assert_eq!(refusal(state, &condemned(Authority::Pool { pool: pool() })), expected);
    }
}

#[test]
fn a_pool_reaches_no_other_pools_machines() {
    let theirs = || Authority::Pool { pool: PoolName::new("nightly") };
    for state in [idle(Tier::Hot), stopping()] {
        let expected = InstanceRefusal::Protected { state: state.name() };
        assert_eq!(refusal(state, &condemned(theirs())), expected);
    }
    assert_eq!(refusal(created(pool_owner()), &condemned(theirs())), InstanceRefusal::NotTheOwner);
    let into = AfterWarmUp::ToStop { op: stop_op(), until: at(60), deadline: at(600) };
    let warm = InstanceEvent::WarmedUp { pool: PoolName::new("nightly"), at: at(1), into };
    assert_eq!(refusal(created(pool_owner()), &warm), InstanceRefusal::NotTheOwner);
}

#[test]
fn a_former_owner_reaches_no_machine_without_an_owner() {
    for state in [idle(Tier::Hot), releasing(job_owner(), Tier::Hot), stopping()] {
        let authority = Authority::Owner { owner: job_owner(), generation: GENERATION };
        let expected = InstanceRefusal::Protected { state: state.name() };
        assert_eq!(refusal(state, &condemned(authority)), expected);
    }
}

#[test]
fn a_release_reaches_only_its_own_generation_of_a_releasing_machine() {
    let stale = condemned(Authority::Release { generation: STALE });
    assert_eq!(refusal(releasing(job_owner(), Tier::Hot), &stale), FENCED);
    let current = condemned(Authority::Release { generation: GENERATION });
    for state in [running(job_owner()), idle(Tier::Hot), claimed(job_owner(), Tier::Hot)] {
        let expected = InstanceRefusal::Protected { state: state.name() };
        assert_eq!(refusal(state, &current), expected);
    }
}

#[test]
fn a_pools_machine_never_runs_for_the_pool_itself() {
    let event = registered(pool_owner(), GENERATION, None);
    let expected = InstanceRefusal::Illegal { state: StateName::Created, event: "registered" };
    assert_eq!(refusal(created(pool_owner()), &event), expected);
}

#[test]
fn refusals_say_what_is_wrong_in_a_lowercase_fragment() {
    let running = StateName::Running;
    for (refusal, text) in [
        (FENCED, "the record is at generation 5, not 4"),
        (InstanceRefusal::NotTheOwner, "the instance belongs to another owner"),
        (InstanceRefusal::Protected { state: running }, "running is protected from this authority"),
        (
            InstanceRefusal::Illegal { state: running, event: "gone" },
            "running does not accept gone",
        ),
        (InstanceRefusal::TooEarly { until: at(0) }, "not before 2026-01-01T12:00:00Z"),
    ] {
        assert_eq!(refusal.to_string(), text);
    }
}
