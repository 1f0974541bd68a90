//! Tests of `provision`: the request's id, the number of machines, and their class.
//!
//! Not here: wrong numbers (`numbers`).

use std::time::Duration;

use bullpen_core::class::{RunnerClass, Usage};
use bullpen_core::config::{Config, runs_on};
use bullpen_core::request::{OnPartial, TypePattern};

use super::*;
use crate::inputs::classes::Machine;

const WORKFLOW: &[(&str, &str)] = &[
    ("GITHUB_RUN_ID", "4711"),
    ("GITHUB_RUN_ATTEMPT", "2"),
    ("GITHUB_JOB", "Provision"),
    ("GITHUB_ACTION", "__self"),
];

fn request(flags: &[&str], pairs: &[(&str, &str)]) -> String {
    provision(flags, pairs).unwrap().request.to_string()
}

fn machine(flags: &[&str], config: Option<&Config>) -> Result<Machine, String> {
    let inputs = provision(flags, &[])?;
    inputs.machine.machine(config).map_err(|error| error.to_string())
}

fn file(text: &str) -> Config {
    let (config, findings) = runs_on::read(text.as_bytes()).into_parts();
    config.unwrap_or_else(|| panic!("{findings:?}"))
}

#[test]
fn the_defaults_are_the_documented_ones() {
    let inputs = provision(&[], &[]).unwrap();
    assert_eq!(inputs.request.as_str(), "local.1.fresh");
    assert!(!inputs.ephemeral);
    assert_eq!((inputs.count, inputs.on_partial), (1, OnPartial::TopUp));
    assert_eq!((inputs.max_runtime, inputs.deadline), (None, None));
    assert!(!inputs.on_demand_fallback);
    let machine = inputs.machine.machine(None).unwrap();
    assert_eq!((machine.class.name.as_str(), machine.usage), ("large", Usage::OnDemand));
    let types: Vec<_> = machine.allowed_types.iter().map(TypePattern::as_str).collect();
    assert_eq!(types, ["c*", "m*", "r*"]);
}

#[test]
fn d32_two_steps_of_one_run_have_two_requests_and_two_labels() {
    let other = [&WORKFLOW[..3], &[("GITHUB_ACTION", "__self_2")]].concat();
    assert_eq!(request(&[], WORKFLOW), "4711.2.provision-__self");
    assert_eq!(request(&[], &other), "4711.2.provision-__self_2");
    assert_eq!(request(&["--name", "Spot_x64"], WORKFLOW), "4711.2.spot_x64");
    // GitHub ignores the case of labels, so names ignore it too.
    assert_eq!(request(&["--name", "spot_X64"], WORKFLOW), "4711.2.spot_x64");
}

#[test]
fn a_request_is_named_whole_or_by_its_parts() {
    assert_eq!(request(&["--request", "7.1.Build"], WORKFLOW), "7.1.build");
    assert_eq!(request(&["--run-id", "9.3"], WORKFLOW), "9.3.provision-__self");
    assert_eq!(request(&["--run-id", "local.1", "--name", "a"], &[]), "local.1.a");
    assert_eq!(request(&[], &[("INPUT_REQUEST", "7.1.a"), ("INPUT_NAME", "b")]), "7.1.a");
    assert_eq!(request(&["--name", "b"], &[("INPUT_REQUEST", "7.1.a")]), "local.1.b");
    assert_eq!(request(&[], &[("GITHUB_RUN_ID", "5")]), "5.1.fresh");
    assert_eq!(request(&[], &[("GITHUB_ACTION", "__own/er.act")]), "local.1.__own-er-act");
    assert!(provision(&["--request", "7.1.a", "--name", "b"], &[]).is_err());
}

#[test]
fn a_wrong_identity_is_refused() {
    let long = "n".repeat(129);
    for wrong in ["", " ", "a.b", "a b", "ä", "a/b", "a,b", long.as_str()] {
        let error = provision(&["--name", wrong], &[]).unwrap_err();
        assert!(error.starts_with("--name: ") && error.contains("letters, digits"), "{error}");
    }
    for wrong in ["", "4711", "4711.", ".1", "4711.0", "4711.x", "4711.-1", "4711.1.2", "a b.1"] {
        let error = provision(&["--run-id", wrong], &[]).unwrap_err();
        assert_eq!(
            error,
            format!("--run-id: {wrong:?} is not a run attempt as RUN.ATTEMPT, such as 4711.1")
        );
    }
    for wrong in ["", "4711.1", "4711.1.", "x", "4711.1.a.b", "..", "4711.0.a", "warm-1.1.a"] {
        let error = provision(&["--request", wrong], &[]).unwrap_err();
        assert!(error.ends_with("RUN.ATTEMPT.NAME, such as 4711.1.build"), "{error}");
    }
    let error = provision(&[], &[("GITHUB_RUN_ID", "1"), ("GITHUB_RUN_ATTEMPT", "0")]).unwrap_err();
    assert!(error.starts_with("GITHUB_RUN_ATTEMPT: \"0\""), "{error}");
    let error =
        provision(&[], &[("GITHUB_RUN_ID", "a b"), ("GITHUB_RUN_ATTEMPT", "1")]).unwrap_err();
    assert!(error.starts_with("GITHUB_RUN_ID: \"a b\""), "{error}");
    let error = provision(&[], &[("GITHUB_JOB", &long)]).unwrap_err();
    assert_eq!(error, "GITHUB_JOB: job and step are too long for a name; give --name");
}

