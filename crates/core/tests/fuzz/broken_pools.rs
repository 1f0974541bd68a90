//! Fuzz tests of one broken pool: its content must not change the rest of the configuration.
//!
//! Not here: text that is not YAML (`configuration`), where the end of a pool is unknown.

use bullpen_core::config::runs_on;
use bullpen_core::config::{Config, ConfigRead};
use bullpen_core::ids::PoolName;
use bullpen_core::severity::Severity;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::fuzz;

/// The configuration; each `ANY` is replaced by random YAML.
const FILE: &str = "
runners:
  small: {cpu: 2, ram: 4}
  winner: {image: windows22-full-x64}
pools:
  before: {runner: small, timezone: Europe/Paris, schedule: [{name: default, hot: 2, stopped: 1}]}
  victim: ANY
  after: &after
    runner: small
    env: dev
    schedule:
      - {name: night, hot: 0, stopped: 3, match: {time: [\"22:00\", \"06:00\"]}}
      - {name: default, hot: 4, stopped: 0}
x-bullpen:
  default-pool: victim
  pools:
    before: {max: 3, share: true}
    victim: ANY
    after: {rollout: rolling, hot-lifetime: 6h}
";

const KEYS: &[&str] = &[
    "runner",
    "env",
    "environment",
    "timezone",
    "version",
    "schedule",
    "name",
    "hot",
    "stopped",
    "match",
    "day",
    "time",
    "max",
    "rollout",
    "hot-lifetime",
    "share",
    "spot",
    "slo",
    "<<",
    "x",
    "[a]",
    "!mine runner",
];
const SCALARS: &[&str] = &[
    "small",
    "winner",
    "smal",
    "~",
    "true",
    "0",
    "3",
    "-1",
    "4294967296",
    "1e9",
    "\"22:00\"",
    "monday",
    "Europe/Paris",
    "Paris",
    "rolling",
    "7m",
    "\"\"",
    "!mine 3",
    "!!str 3",
    "é",
    "\"\\0\"",
    "&a 1",
];
const WELL: &[&str] = &[
    "{runner: small, schedule: [{name: default, hot: 1, stopped: 0}]}",
    "{runner: winner, schedule: [{name: default, hot: 1, stopped: 0}]}",
    "{runner: small, schedule: [{name: default, hot: 9, stopped: 0}]}",
    "{runner: small, runner: small}",
    "{<<: 3, runner: small}",
    "{max: 3}",
    "{max: 3, max: 4}",
];

/// A random YAML value in one line.
fn anything() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![3 => select(SCALARS).prop_map(str::to_owned), 1 => "[a-z0-9]{1,8}"];
    let nested = leaf.prop_recursive(4, 24, 5, |inner| {
        let pair = (select(KEYS), inner.clone()).prop_map(|(key, value)| format!("{key}: {value}"));
        prop_oneof![
            vec(inner, 0..4).prop_map(|items| format!("[{}]", items.join(", "))),
            vec(pair, 0..6).prop_map(|pairs| format!("{{{}}}", pairs.join(", "))),
        ]
    });
    prop_oneof![3 => nested, 1 => select(WELL).prop_map(str::to_owned)]
}

fn read(pool: &str, ours: &str) -> ConfigRead<Config> {
    let file = FILE.replacen("ANY", pool, 1).replacen("ANY", ours, 1);
    runs_on::read(file.as_bytes())
}

fn without(victim: &PoolName, config: &Config) -> Config {
    let mut rest = config.clone();
    rest.pools.remove(victim);
    rest.broken.remove(victim);
    rest
}

#[test]
fn any_content_of_one_pool_leaves_the_rest_unchanged() {
    let victim = PoolName::new("victim");
    let sound = read("{runner: small, schedule: []}", "{}");
    let rest = without(&victim, sound.value().expect("no error"));
    assert_eq!(rest.pools.len(), 2);
    fuzz(&(anything(), anything()), |(pool, ours)| {
        let read = read(&pool, &ours);
        let errors = read.findings().iter().filter(|found| found.severity == Severity::Error);
        let config = read.value();
        prop_assert!(config.is_some(), "{:?}", read.findings());
        let config = config.expect("asserted above");
        prop_assert_eq!(&without(&victim, config), &rest);
        prop_assert_eq!(config.broken.contains(&victim), errors.count() > 0);
        prop_assert_ne!(config.broken.contains(&victim), config.pools.contains_key(&victim));
        Ok(())
    });
}

#[test]
fn the_property_has_both_kinds_of_pool_to_look_at() {
    let kinds: Vec<bool> = WELL
        .iter()
        .map(|pool| read(pool, "{}").value().expect("a value").broken.is_empty())
        .collect();
    assert_eq!(kinds, [true, true, true, false, false, false, false]);
}
