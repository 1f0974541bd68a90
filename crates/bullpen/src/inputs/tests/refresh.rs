//! Tests of `refresh`: the stored settings, the class table, and unused inputs.
//!
//! Not here: wrong numbers (`numbers`).

use std::time::Duration;

use super::*;

fn table(json: &str) -> Result<Vec<(String, u32, u32)>, String> {
    let inputs = refresh(&["--resource-class-config", json], &[])?;
    let classes = inputs.classes.unwrap_or_default();
    let triple = |class: &bullpen_core::class::RunnerClass| {
        (class.name.to_string(), class.vcpu.max, class.memory_mib_min)
    };
    Ok(classes.iter().map(triple).collect())
}

#[test]
fn nothing_given_stores_nothing() {
    let inputs = refresh(&[], &[]).unwrap();
    assert!(!inputs.dry_run && inputs.unused.is_empty());
    let durations = [inputs.idle_time, inputs.max_runtime, inputs.token_refresh];
    assert_eq!(durations, [None; 3]);
    assert_eq!(
        (inputs.pre_runner_script, inputs.classes, inputs.runner_version),
        (None, None, None)
    );
}

#[test]
fn given_inputs_are_read() {
    let flags = ["--dry-run", "--idle-time-sec", "300", "--max-runtime-min", "45"];
    let more = ["--github-reg-token-refresh-min", "59", "--actions-runner-version", "2.325.0"];
    let script = "#!/bin/sh\necho \"$(hostname)\"\n";
    let pairs = [("INPUT_PRE-RUNNER-SCRIPT", script)];
    let inputs = refresh(&[&flags[..], &more[..]].concat(), &pairs).unwrap();
    assert!(inputs.dry_run);
    assert_eq!(inputs.idle_time, Some(Duration::from_secs(300)));
    assert_eq!(inputs.max_runtime, Some(Duration::from_secs(2_700)));
    assert_eq!(inputs.token_refresh, Some(Duration::from_secs(3_540)));
    assert_eq!(inputs.runner_version.as_deref(), Some("2.325.0"));
    assert_eq!(inputs.pre_runner_script.as_deref(), Some(script));
    assert!(refresh(&[], &[("INPUT_DRY-RUN", "True")]).unwrap().dry_run);
    assert!(!refresh(&[], &[("INPUT_DRY_RUN", "false")]).unwrap().dry_run);
}

#[test]
fn wrong_versions_and_scripts_are_refused() {
    for wrong in ["", "2", "2.325", "v2.325.0", "2.325.0.1", "2..0", "latest", "2.325.x", "-1.2.3"]
    {
        let error = refresh(&["--actions-runner-version", wrong], &[]).unwrap_err();
        let legal = "is not a version such as 2.325.0";
        assert_eq!(error, format!("--actions-runner-version: {wrong:?} {legal}"));
    }
    let long = "x".repeat(16 * 1024 + 1);
    for wrong in ["", " \n", "a\0b", &long] {
        let error = refresh(&["--pre-runner-script", wrong], &[]).unwrap_err();
        assert!(error.starts_with("--pre-runner-script: ") && error.len() < 200, "{error}");
        assert_eq!(error.lines().count(), 1);
    }
}

#[test]
fn classes_of_equal_vcpu_or_of_less_memory_are_legal() {
    // An older rule wanted different vCPUs and growing memory, and so refused 4 vCPU with 8 and
    // with 32 GiB in one table.
    let json = r#"{"lean":{"cpu":4,"mmem":8192},"rich":{"cpu":"4","mmem":"32768"},"odd":{"cpu":8,"mmem":4096}}"#;
    let expected = [("lean", 4, 8_192), ("rich", 4, 32_768), ("odd", 8, 4_096)];
    let expected: Vec<_> = expected.map(|(name, c, m)| (name.to_owned(), c, m)).into();
    assert_eq!(table(json), Ok(expected));
}

#[test]
fn a_wrong_table_names_the_class_and_the_key() {
    let cpu = "is not a whole number from 1 to 4096";
    for (json, error) in [
        (r#"{"a":{"cpu":0,"mmem":1}}"#, format!("class \"a\": cpu: 0 {cpu}")),
        (r#"{"a":{"cpu":-1,"mmem":1}}"#, format!("class \"a\": cpu: -1 {cpu}")),
        (r#"{"a":{"cpu":2.5,"mmem":1}}"#, format!("class \"a\": cpu: 2.5 {cpu}")),
        (r#"{"a":{"cpu":1e3,"mmem":1}}"#, format!("class \"a\": cpu: 1000.0 {cpu}")),
        (r#"{"a":{"cpu":"NaN","mmem":1}}"#, format!("class \"a\": cpu: \"NaN\" {cpu}")),
        (r#"{"a":{"cpu":"","mmem":1}}"#, format!("class \"a\": cpu: \"\" {cpu}")),
        (r#"{"a":{"cpu":true,"mmem":1}}"#, format!("class \"a\": cpu: true {cpu}")),
        (r#"{"a":{"cpu":null,"mmem":1}}"#, format!("class \"a\": cpu: null {cpu}")),
        (r#"{"a":{"cpu":4294967296,"mmem":1}}"#, format!("class \"a\": cpu: 4294967296 {cpu}")),
        (
            r#"{"a":{"cpu":1}}"#,
            "class \"a\": mmem is missing; it must be a whole number from 1 to 134217728".into(),
        ),
        (
            r#"{"a":{"cpu":1,"mem":1}}"#,
            "class \"a\": there is no key \"mem\"; the keys are cpu and mmem; did you mean \"mmem\"?"
                .into(),
        ),
        (r#"{"a":[1]}"#, "class \"a\": it must be an object with cpu and mmem".into()),
        (
            r#"{"a b":{"cpu":1,"mmem":1}}"#,
            "class \"a b\": a name is made of letters, digits, `.`, `_`, `-`".into(),
        ),
        (
            r#"{"a":{"cpu":1,"mmem":1},"a":{"cpu":2,"mmem":2}}"#,
            "class \"a\" is there twice".into(),
        ),
        ("{}", "has 0 classes; there must be from 1 to 100".into()),
    ] {
        assert_eq!(table(json).unwrap_err(), format!("--resource-class-config: {error}"));
    }
    for wrong in ["", " ", "[]", "large", "{", "{\"a\":{\"cpu\":1,\"mmem\":1}} x", "null"] {
        let error = table(wrong).unwrap_err();
        assert!(error.contains("is not a JSON object of classes such as"), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn the_aws_inputs_are_accepted_and_reported_as_unused() {
    let flags = ["--ami", "ami-1", "--subnet-ids", "a b"];
    let pairs = [("INPUT_SECURITY-GROUP-IDS", "sg-1\nsg-2\n"), ("INPUT_AWS_REGION", "us-east-1")];
    let inputs = refresh(&flags, &pairs).unwrap();
    let places = ["--ami", "INPUT_SECURITY-GROUP-IDS", "--subnet-ids", "INPUT_AWS_REGION"];
    assert_eq!(inputs.unused, places);
    let error = refresh(&["--iam-instance-profile", " "], &[]).unwrap_err();
    assert_eq!(error, "--iam-instance-profile: \" \" is not a name or an id");
}
