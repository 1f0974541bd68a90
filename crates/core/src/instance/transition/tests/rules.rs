//! One test for each transition of an instance: the next state, and what is true in it.
//!
//! Not here: refused events (`refusals`).

use std::time::Duration;

use crate::ids::{ClaimId, Generation, InstanceId, Revision, StopOp, TrustGroup};
use crate::instance::{AfterWarmUp, Authority, InstanceEvent};
use crate::instance::{EndReason, Owner, Record, State, Tier};
use crate::mailbox::{RemovalProof, Unexposed};
use crate::samples::{
    GENERATION, LIMITS, at, claimed, created, facts, idle, job_owner, nonce, pool, pool_owner,
    record, releasing, request_owner, running, stop_op, stopping, trust,
};

fn after(state: State, event: &InstanceEvent) -> Record {
    record(state).on(event).unwrap()
}

fn owner_of(owner: Owner) -> Authority {
    Authority::Owner { owner, generation: GENERATION }
}

fn claim_for(group: &str) -> InstanceEvent {
    InstanceEvent::Claimed {
        owner: job_owner(),
        claim: nonce(),
        trust: TrustGroup::new(group),
        seen: GENERATION,
        at: at(1),
        margin: LIMITS.not_claimable_before_deadline,
        lease: at(301),
    }
}

fn withdrawn(authority: Authority) -> InstanceEvent {
    InstanceEvent::Withdrawn { authority, warm: true, at: at(20), cap: at(9_000) }
}

fn returned(generation: Generation, removal: RemovalProof) -> InstanceEvent {
    let proof = Unexposed::assumed(generation, removal);
    InstanceEvent::Returned { proof, at: at(30), deadline: at(450), shared: true }
}

fn registered(claim: Option<ClaimId>, owner: Owner) -> InstanceEvent {
    let (deadline, cap) = (at(1_801), at(86_401));
    InstanceEvent::Registered { owner, generation: GENERATION, claim, at: at(1), deadline, cap }
}

#[test]
fn a_machine_is_born_created_for_its_owner() {
    let born = Record::born(InstanceId::new("i-1"), facts(), request_owner(), None, at(600));
    assert_eq!(born.state, created(request_owner()));
    assert_eq!((born.generation, born.revision, born.uses), (Generation(1), Revision(1), 0));
}

#[test]
fn a_created_machine_runs_once_its_owners_runner_listens() {
    let next = after(created(request_owner()), &registered(None, request_owner()));
    let (since, deadline, cap) = (at(1), at(1_801), at(86_401));
    assert_eq!(next.state, State::Running { owner: request_owner(), since, deadline, cap });
    assert_eq!((next.generation, next.uses), (GENERATION, 4), "the owner stays, the use counts");
}

#[test]
fn a_warm_machine_of_a_pool_becomes_idle_and_the_pool_is_fenced() {
    let into = AfterWarmUp::Hot { deadline: at(700), shared: false };
    let next =
        after(created(pool_owner()), &InstanceEvent::WarmedUp { pool: pool(), at: at(90), into });
    let (tier, since, deadline) = (Tier::Hot, at(90), at(700));
    assert_eq!(next.state, State::Idle { tier, since, deadline, shared: false });
    assert_eq!(next.generation, GENERATION.next());
}

#[test]
fn a_warm_machine_of_a_pool_may_be_stopped_instead() {
    let into = AfterWarmUp::ToStop { op: stop_op(), until: at(60), deadline: at(600) };
    let next =
        after(created(pool_owner()), &InstanceEvent::WarmedUp { pool: pool(), at: at(0), into });
    assert_eq!((next.state, next.generation), (stopping(), GENERATION.next()));
}

#[test]
fn a_stopped_machine_that_is_found_running_is_stopped_again() {
    let event = InstanceEvent::FoundRunning { op: stop_op(), until: at(60), deadline: at(600) };
    let next = after(idle(Tier::Stopped), &event);
    assert_eq!((next.state, next.generation), (stopping(), GENERATION));
}

#[test]
fn stopping_again_keeps_the_later_of_both_fences() {
    for (until, expected) in [(at(90), at(90)), (at(30), at(60))] {
        let op = StopOp::new("stop-2");
        let next = after(stopping(), &InstanceEvent::StopAgain { op: op.clone(), until });
        assert_eq!(next.state, State::Stopping { op, until: expected, deadline: at(600) });
    }
}

