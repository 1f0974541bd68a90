//! Tests of what a process does about a tenure that another began.
//!
//! Not here: the rows of jobs (`job`).

use super::*;
use crate::instance::Tier;
use crate::mailbox::{Assignment, Signal};
use crate::samples::{
    GENERATION, LIMITS, assigned, assignment, at, claimed, created, drain, inbox, job_owner,
    record, running, stop,
};

const RUNTIME: Duration = Duration::from_secs(3_600);

fn report(kinds: &[SignalKind]) -> Report {
    let signal = || Signal {
        generation: GENERATION,
        owner: None,
        at: at(20),
        detail: String::new(),
        ran: None,
    };
    Report { beat: None, signals: kinds.iter().map(|kind| (*kind, signal())).collect() }
}

fn decided(
    record: &Record,
    inbox: Option<&Inbox>,
    report: &Report,
    told_by: Option<Timestamp>,
    now: Timestamp,
) -> LeftAction {
    left(record, (inbox, report), told_by, RUNTIME, now, &LIMITS)
}

/// When the assignment must be registered.
const REGISTER_BY: u64 = 30;

fn told() -> Inbox {
    let assignment = assignment(GENERATION.0);
    let register_by = Some(at(REGISTER_BY));
    inbox([Order::Assigned(Assignment { register_by, ..assignment })])
}

#[test]
fn a_machine_whose_agent_was_never_told_is_still_good() {
    for state in [created(job_owner()), claimed(job_owner(), Tier::Hot)] {
        let (record, silent) = (record(state), report(&[]));
        let older = inbox([assigned(GENERATION.0 - 1)]);
        for inbox in [None, Some(&older)] {
            let of = |told_by, now| decided(&record, inbox, &silent, told_by, now);
            assert_eq!(of(Some(at(9)), at(8)), LeftAction::LookAgain(at(9)), "its worker may live");
            assert_eq!(of(Some(at(9)), at(9)), LeftAction::Untold);
            assert_eq!(of(None, at(0)), LeftAction::Untold);
        }
    }
}

#[test]
fn a_withdrawn_machine_is_left_to_its_worker_and_the_reaper() {
    let record = record(claimed(job_owner(), Tier::Hot));
    for order in [drain(GENERATION.0), stop(GENERATION.0)] {
        let inbox = inbox([assigned(GENERATION.0), order]);
        let listens = report(&[SignalKind::Registered]);
        let action = decided(&record, Some(&inbox), &listens, None, at(100_000));
        assert_eq!(action, LeftAction::LookAgain(at(100_000).after(LIMITS.row_look_again)));
    }
}

#[test]
fn a_runner_that_listens_is_marked_whenever_it_is_seen() {
    for state in [created(job_owner()), claimed(job_owner(), Tier::Stopped)] {
        let (record, inbox) = (record(state), told());
        for now in [at(0), at(100_000)] {
            let listens = report(&[SignalKind::Registered]);
            let action = decided(&record, Some(&inbox), &listens, None, now);
            let event = registered(&record, RUNTIME, now, &LIMITS).unwrap();
            assert_eq!(action, LeftAction::MarkRunning(event));
        }
    }
}

#[test]
fn a_runner_that_may_still_register_is_waited_for_on_every_clock() {
    let record = record(claimed(job_owner(), Tier::Hot));
    let (inbox, silent) = (told(), report(&[]));
    let over = at(REGISTER_BY).after(LIMITS.clock_skew);
    let of = |now| decided(&record, Some(&inbox), &silent, None, now);
    assert_eq!(of(over.before(Duration::from_millis(1))), LeftAction::LookAgain(over));
    assert_eq!(of(over), LeftAction::DeleteRunner { register_by: at(REGISTER_BY) });
}

#[test]
fn only_githubs_word_ends_a_machine_whose_runner_is_late() {
    let after = |deletion| {
        let answer = (deletion, at(10));
        let now = at(10).after(LIMITS.clock_skew);
        left_after_removal(&job_owner(), GENERATION, answer, now, &LIMITS)
    };
    for deletion in [Deletion::Deleted, Deletion::NotFound] {
        let event = after(deletion).unwrap();
        let ended = record(claimed(job_owner(), Tier::Hot)).on(&event).unwrap();
        let State::Terminating { why, .. } = ended.state else { panic!("{ended:?}") };
        assert_eq!(why, EndReason::FailedChecks);
    }
    let again = at(10).after(LIMITS.clock_skew).after(LIMITS.release_retry);
    for deletion in [Deletion::Busy, Deletion::Unavailable] {
        assert_eq!(after(deletion), Err(again), "{deletion:?}");
    }
}

#[test]
fn a_running_machine_is_judged_by_its_runner() {
    let record = record(running(job_owner()));
    let State::Running { since, .. } = record.state else { panic!("{record:?}") };
    let action = decided(&record, None, &report(&[]), None, at(100_000));
    assert_eq!(action, LeftAction::Listens { since });
}

#[test]
fn a_runner_that_listens_waits_until_it_has_ended_or_works_for_another_job() {
    let of = |kinds: &[SignalKind], now| {
        left_listening(&report(kinds), GENERATION, at(10), now, &LIMITS)
    };
    let patience = register_by(CheckKind::Warm, at(10), &LIMITS).after(LIMITS.clock_skew);
    let (started, ended) = (SignalKind::JobStarted, SignalKind::ListenerEnded);
    let just_before = patience.before(Duration::from_millis(1));
    assert_eq!(of(&[started], just_before), ListeningRunner::IsPatient(patience));
    let given_by = at(10 + 180);
    let almost = given_by.before(Duration::from_millis(1));
    assert_eq!(of(&[], almost), ListeningRunner::IsPatient(given_by));
    assert_eq!(of(&[], given_by), ListeningRunner::IsNeglected);
    assert_eq!(of(&[ended], at(11)), ListeningRunner::HasEnded);
    assert_eq!(of(&[started, ended], at(11)), ListeningRunner::IsTaken);
    let taken = at(20).after(LIMITS.fleet_validation + LIMITS.clock_skew);
    let just_before = taken.before(Duration::from_millis(1));
    assert_eq!(of(&[started], just_before), ListeningRunner::Waits, "that job may have a machine");
    assert_eq!(of(&[started], taken), ListeningRunner::IsTaken);
}
