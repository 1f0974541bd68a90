//! How an agent reacts to its inbox, in every phase.
//!
//! Not here: what the control plane concludes from the answers (`exposure`).

use crate::ids::{Generation, RunnerName};
use crate::instance::Owner;
use crate::mailbox::agent::{ActedOn, Reaction, react};
use crate::mailbox::{Assignment, Credential, Order, Secret, WithdrawalMode};
use crate::samples::{assigned, assignment, at, drain, inbox, stop, withdrawal};

/// An agent that acted on `order` last and has no listener.
fn waiting_after(order: &Order) -> ActedOn {
    ActedOn { rank: Some(order.rank()), listener: None }
}

/// An agent whose listener serves this generation.
fn listening(generation: u64) -> ActedOn {
    let listener = Some(assignment(generation));
    ActedOn { rank: Some(assigned(generation).rank()), listener }
}

#[test]
fn without_an_inbox_there_is_nothing_to_do() {
    assert_eq!(react(&ActedOn::default(), None, false, at(0)), Reaction::Wait);
}

#[test]
fn an_assignment_starts_a_listener_once() {
    let inbox = inbox([assigned(2)]);
    let mut acted = ActedOn::default();
    assert_eq!(react(&acted, Some(&inbox), false, at(0)), Reaction::Start(assignment(2)));
    acted.done(inbox.order.rank());
    acted.listener = Some(assignment(2));
    assert_eq!(react(&acted, Some(&inbox), false, at(0)), Reaction::Wait);
    assert_eq!(acted.serves(), Some(Generation(2)));
}

#[test]
fn a_redacted_assignment_is_not_news() {
    let redacted = inbox([assigned(2)]).redacted(Generation(2)).unwrap();
    assert_eq!(react(&listening(2), Some(&redacted), false, at(0)), Reaction::Wait);
}

#[test]
fn a_read_of_something_older_changes_nothing() {
    for order in [assigned(2), drain(2), stop(2), assigned(3), drain(3), stop(3)] {
        let reaction = react(&waiting_after(&stop(3)), Some(&inbox([order])), false, at(0));
        assert_eq!(reaction, Reaction::Wait);
    }
}

#[test]
fn what_was_done_is_never_forgotten_for_something_older() {
    let mut acted = waiting_after(&stop(3));
    acted.done(assigned(2).rank());
    assert_eq!(acted, waiting_after(&stop(3)));
}

#[test]
fn an_assignment_past_its_time_to_register_starts_nothing() {
    let late = Assignment { register_by: Some(at(20)), ..assignment(2) };
    let inbox = inbox([Order::Assigned(late.clone())]);
    let acted = ActedOn::default();
    assert_eq!(react(&acted, Some(&inbox), false, at(19)), Reaction::Start(late.clone()));
    assert_eq!(react(&acted, Some(&inbox), false, at(20)), Reaction::TooLate(late));
}

#[test]
fn the_listener_is_adopted_when_the_same_owner_takes_the_claim_over() {
    let inbox = inbox([assigned(3)]);
    assert_eq!(react(&listening(2), Some(&inbox), false, at(0)), Reaction::Adopt(assignment(3)));
}

#[test]
fn a_listener_of_another_owner_credential_or_name_is_not_adopted() {
    let other = Some(Credential::Jit(Secret::new("another")));
    for assignment in [
        Assignment { owner: Owner::Job("4243".into()), ..assignment(3) },
        Assignment { credential: other, ..assignment(3) },
        Assignment { runner: RunnerName::new("bullpen-4242-2"), ..assignment(3) },
    ] {
        let inbox = inbox([Order::Assigned(assignment.clone())]);
        assert_eq!(react(&listening(2), Some(&inbox), false, at(0)), Reaction::Start(assignment));
    }
}

#[test]
fn an_adopted_listener_needs_no_time_to_register() {
    let late = Assignment { register_by: Some(at(20)), ..assignment(3) };
    let inbox = inbox([Order::Assigned(late.clone())]);
    assert_eq!(react(&listening(2), Some(&inbox), false, at(99)), Reaction::Adopt(late));
}

#[test]
fn a_drain_leaves_a_listener_alone_and_the_stop_ends_it() {
    let draining = inbox([assigned(2), drain(3)]);
    let mut acted = listening(2);
    let drained = Reaction::Drain(withdrawal(3, WithdrawalMode::Drain));
    assert_eq!(react(&acted, Some(&draining), false, at(0)), drained);
    acted.done(draining.order.rank());
    assert_eq!(react(&acted, Some(&draining), false, at(0)), Reaction::Wait);
    let stopping = inbox([assigned(2), drain(3), stop(3)]);
    let removed = Reaction::Remove(withdrawal(3, WithdrawalMode::Stop));
    assert_eq!(react(&acted, Some(&stopping), false, at(0)), removed);
}

#[test]
fn a_stop_lets_a_running_job_end_first() {
    let stopping = inbox([assigned(2), drain(3), stop(3)]);
    let waits = Reaction::AwaitJob(withdrawal(3, WithdrawalMode::Stop));
    assert_eq!(react(&listening(2), Some(&stopping), true, at(0)), waits);
    let removed = Reaction::Remove(withdrawal(3, WithdrawalMode::Stop));
    assert_eq!(react(&listening(2), Some(&stopping), false, at(0)), removed);
}

#[test]
fn a_restarted_agent_adopts_the_listener_it_finds() {
    let redacted = inbox([assigned(2)]).redacted(Generation(2)).unwrap();
    let found = ActedOn { rank: None, listener: Some(assignment(2)) };
    let reaction = react(&found, Some(&redacted), true, at(0));
    assert!(matches!(reaction, Reaction::Adopt(_)), "{reaction:?}");
}

#[test]
fn a_withdrawal_is_acknowledged_in_every_phase() {
    for (mode, order) in [(WithdrawalMode::Drain, drain(3)), (WithdrawalMode::Stop, stop(3))] {
        let inbox = inbox([order]);
        let removed = Reaction::Remove(withdrawal(3, mode));
        for acted in [
            ActedOn::default(),
            waiting_after(&assigned(2)),
            waiting_after(&drain(2)),
            waiting_after(&stop(2)),
        ] {
            assert_eq!(react(&acted, Some(&inbox), false, at(0)), removed, "{acted:?}");
        }
    }
}
