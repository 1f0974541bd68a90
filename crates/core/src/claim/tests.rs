//! Tests of the checks: each deadline from both sides, and what follows a failed check.
//!
//! Not here: the steps of a claim (`tenure`).

use super::*;
use crate::mailbox::{Beat, Signal};
use crate::samples::{LIMITS, at, beat};

const G: Generation = Generation(5);

/// A report with these signals of generation 5 and a beat that is always fresh.
fn report(kinds: &[SignalKind], now: Timestamp) -> Report {
    let signal =
        || Signal { generation: G, owner: None, at: now, detail: String::new(), ran: None };
    Report {
        beat: Some(beat(8, now)),
        signals: kinds.iter().map(|kind| (*kind, signal())).collect(),
    }
}

fn watch(kind: CheckKind) -> ReportWatch {
    ReportWatch { generation: G, since: at(0), kind, beat_seen: Some(beat(7, at(0))) }
}

/// The result of a check `millis` after the watch began.
fn checked(kind: CheckKind, kinds: &[SignalKind], millis: u64) -> Option<Check> {
    let now = at(0).after(Duration::from_millis(millis));
    check(&watch(kind), Some(&report(kinds, now)), &LIMITS, now)
}

const fn failed(failure: CheckFailure) -> Check {
    Check::Failed(failure)
}

/// For each kind of machine: when the acknowledgement and when the registration is overdue.
fn deadlines() -> [(CheckKind, u64, u64); 3] {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap();
    let (warm, started) = (LIMITS.assignment_acknowledged, LIMITS.first_beat_stopped);
    let created = LIMITS.fleet_validation;
    [
        (CheckKind::Warm, millis(warm), millis(warm + LIMITS.registration)),
        (CheckKind::Started, millis(started), millis(started + LIMITS.registration_stopped)),
        (CheckKind::Created, millis(created), millis(created)),
    ]
}

#[test]
fn an_assignment_must_be_acknowledged_in_time() {
    for (kind, acknowledge, _) in deadlines() {
        let warm = [SignalKind::WarmUpOk];
        assert_eq!(checked(kind, &warm, acknowledge - 1), None, "{kind:?}");
        let late = checked(kind, &warm, acknowledge);
        assert_eq!(late, Some(failed(CheckFailure::NotAcknowledged)), "{kind:?}");
    }
}

#[test]
fn an_acknowledged_assignment_must_register_in_time() {
    for (kind, _, register) in deadlines() {
        let acknowledged = [SignalKind::WarmUpOk, SignalKind::Acknowledged];
        assert_eq!(checked(kind, &acknowledged, register - 1), None, "{kind:?}");
        let late = checked(kind, &acknowledged, register);
        assert_eq!(late, Some(failed(CheckFailure::NotRegistered)), "{kind:?}");
    }
}

#[test]
fn a_machine_that_reports_nothing_at_all_fails_at_the_first_deadline() {
    for (kind, acknowledge, _) in deadlines() {
        let silent = |millis| {
            let now = at(0).after(Duration::from_millis(millis));
            check(&watch(kind), None, &LIMITS, now)
        };
        assert_eq!(silent(acknowledge - 1), None, "{kind:?}");
        let expected = match kind {
            CheckKind::Created => CheckFailure::NotWarm,
            CheckKind::Warm | CheckKind::Started => CheckFailure::NotAcknowledged,
        };
        assert_eq!(silent(acknowledge), Some(failed(expected)), "{kind:?}");
    }
}

#[test]
fn a_listener_that_listens_passes_at_once_and_late() {
    let listens = [SignalKind::Acknowledged, SignalKind::Registered];
    for (kind, _, register) in deadlines() {
        for millis in [0, 1, register - 1, register, 10 * register] {
            assert_eq!(
                checked(kind, &listens, millis),
                Some(Check::Passed),
                "{kind:?} at {millis}"
            );
        }
    }
}

#[test]
fn a_listener_on_a_silent_machine_passes_only_when_it_beats_again() {
    for (kind, _, register) in deadlines() {
        let listens = report(&[SignalKind::Acknowledged, SignalKind::Registered], at(0));
        let stale = |seen: Option<u64>, millis| {
            let mut report = listens.clone();
            report.beat = report.beat.map(|beat| Beat { at: at(90_000), ..beat });
            let watch = ReportWatch { beat_seen: seen.map(|seq| beat(seq, at(0))), ..watch(kind) };
            check(&watch, Some(&report), &LIMITS, at(0).after(Duration::from_millis(millis)))
        };
        assert_eq!(stale(Some(8), register - 1), None);
        assert_eq!(stale(Some(8), register), Some(failed(CheckFailure::Silent)), "{kind:?}");
        assert_eq!(
            stale(None, register),
            Some(failed(CheckFailure::Silent)),
            "no evidence by its time"
        );
        assert_eq!(stale(Some(7), register), Some(Check::Passed), "it advanced while watched");
    }
}

