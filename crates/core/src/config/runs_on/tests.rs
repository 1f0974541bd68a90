//! Tests: an error in one pool does not affect other pools.
//!
//! Not here: the findings' texts (`tests/lint`), or generated pools (`tests/fuzz`).

use super::super::stack;
use super::*;

const RUNNERS: &str = "
runners:
  small: {cpu: 2, ram: 4}
  winner: {image: windows22-full-x64}
";
const SCHEDULE: &str = "schedule: [{name: default, hot: 2, stopped: 1}]";

/// A file with these pools and these `x-bullpen` keys for them, one per line.
fn file(pools: &[&str], ours: &[&str]) -> String {
    let (pools, ours) = (pools.join("\n    "), ours.join("\n    "));
    format!("{RUNNERS}pools:\n    {pools}\nx-bullpen:\n  pools:\n    {ours}\n")
}

fn good(name: &str) -> String {
    format!("{name}: {{runner: small, {SCHEDULE}}}")
}

/// The names of the pools that were read, and of the broken ones; `None` if the file is refused.
fn read_and_broken(text: &str) -> Option<(Vec<String>, Vec<String>)> {
    let read = read(text.as_bytes());
    let config = read.value()?;
    let names =
        |names: &mut dyn Iterator<Item = &PoolName>| names.map(ToString::to_string).collect();
    Some((names(&mut config.pools.keys()), names(&mut config.broken.iter())))
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

#[test]
fn what_is_wrong_inside_a_pool_breaks_that_pool_alone() {
    let fine = good("a");
    for (bad, ours) in [
        ("b: {runner: smal, schedule: []}", "a: {}"),
        ("b: {schedule: []}", "a: {}"),
        ("b: {runner: small, schedule: [{name: default, hot: 2, stopped: 2}]}", "b: {max: 3}"),
        ("b: {runner: small, schedule: [{name: default, hot: many, stopped: 2}]}", "a: {}"),
        ("b: {runner: small, timezone: Pari, schedule: []}", "a: {}"),
        ("b: {runner: small, scedule: []}", "a: {}"),
        ("b: {runner: small, runner: small, schedule: []}", "a: {}"),
        ("b: {runner: !mine small, schedule: []}", "a: {}"),
        ("b: {<<: 3, runner: small, schedule: []}", "a: {}"),
        ("b: 7", "a: {}"),
        ("b: {runner: small, schedule: []}", "b: {rollout: slow}"),
        ("b: {runner: small, schedule: []}", "b: {max: 3, max: 4}"),
        ("b: {runner: small, schedule: []}", "b: [max]"),
    ] {
        let pools = read_and_broken(&file(&[&fine, bad], &[ours]));
        assert_eq!(pools, Some((names(&["a"]), names(&["b"]))), "{bad} {ours}");
    }
    let pools = read_and_broken(&file(&[&fine, "B!: {runner: small, schedule: []}"], &["a: {}"]));
    assert_eq!(pools, Some((names(&["a"]), names(&["B!"]))));
}

#[test]
fn what_is_wrong_outside_of_single_pools_refuses_the_file() {
    let (fine, other) = (good("a"), good("b"));
    for text in [
        file(&[&fine, &fine], &["a: {}"]),
        file(&[&fine, "runner: small"], &["a: {}"]),
        // The pool that this entry was meant for would go on without its ceiling.
        file(&[&fine, &other], &["bb: {max: 3}"]),
        file(&[&fine, &other], &["a: {max: 3}", "a: {max: 4}"]),
        file(&[&fine, &other], &["a: {}"]).replace("cpu: 2", "cpu: two"),
        format!("x-mine: {{k: 1, k: 2}}\n{}", file(&[&fine, &other], &["a: {}"])),
        format!("x-mine: &mine {{k: !mine 1}}\n{}", file(&[&fine, "b: *mine"], &["a: {}"])),
    ] {
        assert_eq!(read_and_broken(&text), None, "{text}");
    }
}

#[test]
fn what_pools_share_breaks_all_of_them() {
    let shared = "a: {runner: small, schedule: &s [{name: default, name: x, hot: 2, stopped: 1}]}";
    let merged = "b: &b {env: !mine x, runner: small}";
    for (bad, with) in
        [(shared, "b: {runner: small, schedule: *s}"), (merged, "a: {<<: *b, env: y}")]
    {
        let text = file(&[bad, with, &good("c")], &["c: {}"]);
        assert_eq!(read_and_broken(&text), Some((names(&["c"]), names(&["a", "b"]))), "{text}");
    }
}

fn config(text: &str) -> Config {
    let (config, findings) = read(text.as_bytes()).into_parts();
    config.unwrap_or_else(|| panic!("{findings:?}"))
}

#[test]
fn a_broken_pool_stays_as_it_was() {
    let before = config(&file(&[&good("a"), &good("b")], &["b: {max: 9}"]));
    let broken = "b: {runner: smal, schedule: []}";
    let now = file(&[broken, "c: 7"], &["b: {max: 1}"]);
    let kept = config(&now).keeping(&before);
    let pools: Vec<&str> = kept.pools.keys().map(PoolName::as_str).collect();
    assert_eq!(pools, ["b"], "a is no longer in the file, and c never was a pool");
    assert_eq!(kept.pools[&PoolName::new("b")], before.pools[&PoolName::new("b")]);
    assert_eq!(kept.broken, BTreeSet::from([PoolName::new("c")]));
    assert_eq!(config(&now).keeping(&kept), kept, "keeping it again changes nothing");
}

#[test]
fn a_broken_pool_does_not_stay_on_a_runner_that_is_none_for_it() {
    let before = config(&file(&[&good("b")], &["b: {}"]));
    let now = file(&["b: {runner: smal, schedule: []}"], &["b: {}"]);
    for runner in ["smaller: {cpu: 2, ram: 4}", "small: {image: windows22-full-x64}"] {
        let kept = config(&now.replace("small: {cpu: 2, ram: 4}", runner)).keeping(&before);
        assert_eq!((kept.pools.len(), kept.broken.len()), (0, 1), "{runner}");
    }
}

/// RunsOn accepts such a file: its other pools are kept, and the jobs of this one start cold.
#[test]
fn a_pool_of_windows_machines_keeps_none_and_breaks_nothing() {
    let text = file(&[&good("a"), &format!("w: {{runner: winner, {SCHEDULE}}}")], &["w: {}"]);
    let kept = config(&text);
    assert!(kept.broken.is_empty());
    let entries = |name: &str| kept.pools[&PoolName::new(name)].schedule.entries.len();
    assert_eq!((entries("a"), entries("w")), (1, 0));
}

#[test]
fn a_target_above_a_ceiling_of_its_stack_is_said_and_kept_as_far_as_it_can_be() {
    let said = |ceilings: &str| -> Vec<String> {
        let toml = format!("[stack]\nenv = \"production\"\n[ceilings]\n{ceilings}\n");
        let (stack, findings) = stack::read(toml.as_bytes(), &BTreeMap::new()).into_parts();
        let stack = stack.unwrap_or_else(|| panic!("{findings:?}"));
        let other = "b: {runner: small, env: dev, schedule: [{name: default, hot: 9, stopped: 9}]}";
        let text = file(&[&good("a"), other], &["a: {}"]);
        let (config, findings) = read_beside(text.as_bytes(), &[stack]).into_parts();
        assert_eq!(config.map(|config| config.pools.len()), Some(2), "{findings:?}");
        findings.iter().map(|finding| finding.message.clone()).collect()
    };
    let above = |what: &str| {
        vec![format!(
            "2 hot and 1 stopped are more than the ceiling of the {what}, 2, and are never kept"
        )]
    };
    assert_eq!(said("stack = 2"), above("stack"));
    assert_eq!(said("classes = { small = 2 }"), above("class small"));
    assert_eq!(said("pools = { a = 2 }"), above("pool a"));
    assert_eq!(
        said("stack = 3\nclasses = { small = 3, large = 1 }\npools = { a = 3, b = 1 }"),
        [""; 0]
    );
}
