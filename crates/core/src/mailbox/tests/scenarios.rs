//! Failures of earlier drafts of the protocol, step by step, and what happens now.
//!
//! Not here: all the other interleavings (`exploration`).

use crate::ids::{ClaimId, Generation};
use crate::instance::{Authority, InstanceEvent, InstanceRefusal, Record, State, Tier};
use crate::mailbox::agent::{ActedOn, Reaction, react};
use crate::mailbox::{
    Exposed, Inbox, RemovalProof, Report, Signal, SignalKind, WithdrawalMode, prove_unexposed,
};
use crate::samples::{
    LIMITS, assigned, assignment, at, drain, idle, inbox, job_owner, record, stop, trust,
    withdrawal,
};

/// The release's view: withdrawn at `generation`, with the agent's report.
fn judged(inbox: &Inbox, report: &Report, generation: u64) -> Result<RemovalProof, Exposed> {
    let proof = prove_unexposed(Some(inbox), Some(report), Generation(generation), false)?;
    Ok(proof.removal())
}

fn acknowledge(report: &mut Report, generation: u64) {
    let signal = Signal {
        generation: Generation(generation),
        owner: None,
        at: at(9),
        detail: String::new(),
        ran: None,
    };
    report.signals.insert(SignalKind::Removed, signal);
}

/// An agent listens for generation 1; the releaser stores its withdrawal (2); the reaper's own
/// withdrawal of the same generation is refused, and it must not conclude that no runner listens.
#[test]
fn a_reaper_whose_withdrawal_is_refused_still_sees_the_listener() {
    let (mut report, agent) = (
        Report::default(),
        ActedOn { rank: Some(assigned(1).rank()), listener: Some(assignment(1)) },
    );
    let stored = inbox([assigned(1), stop(2)]);
    Inbox::accept(Some(&stored), stop(2)).unwrap_err();

    let (assigned, removed) = (Generation(1), Generation(0));
    let exposed = Err(Exposed::Unacknowledged { assigned, removed });
    assert_eq!(judged(&stored, &report, 2), exposed, "exposure is remembered in the inbox");

    let removal = Reaction::Remove(withdrawal(2, WithdrawalMode::Stop));
    assert_eq!(react(&agent, Some(&stored), false, at(1)), removal);
    acknowledge(&mut report, 2);
    assert_eq!(judged(&stored, &report, 2), Ok(RemovalProof::Acknowledged));
}

/// An assignment got no answer, was looked up, was not there, and then lands.
#[test]
fn an_assignment_that_lands_after_it_was_looked_up_is_not_called_unexposed() {
    let report = Report::default();
    let looked_up = prove_unexposed(None, Some(&report), Generation(2), false);
    let not_withdrawn = Err(Exposed::NotWithdrawn { generation: Generation(2) });
    assert_eq!(looked_up, not_withdrawn, "an empty inbox proves nothing");

    let landed = Inbox::accept(None, assigned(1)).unwrap();
    let withdrawn = Inbox::accept(Some(&landed), stop(2)).unwrap();
    judged(&withdrawn, &report, 2).unwrap_err();
}

/// The same, but the withdrawal is stored first: then the assignment cannot land any more.
#[test]
fn an_assignment_that_lands_after_the_withdrawal_is_refused() {
    let withdrawn = Inbox::accept(None, stop(2)).unwrap();
    assert_eq!(judged(&withdrawn, &Report::default(), 2), Ok(RemovalProof::NeverAssigned));
    Inbox::accept(Some(&withdrawn), assigned(1)).unwrap_err();
}

fn claim(from: &Record, nonce: &str) -> Record {
    let event = InstanceEvent::Claimed {
        owner: job_owner(),
        claim: ClaimId::new(nonce),
        trust: trust(),
        seen: from.generation,
        at: at(1),
        margin: LIMITS.not_claimable_before_deadline,
        lease: at(301),
    };
    from.on(&event).unwrap()
}

fn release(from: &Record, generation: Generation) -> Result<Record, InstanceRefusal> {
    let authority = Authority::Owner { owner: job_owner(), generation };
    from.on(&InstanceEvent::Withdrawn { authority, warm: true, at: at(2), cap: at(9_000) })
}

/// A releaser reads a claim and stalls; the same owner releases and claims again; the stale write
/// names the right owner.
#[test]
fn a_stalled_release_does_not_take_the_owners_next_claim() {
    let first = claim(&record(idle(Tier::Hot)), "claim-1");
    let stalled = first.generation;

    let releasing = release(&first, first.generation).unwrap();
    let withdrawn = Inbox::accept(None, stop(releasing.generation.0)).unwrap();
    let proof = prove_unexposed(Some(&withdrawn), None, releasing.generation, false).unwrap();
    let returned = InstanceEvent::Returned { proof, at: at(3), deadline: at(423), shared: true };
    let second = claim(&releasing.on(&returned).unwrap(), "claim-2");

    assert_eq!(second.state.owner(), first.state.owner(), "the owner is the same");
    let (claimed, actual) = (stalled, second.generation);
    assert_eq!(release(&second, stalled), Err(InstanceRefusal::Fenced { claimed, actual }));
    assert!(matches!(second.state, State::Claimed { .. }));
}

/// A withdrawal follows its assignment before the agent has read: the agent sees nothing to remove,
/// but the release still waits for its acknowledgement.
#[test]
fn a_withdrawal_that_overtakes_its_assignment_is_acknowledged() {
    for order in [drain(2), stop(2)] {
        let (stored, mut report) = (inbox([assigned(1), order]), Report::default());
        judged(&stored, &report, 2).unwrap_err();
        for agent in [ActedOn::default(), ActedOn { rank: Some(stop(0).rank()), listener: None }] {
            let reaction = react(&agent, Some(&stored), false, at(1));
            assert!(matches!(reaction, Reaction::Remove(_)), "{reaction:?}");
        }
        acknowledge(&mut report, 2);
        assert_eq!(
            judged(&stored, &report, 2),
            Ok(RemovalProof::Acknowledged),
            "a healthy machine"
        );
    }
}

/// A claimer stalls between its claim and its assignment; meanwhile its claim is released, and
/// another owner claims and assigns the machine.
#[test]
fn a_stalled_assignment_does_not_reach_the_agent_of_the_next_owner() {
    let next = inbox([stop(3), assigned(4)]);
    Inbox::accept(Some(&next), assigned(2)).unwrap_err();
    let agent = ActedOn { rank: Some(assigned(4).rank()), listener: Some(assignment(4)) };
    let stale = inbox([assigned(2)]);
    assert_eq!(
        react(&agent, Some(&stale), false, at(1)),
        Reaction::Wait,
        "not even by a stale read"
    );
}