#[test]
fn a_stopped_machine_is_idle_once_no_stop_call_can_land_any_more() {
    let event = InstanceEvent::FoundStopped {
        at: at(60),
        skew: Duration::ZERO,
        deadline: at(604_860),
        shared: true,
    };
    let next = after(stopping(), &event);
    let (tier, deadline) = (Tier::Stopped, at(604_860));
    assert_eq!(next.state, State::Idle { tier, since: at(60), deadline, shared: true });
    assert_eq!(next.generation, GENERATION, "it had no owner meanwhile");
}

#[test]
fn an_idle_machine_is_claimed_with_a_nonce_a_lease_and_a_new_generation() {
    for tier in [Tier::Hot, Tier::Released, Tier::Stopped] {
        let next = after(idle(tier), &claim_for("acme/next"));
        let (owner, claim, trusted_before) = (job_owner(), nonce(), Some(trust()));
        let expected = State::Claimed { owner, claim, tier, trusted_before, lease: at(301) };
        assert_eq!((next.state, next.generation), (expected, GENERATION.next()));
        assert_eq!(next.trust, Some(TrustGroup::new("acme/next")), "the new group's code may run");
        assert_eq!(next.uses, 3, "a claim is not yet a use");
    }
}

#[test]
fn a_second_worker_of_the_owner_takes_over_and_fences_the_first() {
    let (owner, claim) = (job_owner(), ClaimId::new("claim-2"));
    let event = InstanceEvent::TakenOver {
        owner: owner.clone(),
        generation: GENERATION,
        claim: claim.clone(),
        lease: at(400),
    };
    let next = after(claimed(job_owner(), Tier::Hot), &event);
    let (tier, trusted_before) = (Tier::Hot, Some(TrustGroup::new("acme/before")));
    let expected = State::Claimed { owner, claim, tier, trusted_before, lease: at(400) };
    assert_eq!((&next.state, next.generation), (&expected, GENERATION.next()));
    let first = InstanceEvent::Renewed { claim: nonce(), generation: GENERATION, lease: at(500) };
    next.on(&first).unwrap_err();
}

#[test]
fn a_renewal_never_shortens_a_lease() {
    for (lease, expected) in [(at(360), at(360)), (at(200), at(300))] {
        let event = InstanceEvent::Renewed { claim: nonce(), generation: GENERATION, lease };
        let next = after(claimed(job_owner(), Tier::Hot), &event);
        assert_eq!((next.state.deadline(), next.generation), (expected, GENERATION));
    }
}

#[test]
fn a_claimed_machine_runs_once_its_claims_runner_listens() {
    let state = claimed(job_owner(), Tier::Stopped);
    let next = after(state, &registered(Some(nonce()), job_owner()));
    assert_eq!(next.state.name().as_str(), "running");
    assert_eq!((next.generation, next.uses), (GENERATION, 4));
}

#[test]
fn a_runtime_never_begins_past_its_cap() {
    let event = InstanceEvent::Registered {
        owner: job_owner(),
        generation: GENERATION,
        claim: Some(nonce()),
        at: at(1),
        deadline: at(100),
        cap: at(50),
    };
    assert_eq!(after(claimed(job_owner(), Tier::Hot), &event).state.deadline(), at(50));
}

#[test]
fn an_extension_moves_the_deadline_forward_and_stops_at_the_cap() {
    for (deadline, expected) in
        [(at(3_600), at(3_600)), (at(60), at(1_800)), (at(999_999), at(86_400))]
    {
        let event =
            InstanceEvent::Extended { owner: job_owner(), generation: GENERATION, deadline };
        let next = after(running(job_owner()), &event);
        assert_eq!((next.state.deadline(), next.generation), (expected, GENERATION));
    }
}

#[test]
fn an_owner_gives_back_what_is_claimed_running_or_warm() {
    let owner = request_owner;
    for state in [created(owner()), claimed(owner(), Tier::Hot), running(owner())] {
        let next = after(state, &withdrawn(owner_of(owner())));
        assert_eq!(next.state.listed_under(), Some(&owner()), "a second release finds it");
        assert_eq!(next.state.owner(), None, "but no owner may act on it");
        assert_eq!((next.state.deadline(), next.generation), (at(9_000), GENERATION.next()));
    }
}