#[test]
fn signals_of_another_generation_say_nothing() {
    let now = at(1);
    let mut report = report(&[SignalKind::Acknowledged, SignalKind::Registered], now);
    for signal in report.signals.values_mut() {
        signal.generation = Generation(4);
    }
    assert_eq!(check(&watch(CheckKind::Warm), Some(&report), &LIMITS, now), None);
    let (_, acknowledge, _) = deadlines()[0];
    let late = at(0).after(Duration::from_millis(acknowledge));
    let check = check(&watch(CheckKind::Warm), Some(&report), &LIMITS, late);
    assert_eq!(check, Some(failed(CheckFailure::NotAcknowledged)));
}

#[test]
fn a_failed_registration_fails_at_once() {
    for (kind, ..) in deadlines() {
        let kinds = [SignalKind::Acknowledged, SignalKind::RegistrationFailed];
        assert_eq!(checked(kind, &kinds, 0), Some(failed(CheckFailure::RegistrationFailed)));
    }
}

#[test]
fn a_failed_warm_up_fails_a_created_machine_at_once() {
    let kinds = [SignalKind::WarmUpFailed];
    assert_eq!(checked(CheckKind::Created, &kinds, 0), Some(failed(CheckFailure::WarmUpFailed)));
    assert_eq!(checked(CheckKind::Warm, &kinds, 0), None, "it was warm before");
}

#[test]
fn a_deleted_runner_ends_its_machine_and_a_busy_one_is_counted() {
    for register_by in [None, Some(at(10))] {
        let after = |deletion| after_removal(deletion, register_by, &LIMITS, at(0));
        assert_eq!(after(Deletion::Deleted), AfterRemoval::End);
        assert_eq!(after(Deletion::Busy), AfterRemoval::Running);
        assert_eq!(after(Deletion::Unavailable), AfterRemoval::GiveBack, "never its fault");
    }
}

#[test]
fn a_runner_that_is_not_found_says_nothing_while_it_may_still_register() {
    let after = |register_by, now| after_removal(Deletion::NotFound, register_by, &LIMITS, now);
    assert_eq!(after(None, at(0)), AfterRemoval::End, "with a JIT configuration it was there");
    let judged_at = at(10).after(LIMITS.clock_skew);
    let just_before = judged_at.before(Duration::from_millis(1));
    for now in [at(0), at(10), just_before] {
        assert_eq!(after(Some(at(10)), now), AfterRemoval::AskAgain { at: judged_at });
    }
    assert_eq!(after(Some(at(10)), judged_at), AfterRemoval::End);
}

#[test]
fn a_failure_is_told_in_one_line_with_the_machines_own_words() {
    let mut report = report(&[SignalKind::WarmUpFailed], at(0));
    let detail = "pre-runner: exit status 3\npreparing\nno such package\n";
    let signal = report.signals.get_mut(&SignalKind::WarmUpFailed).unwrap();
    signal.detail = detail.to_owned();
    let text = CheckFailure::WarmUpFailed.told(Some(&report));
    assert_eq!(text, "its warm-up failed: pre-runner: exit status 3: no such package");
    assert_eq!(CheckFailure::WarmUpFailed.told(None), CheckFailure::WarmUpFailed.as_str());
    assert_eq!(CheckFailure::Silent.told(Some(&report)), CheckFailure::Silent.as_str());
    let signal = report.signals.get_mut(&SignalKind::WarmUpFailed).unwrap();
    signal.detail = format!("pre-runner\n\u{1b}[31m{}", "x".repeat(1_000));
    let text = CheckFailure::WarmUpFailed.told(Some(&report));
    assert!(text.chars().count() == TOLD_CHARS_MAX && !text.contains('\u{1b}'), "{text}");
}

#[test]
fn only_what_did_not_start_or_warm_up_is_certain_to_register_nothing() {
    let all = [
        (CheckFailure::NotStarted, false),
        (CheckFailure::WarmUpFailed, false),
        (CheckFailure::NotWarm, true),
        (CheckFailure::NotAcknowledged, true),
        (CheckFailure::NotRegistered, true),
        (CheckFailure::RegistrationFailed, true),
        (CheckFailure::Silent, true),
    ];
    for (failure, may) in all {
        assert_eq!(failure.may_register(), may, "{failure:?}");
    }
}