#[test]
fn a_flag_wins_over_its_variable_under_either_of_its_two_names() {
    let both = [("INPUT_INSTANCE-COUNT", "2"), ("INPUT_INSTANCE_COUNT", "3"), ("INPUT_COUNT", "4")];
    let count = |flags: &[&str], pairs: &[(&str, &str)]| provision(flags, pairs).unwrap().count;
    assert_eq!(count(&["--instance-count", "9"], &both), 9);
    assert_eq!(count(&["--count", "9"], &both), 9);
    assert_eq!(count(&[], &both), 2);
    assert_eq!(count(&[], &both[1..]), 3);
    assert_eq!(count(&[], &both[2..]), 4);
    assert_eq!(count(&[], &[("INPUT_INSTANCE-COUNT", "")]), 1);
    assert!(provision(&["--instance-count", "1", "--count", "1"], &[]).is_err());
}

#[test]
fn usage_deadline_and_the_rest_are_read() {
    let flags = ["--usage-class", "spot", "--max-runtime-min", "90", "--deadline", "1h30m"];
    let more = ["--on-partial", "fail", "--on-demand-fallback"];
    let inputs = provision(&[&flags[..], &more[..]].concat(), &[]).unwrap();
    assert_eq!(inputs.machine.usage, Some(Usage::Spot));
    assert_eq!(inputs.max_runtime, Some(Duration::from_secs(5_400)));
    assert_eq!((inputs.on_partial, inputs.on_demand_fallback), (OnPartial::Fail, true));
    // D29: the user decides the deadline of a request.
    assert_eq!(inputs.deadline, Some(Duration::from_secs(5_400)));
    assert!(!provision(&["--on-demand-fallback=false"], &[]).unwrap().on_demand_fallback);
    for (flags, error) in [
        (
            ["--usage-class", "spott"],
            "--usage-class: \"spott\" is not spot or on-demand; did you mean \"spot\"?",
        ),
        (
            ["--usage-class", "ON-DEMAND"],
            "--usage-class: \"ON-DEMAND\" is not spot or on-demand; did you mean \"on-demand\"?",
        ),
        (["--usage-class", ""], "--usage-class: \"\" is not spot or on-demand"),
        (["--on-partial", "retry"], "--on-partial: \"retry\" is not top-up or fail"),
    ] {
        assert_eq!(provision(&flags, &[]).unwrap_err(), error);
    }
}

#[test]
fn types_are_split_at_white_space_and_at_commas() {
    let types = |text: &str| {
        let machine = machine(&["--allowed-instance-types", text], None)?;
        Ok(machine.allowed_types.iter().map(|p| p.as_str().to_owned()).collect::<Vec<_>>())
    };
    for text in ["c* m6i.large", "c*,m6i.large", " C*,\n\tm6i.large , "] {
        assert_eq!(types(text), Ok(vec!["c*".to_owned(), "m6i.large".to_owned()]));
    }
    for wrong in ["", " ", ",", "c?", "c[56]*", "c*;m*", "ä"] {
        let error: String = types(wrong).unwrap_err();
        assert!(error.starts_with("--allowed-instance-types: "), "{error}");
    }
    assert!(types(&"c* ".repeat(101)).is_err());
}

#[test]
fn a_class_is_known_from_the_file_or_the_table_or_by_default() {
    let class = |flags: &[&str], config| machine(flags, config).map(|machine| machine.class);
    let default = class(&["--resource-class", "2xlarge"], None).unwrap();
    assert_eq!(Some(&default), RunnerClass::defaults().get(2));
    let error = class(&["--resource-class", "2xlage"], None).unwrap_err();
    let known = "known: large, xlarge, 2xlarge, 4xlarge, 8xlarge, 12xlarge, 16xlarge";
    assert!(
        error.starts_with("--resource-class: \"2xlage\" is not a known class; did you mean")
            && error.contains("\"2xlarge\"")
            && error.contains(known),
        "{error}"
    );
    let table = ["--resource-class-config", r#"{"big":{"cpu":"32","mmem":65537}}"#];
    let big = class(&[&table[..], &["--resource-class", "big"]].concat(), None).unwrap();
    assert_eq!((big.vcpu.min, big.memory_mib_min), (32, 65_537));
    let error = class(&table, None).unwrap_err();
    assert_eq!(
        error,
        "--resource-class: \"large\", which is the default, is not a known class (known: big)"
    );
    let config =
        file("runners:\n  small:\n    cpu: 2\n    ram: 4\n    spot: true\n    family: [t3]\n");
    let small = machine(&["--resource-class", "small"], Some(&config)).unwrap();
    assert_eq!((small.class.vcpu.max, small.usage), (2, Usage::Spot));
    assert_eq!(small.allowed_types[0].as_str(), "t3*");
    let flags = [&table[..], &["--resource-class", "large"]].concat();
    let error = class(&flags, Some(&config)).unwrap_err();
    assert!(error.ends_with("(known: small, big)"), "{error}");
    let on_demand = ["--resource-class", "small", "--usage-class", "on-demand"];
    assert_eq!(machine(&on_demand, Some(&config)).unwrap().usage, Usage::OnDemand);
    assert!(class(&["--resource-class", ""], None).is_err());
}
