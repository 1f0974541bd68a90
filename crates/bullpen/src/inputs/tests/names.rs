//! Tests that every flag is an input, and that `action.yml` and its page have exactly the inputs
//! and outputs of the command.
//!
//! Not here: running the action (`tests/action.rs`).

use std::collections::BTreeSet;

use super::*;
use crate::inputs::outputs;

const ACTION: &str = include_str!("../../../../../action.yml");
const PAGE: &str = include_str!("../../../../../docs/action.md");
/// Inputs that only the action has.
const OF_THE_ACTION: [&str; 2] = ["mode", "bullpen-path"];
/// Flags that the action lacks: a step has outputs in place of `json`, and `count` is a second
/// name.
const NOT_OF_THE_ACTION: [&str; 2] = ["json", "count"];

/// Inputs without a flag, because every user of a machine can read arguments.
const NO_FLAGS: [&str; 1] = ["github-token"];

/// The keys that stand two spaces deep under a top-level key.
fn keys_under(section: &str) -> BTreeSet<String> {
    let lines = ACTION.lines().skip_while(|line| *line != format!("{section}:")).skip(1);
    let inside = lines.take_while(|line| line.is_empty() || line.starts_with(' '));
    let keys = inside.filter_map(|line| line.strip_prefix("  ")?.strip_suffix(':'));
    keys.filter(|key| !key.starts_with([' ', '#'])).map(str::to_owned).collect()
}

#[test]
fn every_flag_is_read_from_its_variable_too() {
    type Outcome = fn(&[(&str, &str)]) -> String;
    let commands: [(BTreeSet<String>, Outcome); 5] = [
        (flags::<ProvisionArgs>(), |pairs| format!("{:?}", super::provision(&[], pairs))),
        (flags::<ReleaseArgs>(), |pairs| format!("{:?}", super::release(&["--name", "a"], pairs))),
        (flags::<RefreshArgs>(), |pairs| format!("{:?}", super::refresh(&[], pairs))),
        (flags::<StackArgs>(), |pairs| format!("{:?}", stack_inputs(&[], pairs))),
        (flags::<CommonArgs>(), |pairs| format!("{:?}", super::common(&[], pairs))),
    ];
    for (flags, outcome) in commands {
        assert!(flags.len() >= 6);
        // `release --name` does not read these two variables.
        for flag in flags.iter().filter(|flag| !["request", "name"].contains(&flag.as_str())) {
            let variable = format!("INPUT_{}", flag.to_uppercase());
            for spelling in [variable.clone(), variable.replace('-', "_")] {
                let read = ["true", "zz.9"].map(|value| outcome(&[(&spelling, value)]));
                assert!(read.iter().any(|read| *read != outcome(&[])), "{spelling} is not read");
            }
        }
    }
}

#[test]
fn the_action_has_every_input_of_the_command_and_no_other() {
    let mut expected = flags::<ProvisionArgs>();
    expected.extend(flags::<ReleaseArgs>());
    expected.extend(flags::<RefreshArgs>());
    expected.retain(|flag| !NOT_OF_THE_ACTION.contains(&flag.as_str()));
    expected.extend(OF_THE_ACTION.map(str::to_owned));
    expected.extend(NO_FLAGS.map(str::to_owned));
    assert_eq!(keys_under("inputs"), expected);
    for input in &expected {
        assert!(PAGE.contains(&format!("| `{input}` |")), "docs/action.md lacks {input}");
    }
    for input in expected.iter().filter(|input| !OF_THE_ACTION.contains(&input.as_str())) {
        let variable = input.replace('-', "_").to_uppercase();
        let line = format!("INPUT_{variable}: ${{{{ inputs.{input} }}}}");
        assert!(ACTION.contains(&line), "action.yml should pass on: {line}");
    }
}

#[test]
fn the_action_has_every_output_of_the_command_and_no_other() {
    let expected: BTreeSet<String> = outputs::NAMES.map(str::to_owned).into();
    assert_eq!(keys_under("outputs"), expected);
    for output in outputs::NAMES {
        let line = format!("value: ${{{{ steps.bullpen.outputs.{output} }}}}");
        assert!(ACTION.contains(&line), "action.yml should map: {line}");
        assert!(PAGE.contains(&format!("| `{output}` |")), "docs/action.md lacks {output}");
    }
}

#[test]
fn the_actions_script_has_no_input_in_its_text() {
    // A script runs the text that GitHub interpolates into it.
    let script = ACTION.split("      run: |").nth(1).expect("a script");
    assert!(!script.contains("${{"), "{script}");
}
