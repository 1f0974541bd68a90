//! When a machine is proven to have no listener, and when it is alive.
//!
//! Not here: how a withdrawal gets there (`orders`).

use std::time::Duration;

use crate::ids::Generation;
use crate::mailbox::{
    Beat, Exposed, Inbox, RemovalProof, Report, Signal, SignalKind, prove_unexposed,
};
use crate::samples::{LIMITS, assigned, at, beat, drain, inbox, stop};

const G3: Generation = Generation(3);

/// A report whose last acknowledged removal is this one.
fn removed(generation: u64) -> Report {
    let signal = Signal {
        generation: Generation(generation),
        owner: None,
        at: at(12),
        detail: String::new(),
        ran: None,
    };
    Report { beat: None, signals: [(SignalKind::Removed, signal)].into() }
}

fn removal(inbox: &Inbox, report: Option<&Report>, stopped: bool) -> Result<RemovalProof, Exposed> {
    let proof = prove_unexposed(Some(inbox), report, G3, stopped)?;
    assert_eq!(proof.generation(), G3);
    Ok(proof.removal())
}

#[test]
fn nothing_is_proven_before_the_withdrawal_of_that_very_release_is_stored() {
    let missing = Err(Exposed::NotWithdrawn { generation: G3 });
    for inbox in [
        None,
        Some(inbox([assigned(2)])),
        Some(inbox([stop(2)])),
        Some(inbox([assigned(3)])),
        Some(inbox([stop(4)])),
        Some(inbox([stop(3), assigned(4)])),
    ] {
        for stopped in [false, true] {
            let proof = prove_unexposed(inbox.as_ref(), Some(&removed(2)), G3, stopped);
            assert_eq!(proof, missing, "{inbox:?}");
        }
    }
}

#[test]
fn what_was_never_assigned_is_unexposed() {
    for order in [drain(3), stop(3)] {
        assert_eq!(removal(&inbox([order]), None, false), Ok(RemovalProof::NeverAssigned));
    }
}

#[test]
fn what_was_assigned_and_removed_before_is_unexposed() {
    let inbox = inbox([assigned(1), stop(2), stop(3)]);
    assert_eq!(removal(&inbox, Some(&removed(2)), false), Ok(RemovalProof::NeverAssigned));
}

#[test]
fn what_was_assigned_is_exposed_until_its_removal_is_acknowledged() {
    let inbox = inbox([assigned(2), drain(3), stop(3)]);
    let exposed = |removed| Exposed::Unacknowledged { assigned: Generation(2), removed };
    assert_eq!(removal(&inbox, None, false), Err(exposed(Generation(0))));
    assert_eq!(removal(&inbox, Some(&removed(1)), false), Err(exposed(Generation(1))));
    assert_eq!(removal(&inbox, Some(&removed(3)), false), Ok(RemovalProof::Acknowledged));
}

#[test]
fn an_acknowledged_drain_is_as_good_as_an_acknowledged_stop() {
    let inbox = inbox([assigned(2), drain(3)]);
    assert_eq!(removal(&inbox, Some(&removed(3)), false), Ok(RemovalProof::Acknowledged));
}

#[test]
fn a_machine_that_is_stopped_cannot_listen() {
    let inbox = inbox([assigned(2), stop(3)]);
    assert_eq!(removal(&inbox, None, true), Ok(RemovalProof::MachineStopped));
    let acknowledged = removal(&inbox, Some(&removed(3)), true);
    assert_eq!(acknowledged, Ok(RemovalProof::Acknowledged), "the stronger proof is preferred");
}

#[test]
fn exposure_is_the_same_for_every_later_withdrawal() {
    let first = inbox([assigned(2), stop(3)]);
    let second = Inbox::accept(Some(&first), stop(5)).unwrap();
    let proof = prove_unexposed(Some(&second), None, Generation(5), false);
    let (assigned, removed) = (Generation(2), Generation(0));
    assert_eq!(proof, Err(Exposed::Unacknowledged { assigned, removed }));
}

fn beating(seq: u64, seconds: u64) -> Report {
    Report { beat: Some(beat(seq, at(seconds))), signals: [].into() }
}

#[test]
fn a_beat_is_fresh_for_three_intervals_of_either_clock() {
    let fresh = |beat_at, now| beating(7, beat_at).is_fresh(at(now), LIMITS.heartbeat_stale, None);
    for (beat_at, now, expected) in
        [(100, 100, true), (100, 115, true), (100, 116, false), (115, 100, true), (116, 100, false)]
    {
        assert_eq!(fresh(beat_at, now), expected, "beat at {beat_at}, read at {now}");
    }
    let just_stale = at(115).after(Duration::from_millis(1));
    assert!(!beating(7, 100).is_fresh(just_stale, LIMITS.heartbeat_stale, None));
}

#[test]
fn a_beat_from_the_future_is_no_evidence_until_it_advances_while_watched() {
    let future = beating(7, 9_000);
    let fresh = |watched: Option<u64>| {
        let watched = watched.map(|seq| beat(seq, at(0)));
        future.is_fresh(at(100), LIMITS.heartbeat_stale, watched.as_ref())
    };
    assert!(!fresh(None));
    assert!(!fresh(Some(7)), "it stands still");
    assert!(!fresh(Some(8)));
    assert!(fresh(Some(6)), "it moved");
}

#[test]
fn a_new_boot_counts_from_the_beginning_and_is_still_news() {
    let rebooted = Beat { boot: "boot-2".into(), ..beat(1, at(9_000)) };
    assert!(rebooted.follows(&beat(7, at(8_000))));
    assert!(!beat(7, at(9_000)).follows(&beat(7, at(8_000))));
    let report = Report { beat: Some(rebooted), signals: [].into() };
    assert!(report.is_fresh(at(100), LIMITS.heartbeat_stale, Some(&beat(7, at(0)))));
}

#[test]
fn a_report_without_a_beat_is_never_fresh() {
    assert!(!Report::default().is_fresh(at(0), LIMITS.heartbeat_stale, None));
    assert!(!removed(3).is_fresh(at(12), LIMITS.heartbeat_stale, Some(&beat(0, at(0)))));
}

#[test]
fn a_signal_speaks_of_its_own_generation_only() {
    let report = removed(3);
    assert!(report.signal(SignalKind::Removed, Generation(3)).is_some());
    assert!(report.signal(SignalKind::Removed, Generation(2)).is_none());
    assert!(report.signal(SignalKind::Registered, Generation(3)).is_none());
    assert_eq!((report.removed(), Report::default().removed()), (Generation(3), Generation(0)));
}