#[test]
fn the_reaper_takes_back_what_is_past_its_deadline() {
    for state in [claimed(job_owner(), Tier::Hot), running(job_owner())] {
        let deadline = Authority::Deadline { at: state.deadline() };
        let next = after(state, &withdrawn(deadline));
        assert_eq!(next.state.name().as_str(), "releasing");
        assert_eq!(next.generation, GENERATION.next());
    }
}

#[test]
fn a_claim_that_was_never_exposed_comes_back_as_what_it_was() {
    for tier in [Tier::Hot, Tier::Released, Tier::Stopped] {
        let event = returned(GENERATION, RemovalProof::NeverAssigned);
        let next = after(releasing(job_owner(), tier), &event);
        assert_eq!(next.trust, Some(TrustGroup::new("acme/before")), "trust is restored");
        let (since, deadline) = (at(30), at(450));
        assert_eq!(next.state, State::Idle { tier, since, deadline, shared: true });
        assert_eq!(next.generation, GENERATION);
    }
}

#[test]
fn an_unused_machine_stays_unused_when_it_was_never_exposed() {
    let fresh = Record { trust: None, ..record(idle(Tier::Hot)) };
    let claimed = fresh.on(&claim_for("acme/next")).unwrap();
    let owner = Authority::Owner { owner: job_owner(), generation: claimed.generation };
    let releasing = claimed.on(&withdrawn(owner)).unwrap();
    let back = releasing.on(&returned(releasing.generation, RemovalProof::NeverAssigned)).unwrap();
    assert_eq!((back.trust, back.uses), (None, 3));
    assert!(matches!(back.state, State::Idle { tier: Tier::Hot, .. }), "{:?}", back.state);
}

#[test]
fn a_machine_whose_listener_was_removed_counts_as_used() {
    for tier in [Tier::Hot, Tier::Released, Tier::Stopped] {
        let event = returned(GENERATION, RemovalProof::Acknowledged);
        let next = after(releasing(job_owner(), tier), &event);
        assert_eq!(next.trust, Some(trust()), "the owner's code may have run");
        assert!(matches!(next.state, State::Idle { tier: Tier::Released, .. }), "{:?}", next.state);
    }
}

#[test]
fn a_stopped_machine_that_never_started_comes_back_stopped() {
    let event = returned(GENERATION, RemovalProof::MachineStopped);
    let next = after(releasing(job_owner(), Tier::Stopped), &event);
    assert!(matches!(next.state, State::Idle { tier: Tier::Stopped, .. }), "{:?}", next.state);
    assert_eq!(next.trust, Some(trust()), "it was assigned, so it keeps the owner's group");
}

#[test]
fn ending_fences_everyone_and_keeps_its_reason_into_the_tombstone() {
    let generation = GENERATION;
    for (state, authority, why) in [
        (idle(Tier::Hot), Authority::Deadline { at: at(420) }, EndReason::DeadlinePassed),
        (idle(Tier::Hot), Authority::Pool { pool: pool() }, EndReason::Surplus),
        (stopping(), Authority::Pool { pool: pool() }, EndReason::Outdated),
        (created(pool_owner()), Authority::Pool { pool: pool() }, EndReason::FailedWarmUp),
        (claimed(job_owner(), Tier::Hot), owner_of(job_owner()), EndReason::FailedChecks),
        (running(job_owner()), Authority::Operator, EndReason::Operator),
        (running(job_owner()), Authority::Cloud, EndReason::MachineGone),
        (releasing(job_owner(), Tier::Hot), Authority::Release { generation }, EndReason::WornOut),
    ] {
        let ending = after(state, &InstanceEvent::Condemned { authority, why, at: at(40) });
        assert_eq!(ending.state, State::Terminating { why, since: at(40) });
        assert_eq!(ending.generation, GENERATION.next());
        let gone = ending.on(&InstanceEvent::Gone { at: at(50), forget_at: at(700) }).unwrap();
        assert_eq!(gone.state, State::Terminated { why, at: at(50), forget_at: at(700) });
        assert!(!gone.state.is_live());
    }
}

#[test]
fn only_a_shared_idle_machine_is_advertised() {
    let advert = record(idle(Tier::Hot)).advert().unwrap();
    assert_eq!((advert.generation, advert.deadline), (Some(GENERATION), at(420)));
    let (tier, since, deadline) = (Tier::Hot, at(0), at(420));
    assert_eq!(record(State::Idle { tier, since, deadline, shared: false }).advert(), None);
    assert_eq!(record(claimed(job_owner(), Tier::Hot)).advert(), None);
}
