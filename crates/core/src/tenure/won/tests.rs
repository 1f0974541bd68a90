//! Tests of what proves that a machine is won.
//!
//! Not here: what is done with it (`prepare`).

use super::*;
use crate::ids::ClaimId;
use crate::samples::{
    GENERATION, LIMITS, at, claimed, created, idle, job_owner, nonce, record, releasing,
    request_owner, running, trust,
};

/// The write of a claim that saw the generation before the sample records'.
fn write(claim: ClaimId) -> ClaimWrite {
    ClaimWrite {
        id: record(idle(Tier::Hot)).id,
        seen: Generation(GENERATION.0 - 1),
        owner: request_owner(),
        claim,
        trust: trust(),
        at: at(0),
        margin: LIMITS.not_claimable_before_deadline,
        lease: at(60),
    }
}

fn stored() -> Record {
    record(claimed(request_owner(), Tier::Released))
}

#[test]
fn a_lost_answer_is_settled_by_the_nonce_and_not_by_the_owner() {
    let landed = settle(&write(nonce()), Some(stored()));
    assert!(matches!(landed, SettledClaim::Won(won) if *won.record() == stored()));
    let twin = settle(&write(ClaimId::new("of-a-twin")), Some(stored()));
    assert_eq!(twin, SettledClaim::Lost, "another worker of the same owner won");
    assert_eq!(settle(&write(nonce()), None), SettledClaim::Lost);
}

#[test]
fn a_claim_that_has_not_landed_is_made_again_only_on_the_generation_that_it_saw() {
    let mut still = record(idle(Tier::Hot));
    still.generation = Generation(GENERATION.0 - 1);
    assert_eq!(settle(&write(nonce()), Some(still)), SettledClaim::Again);
    let back = record(idle(Tier::Hot));
    assert_eq!(settle(&write(nonce()), Some(back)), SettledClaim::Lost, "another had it since");
}

#[test]
fn only_a_created_or_claimed_record_proves_that_its_owner_has_it() {
    for (tier, kind) in [
        (Tier::Hot, CheckKind::Warm),
        (Tier::Released, CheckKind::Warm),
        (Tier::Stopped, CheckKind::Started),
    ] {
        let won = Won::held(record(claimed(job_owner(), tier)), &job_owner()).unwrap();
        assert_eq!((won.kind(), &won.owner), (kind, &job_owner()));
    }
    let won = Won::held(record(created(request_owner())), &request_owner()).unwrap();
    assert_eq!(won.kind(), CheckKind::Created);
    for state in [idle(Tier::Hot), running(job_owner()), releasing(job_owner(), Tier::Hot)] {
        assert_eq!(Won::held(record(state), &job_owner()), None);
    }
}

#[test]
fn a_machine_that_another_owner_has_by_now_is_not_won() {
    for state in [created(job_owner()), claimed(job_owner(), Tier::Hot)] {
        assert_eq!(Won::held(record(state), &request_owner()), None);
    }
}

#[test]
fn what_is_won_can_be_given_back_or_ended_in_its_owners_name() {
    for state in [created(job_owner()), claimed(job_owner(), Tier::Hot)] {
        let won = Won::held(record(state), &job_owner()).unwrap();
        let back = won.record().on(&won.given_back(at(5), &LIMITS)).unwrap();
        assert!(matches!(back.state, State::Releasing { .. }));
        let ended = won.record().on(&won.condemned(EndReason::FailedWarmUp, at(5))).unwrap();
        let State::Terminating { why, .. } = ended.state else { panic!("{ended:?}") };
        assert_eq!(why, EndReason::FailedWarmUp);
    }
}
