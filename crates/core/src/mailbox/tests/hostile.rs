//! Reports that no agent wrote: how they are read, what they prove, and how they are shown.
//!
//! Not here: stores that hold them (`bullpen_sim::contract`), or simulations with such machines.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::ids::Generation;
use crate::instance::Tier;
use crate::limits::{SIGNAL_DETAIL_BYTES_MAX, UNREADABLE_CHARS_MAX};
use crate::mailbox::{
    Exposed, RawReport, RemovalProof, Report, Signal, SignalKind, UnreadableReport,
    prove_unexposed, shown,
};
use crate::samples::{
    LIMITS, assigned, at, beat, claimed, drain, inbox, job_owner, record, request_owner, running,
    stop,
};
use crate::time::Timestamp;

fn report_of(kind: SignalKind, generation: u64) -> Report {
    let generation = Generation(generation);
    let signal = Signal { generation, owner: None, at: at(12), detail: String::new(), ran: None };
    Report { beat: None, signals: [(kind, signal)].into() }
}

/// A withdrawal of generation three is acknowledged by three, and by nothing later.
#[test]
fn a_generation_from_the_future_acknowledges_no_removal() {
    let orders = inbox([assigned(2), drain(3), stop(3)]);
    for future in [4, 5, 1_000, u64::MAX] {
        let report = report_of(SignalKind::Removed, future);
        let proof = prove_unexposed(Some(&orders), Some(&report), Generation(3), false);
        let (assigned, removed) = (Generation(2), Generation(0));
        assert_eq!(proof, Err(Exposed::Unacknowledged { assigned, removed }), "{future}");
    }
}

/// The job of generation two reports that two is removed: no runner listens, if that is true, but
/// the machine counts as used.
#[test]
fn a_machine_does_not_deny_that_it_was_assigned() {
    let orders = inbox([assigned(2), drain(3)]);
    let report = report_of(SignalKind::Removed, 2);
    let proof = prove_unexposed(Some(&orders), Some(&report), Generation(3), false);
    assert_eq!(proof.map(|proof| proof.removal()), Ok(RemovalProof::Acknowledged));
}

#[test]
fn what_is_said_to_happen_later_puts_nothing_off() {
    let (since, now, skew) = (at(1_000), at(500_000), LIMITS.clock_skew);
    let happened = |reported: Timestamp| {
        let signal = Signal {
            generation: Generation(1),
            owner: None,
            at: reported,
            detail: String::new(),
            ran: None,
        };
        signal.happened(since, now, skew)
    };
    assert_eq!(happened(at(400_000)), at(400_000));
    assert_eq!(happened(now.after(skew)), now.after(skew), "a clock may be ahead");
    for later in [now.after(skew + skew), "9999-12-30T00:00:00Z".parse().unwrap()] {
        assert_eq!(happened(later), since, "{later}");
    }
}

#[test]
fn a_generation_that_the_ledger_has_not_reached_says_nothing() {
    let record = record(running(job_owner()));
    let reached = record.generation.0;
    for kind in [
        SignalKind::Acknowledged,
        SignalKind::Registered,
        SignalKind::RegistrationFailed,
        SignalKind::JobStarted,
        SignalKind::ListenerEnded,
        SignalKind::Removed,
    ] {
        let believed = |generation| report_of(kind, generation).believed(&record).signals.len();
        assert_eq!((believed(reached), believed(reached + 1), believed(u64::MAX)), (1, 0, 0));
    }
}

#[test]
fn a_signal_for_another_owner_counts_for_nothing() {
    let record = record(claimed(job_owner(), Tier::Hot));
    let named = |owner| {
        let mut report = report_of(SignalKind::Registered, record.generation.0);
        let signal = report.signals.get_mut(&SignalKind::Registered).expect("it is there");
        signal.owner = owner;
        report.believed(&record).signal(SignalKind::Registered, record.generation).is_some()
    };
    assert!(named(Some(job_owner())));
    assert!(named(None), "older agents name no owner");
    assert!(!named(Some(request_owner())));
}

#[test]
fn a_beat_from_the_future_is_no_sign_of_life() {
    let stale = LIMITS.heartbeat_stale;
    let future = at(100).after(stale + std::time::Duration::from_millis(1));
    let report = Report { beat: Some(beat(u64::MAX, future)), ..Report::default() };
    assert!(!report.is_fresh(at(100), stale, None));
    assert!(!report.is_fresh(at(100), stale, report.beat.as_ref()), "it does not follow itself");
}

#[test]
fn what_is_shown_moves_no_cursor() {
    assert_eq!(
        shown("a b\u{1b}[2J\n\u{202e}c\u{200b}", 100),
        "a b\\u{1b}[2J\\u{a}\\u{202e}c\\u{200b}"
    );
    assert_eq!(shown("größer ☃", 100), "größer ☃");
    assert_eq!(shown(&"x".repeat(1_000), 7), "xxxxxxx");
}

fn hostile_text() -> impl Strategy<Value = String> {
    let near = r#"{"generation":2,"owner":null,"at":"2026-01-05T08:00:00Z","detail":"DETAIL"}"#;
    let beat = r#"{"seq":1,"at":"9999-01-01T00:00:00Z","phase":"busy","boot":"DETAIL"}"#;
    prop_oneof![
        any::<String>(),
        (select(vec![near, beat]), ".{0,80}").prop_map(|(text, put)| text.replace("DETAIL", &put)),
        (select(vec![near, beat]), 0..2 * SIGNAL_DETAIL_BYTES_MAX)
            .prop_map(|(text, long)| text.replace("DETAIL", &"x".repeat(long))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    /// Reading any stored text never panics: it gives a short plain reason, or a report that is
    /// bounded and believed no further than the ledger's generation.
    #[test]
    fn any_stored_report_is_bounded(
        beat in proptest::option::of(hostile_text()),
        signals in vec((select(vec!["UD_OK", "UD_REMOVE_REG_OK", "UD_REG_OK", "UD_\u{1b}"]), hostile_text()), 0..20),
    ) {
        let signals = signals.iter().map(|(kind, body)| (*kind, body.as_str())).collect();
        let record = record(running(job_owner()));
        match (RawReport { beat: beat.as_deref(), signals }).read() {
            Ok(report) => {
                for signal in report.signals.values() {
                    prop_assert!(signal.detail.len() <= SIGNAL_DETAIL_BYTES_MAX);
                }
                let believed = report.believed(&record);
                prop_assert!(believed.signals.values().all(|it| it.generation <= record.generation));
            }
            Err(why) => {
                let why = why.to_string();
                prop_assert!(why.chars().count() <= UNREADABLE_CHARS_MAX);
                prop_assert!(!why.chars().any(char::is_control));
            }
        }
    }

    /// A reported removal of a later generation proves no more than silence does.
    #[test]
    fn a_later_removal_proves_no_more_than_silence(
        generation in 1_u64..20, ahead in 1_u64..u64::MAX / 2, stopped: bool, first in 1_u64..20,
    ) {
        let orders = inbox([assigned(first.min(generation)), stop(generation.max(first))]);
        let report = report_of(SignalKind::Removed, generation.saturating_add(ahead));
        let of = Generation(generation);
        let loud = prove_unexposed(Some(&orders), Some(&report), of, stopped);
        prop_assert_eq!(loud, prove_unexposed(Some(&orders), None, of, stopped));
    }

    #[test]
    fn a_reason_is_one_short_line(text in any::<String>()) {
        let why = UnreadableReport::because(&text).to_string();
        prop_assert!(why.chars().count() <= UNREADABLE_CHARS_MAX);
        prop_assert!(!why.chars().any(char::is_control));
    }
}
