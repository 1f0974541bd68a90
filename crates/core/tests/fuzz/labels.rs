//! Fuzz tests of labels, times, days and zones.
//!
//! Not here: the meaning of readable texts (`labels::tests`, `schedule::tests`).

use bullpen_core::class::RunnerClass;
use bullpen_core::ids::{PoolName, Repository, RunAttempt};
use bullpen_core::labels::class::{Catalogue, resolve};
use bullpen_core::labels::policy::Policy;
use bullpen_core::labels::{self, LabelKey};
use bullpen_core::route::{Routing, route};
use bullpen_core::schedule::{TimeOfDay, Weekday, Zone};
use bullpen_core::scope::ServiceScope;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::fuzz;

/// A label of pieces in any order, most of them from the grammar.
fn label() -> impl Strategy<Value = String> {
    const PIECES: &[&str] = &[
        "runs-on",
        "bullpen",
        "runs-on-",
        "dependabot",
        "warm-",
        "=",
        "=",
        "=",
        "/",
        "/",
        ",",
        "+",
        ":",
        "-",
        ".",
        "*",
        "4",
        "0.5",
        "0",
        "65537",
        "99999999999",
        "gb",
        "mibps",
        "iops",
        "gp3",
        "c7a",
        "t3.large",
        "true",
        "false",
        "pco",
        "2cpu-linux-x64",
        "ubuntu24-full-arm64",
        "ami-0123456789abcdef0",
        "lazy-init",
        "s3-cache",
        "production",
        "ä",
        "\u{0}",
        " ",
        "🦀",
    ];
    let piece = prop_oneof![
        4 => select(PIECES).prop_map(str::to_owned),
        2 => select(LabelKey::ALL).prop_map(|key| format!("{key}=")),
        1 => select(LabelKey::ALL).prop_map(|key| format!("/{key}=")),
        1 => ".{0,8}",
    ];
    let made = vec(piece, 0..12).prop_map(|pieces| pieces.concat());
    prop_oneof![
        4 => made.clone().prop_map(|rest| format!("runs-on/{rest}")),
        4 => made,
        1 => vec(any::<char>(), 0..40).prop_map(String::from_iter),
        1 => ("[/,+:=-]", 0..2_000_usize).prop_map(|(text, times)| text.repeat(times)),
    ]
}

/// Reads the labels, checks that the settings can be written and read again, and routes the job.
fn read(labels: &[String]) -> Result<(), TestCaseError> {
    let parsed = labels::parse(labels);
    prop_assert!(parsed.findings.len() <= 65, "findings are bounded");
    for finding in &parsed.findings {
        let shown = finding.to_string();
        prop_assert!(shown.len() < 2_000, "a finding is short: {}", shown);
        prop_assert!(!shown.contains(char::is_control), "a finding is one line: {:?}", shown);
    }
    if parsed.ours && parsed.errors().next().is_none() {
        let written = parsed.spec.packed("runs-on");
        let again = labels::parse(&[&written]);
        let same = again.spec.packed("runs-on") == written;
        // A long list may make the written label longer than the maximum.
        prop_assert!(same || written.len() > labels::LABEL_BYTES_MAX, "{}", written);
    }
    let classes = Catalogue::of_classes(&RunnerClass::defaults());
    if let Ok(resolved) = resolve(&parsed.spec, &classes) {
        let class = resolved.class.class();
        prop_assert!(1 <= class.vcpu.min && class.vcpu.min <= class.vcpu.max);
    }
    let routing = Routing {
        scope: const { &ServiceScope::EVERYTHING },
        env: "production",
        region: "eu-west-1",
        pools: &[PoolName::new("c7a")].into(),
        broken: &[PoolName::new("m7i")].into(),
        classes: &classes,
        default_pool: None,
        policy: &Policy::default(),
        config_loaded: true,
    };
    let _ = route(labels, &Repository::new("acme/app"), &RunAttempt::new("1.1"), &routing);
    Ok(())
}

#[test]
fn random_labels_are_read_and_never_panic() {
    fuzz(&vec(label(), 0..8), |labels| read(&labels));
}

#[test]
fn crowds_of_labels_are_read_within_their_bounds() {
    fuzz(&(label(), 0..110_usize), |(label, times)| read(&vec![label; times]));
}

#[test]
fn random_times_days_and_zones_are_refused() {
    let text = prop_oneof![
        "[0-9:.h]{0,8}",
        "[A-Za-z/_]{0,20}",
        vec(any::<char>(), 0..40).prop_map(String::from_iter),
    ];
    fuzz(&text, |text| {
        if let Ok(time) = TimeOfDay::parse(&text) {
            prop_assert_eq!(time.to_string(), text.clone());
        }
        if let Ok(day) = Weekday::parse(&text) {
            prop_assert_eq!(day.as_str(), text.clone());
        }
        if let Ok(zone) = Zone::parse(&text) {
            prop_assert_eq!(zone.name(), text);
        }
        Ok(())
    });
}
