//! Which order may follow which, what a withdrawal keeps, and that secrets are never printed.
//!
//! Not here: how an agent reacts to an order (`reactions`).

use crate::ids::Generation;
use crate::mailbox::{Assignment, Credential, Inbox, Order, Secret};
use crate::samples::{assigned, assignment, drain, inbox, stop, withdrawal};

#[test]
fn orders_rank_by_generation_and_then_by_how_far_they_go() {
    let ascending = [assigned(1), drain(1), stop(1), assigned(2), drain(2), stop(2), stop(3)];
    for (index, order) in ascending.iter().enumerate() {
        for (other, later) in ascending.iter().enumerate() {
            assert_eq!(order.rank() < later.rank(), index < other, "{order:?} and {later:?}");
        }
    }
}

#[test]
fn an_order_is_taken_exactly_if_it_ranks_higher_than_the_stored_one() {
    let all = [assigned(1), drain(1), stop(1), assigned(2), drain(2), stop(2)];
    for stored in &all {
        let inbox = inbox([stored.clone()]);
        for order in &all {
            let taken = Inbox::accept(Some(&inbox), order.clone());
            assert_eq!(taken.is_ok(), order.rank() > stored.rank(), "{order:?} over {stored:?}");
            if let Err(overtaken) = taken {
                assert_eq!(overtaken.stored, stored.rank());
            }
        }
    }
}

#[test]
fn any_order_is_taken_by_an_empty_mailbox() {
    assert_eq!(Inbox::accept(None, assigned(4)).unwrap().assigned, Generation(4));
    for order in [drain(4), stop(4)] {
        let stored = Inbox::accept(None, order).unwrap();
        assert_eq!(stored.assigned, Generation(0), "nothing was ever assigned");
    }
}

#[test]
fn a_claimer_that_stalled_cannot_overwrite_a_newer_assignment() {
    let newer = inbox([assigned(2), stop(3), assigned(4)]);
    let error = Inbox::accept(Some(&newer), assigned(2)).unwrap_err();
    assert_eq!(error.to_string(), "the mailbox already holds an order of generation 4");
}

#[test]
fn the_same_order_twice_is_stored_once() {
    for order in [assigned(2), drain(2), stop(2)] {
        Inbox::accept(Some(&inbox([order.clone()])), order).unwrap_err();
    }
}

#[test]
fn a_withdrawal_never_erases_what_was_assigned() {
    let stored = inbox([assigned(2), drain(3), stop(3)]);
    assert_eq!(stored.assigned, Generation(2));
    let again = Inbox::accept(Some(&stored), stop(5)).unwrap();
    assert_eq!(again.assigned, Generation(2), "not by a second one either");
}

#[test]
fn a_drain_becomes_a_stop_at_the_same_generation_and_never_the_reverse() {
    let draining = inbox([assigned(2), drain(3)]);
    let stopping = Inbox::accept(Some(&draining), stop(3)).unwrap();
    assert_eq!(stopping.order, stop(3));
    Inbox::accept(Some(&stopping), drain(3)).unwrap_err();
}

#[test]
fn a_credential_is_removed_only_from_its_own_generation() {
    let stored = inbox([assigned(2)]);
    let redacted = stored.redacted(Generation(2)).unwrap();
    let expected = Assignment { credential: None, ..assignment(2) };
    assert_eq!(redacted, Inbox { assigned: Generation(2), order: Order::Assigned(expected) });
    assert_eq!(stored.redacted(Generation(1)), None, "of an earlier claim");
    assert_eq!(redacted.redacted(Generation(2)), None, "there is none any more");
    assert_eq!(inbox([assigned(2), drain(2)]).redacted(Generation(2)), None, "withdrawn");
}

#[test]
fn a_redacted_assignment_still_fences() {
    let redacted = inbox([assigned(2)]).redacted(Generation(2)).unwrap();
    Inbox::accept(Some(&redacted), assigned(2)).unwrap_err();
    assert_eq!(Inbox::accept(Some(&redacted), drain(3)).unwrap().assigned, Generation(2));
}

#[test]
fn secrets_are_never_printed() {
    let mut token = assignment(2);
    token.credential = Some(Credential::RegistrationToken(Secret::new("token-secret")));
    let mut removal = withdrawal(3, crate::mailbox::WithdrawalMode::Stop);
    removal.removal_token = Some(Secret::new("removal-secret"));
    for printed in [
        format!("{:?}", assignment(2)),
        format!("{:#?}", inbox([assigned(2)])),
        format!("{token:?}"),
        format!("{:?}", Order::Withdrawn(removal)),
    ] {
        assert!(!printed.contains("-secret"), "{printed}");
        assert!(printed.contains("Secret(***)"), "{printed}");
    }
}
