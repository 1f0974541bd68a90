//! Fuzz tests: arbitrary bytes, damaged fixtures, and arbitrary values written and read back.
//!
//! No text from outside may make the program panic or hang, and a written value must read back as
//! the same value. The gate runs a fixed number of cases from a fixed seed, a few seconds;
//! `BULLPEN_FUZZ_FACTOR=1000 cargo test --release -p bullpen-core --test fuzz` runs more of them.
//!
//! Not here: the meaning of readable texts (`fixtures`).

mod arbitrary;
mod broken_pools;
mod configuration;
mod damage;
mod labels;

use std::cell::Cell;
use std::fmt::Debug;
use std::time::Duration;

use bullpen_core::ids::InstanceType;
use bullpen_core::mailbox::wire;
use bullpen_core::message::{self, Decoded};
use bullpen_core::request::TypePattern;
use bullpen_core::time::Timestamp;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};

/// The number of cases per test in the gate.
const CASES: u32 = 3_000;

#[expect(clippy::disallowed_methods, reason = "the caller chooses the number of cases")]
fn factor() -> u32 {
    std::env::var("BULLPEN_FUZZ_FACTOR").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Runs a property on [`CASES`] values, times the factor.
fn fuzz<S: Strategy>(values: &S, check: impl Fn(S::Value) -> Result<(), TestCaseError>)
where
    S::Value: Debug,
{
    let config = Config {
        cases: CASES.saturating_mul(factor()),
        rng_seed: RngSeed::Fixed(20_260_101),
        failure_persistence: None,
        ..Config::default()
    };
    TestRunner::new(config).run(values, check).unwrap_or_else(|error| panic!("{error}"));
}

/// Reads this text with every reader.
fn read_all(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(Decoded::Advert(advert)) = message::decode(&text) {
        let again = message::decode(&message::encode(&advert)).expect("our own text");
        assert_eq!(again, Decoded::Advert(advert), "written and read again");
    }
    if let Ok(inbox) = wire::decode_inbox(bytes) {
        let again = wire::decode_inbox(wire::encode_inbox(&inbox).as_bytes()).expect("our own");
        assert_eq!(again, inbox);
    }
    if let Ok(report) = wire::decode_report(bytes) {
        let again = wire::decode_report(wire::encode_report(&report).as_bytes()).expect("our own");
        assert_eq!(again, report);
    }
    read_instant(&text);
}

fn read_instant(text: &str) {
    match text.parse::<Timestamp>() {
        Ok(at) => assert_eq!(at.to_string().parse(), Ok(at), "{text:?} reads as {at}"),
        Err(error) => assert!(error.text.chars().count() <= 64, "an error is short"),
    }
}

#[test]
fn arbitrary_bytes_are_refused_and_never_panic() {
    fuzz(&proptest::collection::vec(any::<u8>(), 0..256), |bytes| {
        read_all(&bytes);
        Ok(())
    });
}

#[test]
fn arbitrary_json_is_refused_and_never_panics() {
    fuzz(&arbitrary::json(), |text| {
        read_all(text.as_bytes());
        Ok(())
    });
}

#[test]
fn damaged_fixtures_are_read_or_refused_and_never_panic() {
    let still_readable = Cell::new(0_u32);
    fuzz(&damage::damaged_fixture(), |bytes| {
        read_all(&bytes);
        let is_message = message::decode(&String::from_utf8_lossy(&bytes)).is_ok();
        still_readable.set(still_readable.get() + u32::from(is_message));
        Ok(())
    });
    assert!(still_readable.get() > CASES / 100, "too few damaged fixtures are still readable");
}

#[test]
fn deep_nesting_is_refused_and_does_not_exhaust_the_stack() {
    for (open, close) in [("[", "]"), ("{\"v\":", "}"), ("{\"record\":", "}"), ("{\"x\":[", "]}")] {
        for depth in [1, 64, 127, 128, 129, 1_000, 5_000] {
            read_all([open.repeat(depth), close.repeat(depth)].concat().as_bytes());
            read_all(open.repeat(depth).as_bytes());
        }
    }
}

#[test]
fn texts_of_any_length_are_refused_before_they_are_parsed() {
    for bytes in [16 * 1024, 16 * 1024 + 1, 64 * 1024, 64 * 1024 + 1, 4 * 1024 * 1024] {
        read_all(&vec![b'['; bytes]);
        let padded = format!("{{\"v\":1,\"record\":null,\"pad\":\"{}\"}}", "x".repeat(bytes));
        read_all(padded.as_bytes());
    }
}

#[test]
fn every_message_reads_back_as_it_was_written() {
    fuzz(&arbitrary::advert(), |advert| {
        let read = message::decode(&message::encode(&advert)).expect("our own text");
        prop_assert_eq!(read, Decoded::Advert(advert));
        Ok(())
    });
}

#[test]
fn every_inbox_reads_back_as_it_was_written() {
    fuzz(&arbitrary::inbox(), |inbox| {
        let read = wire::decode_inbox(wire::encode_inbox(&inbox).as_bytes()).expect("our own");
        prop_assert_eq!(read, inbox);
        Ok(())
    });
}

#[test]
fn every_report_reads_back_as_it_was_written() {
    fuzz(&arbitrary::report(), |report| {
        let read = wire::decode_report(wire::encode_report(&report).as_bytes()).expect("our own");
        prop_assert_eq!(read, report);
        Ok(())
    });
}

#[test]
fn every_instant_reads_back_as_it_was_written() {
    fuzz(&any::<i64>(), |millis| {
        let at = Timestamp::from_millis(millis);
        prop_assert_eq!(at.to_string().parse(), Ok(at));
        let wait = Duration::from_millis(millis.unsigned_abs());
        prop_assert!(at.before(wait) <= at && at <= at.after(wait));
        Ok(())
    });
}

#[test]
fn texts_that_look_like_instants_are_read_or_refused() {
    let looks_like =
        "[0-9+-]{1,6}-[0-9]{1,2}-[0-9]{1,2}[Tt ][0-9:]{0,9}(\\.[0-9]{0,12})?[Zz+-]?[0-9:]{0,6}";
    fuzz(&looks_like, |text| {
        read_instant(&text);
        Ok(())
    });
}

#[test]
fn a_pattern_matches_any_type_or_does_not_and_never_hangs() {
    fuzz(&(".{0,24}", ".{0,24}"), |(pattern, text)| {
        let instance_type = InstanceType::new(&text);
        let _ = TypePattern::new(&pattern).matches(&instance_type);
        prop_assert!(TypePattern::new("*").matches(&instance_type));
        let literal = text.replace('*', "");
        prop_assert!(TypePattern::new(&literal).matches(&InstanceType::new(&literal)));
        Ok(())
    });
    let (pattern, text) = ("*a".repeat(1_000), "a".repeat(999) + "b");
    assert!(!TypePattern::new(&pattern).matches(&InstanceType::new(text)), "the worst case ends");
}
