//! Tests: the documented defaults are the real ones, and environment variables override the file.
//!
//! Not here: the findings for wrong files (`tests/lint`).

use super::*;

fn environment(variables: &[(&str, &str)]) -> BTreeMap<String, String> {
    variables.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

fn messages(text: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let read = read(text.as_bytes(), &environment(variables));
    read.findings().iter().map(ToString::to_string).collect()
}

fn value(text: &str, variables: &[(&str, &str)]) -> Stack {
    let (value, findings) = read(text.as_bytes(), &environment(variables)).into_parts();
    value.unwrap_or_else(|| panic!("{findings:?}"))
}

#[test]
fn the_shipped_defaults_are_what_an_empty_file_means() {
    let (shipped, findings) = read(DEFAULTS.as_bytes(), &BTreeMap::new()).into_parts();
    assert_eq!(findings, []);
    let shipped = shipped.unwrap();
    assert_eq!(shipped, value("", &[]));
    assert_eq!(shipped.limits, Limits::DEFAULT);
}

#[test]
fn the_shipped_defaults_show_every_key() {
    for (section, shape) in SECTIONS {
        let start = DEFAULTS.find(&format!("\n[{section}]\n")).expect(section);
        let part = &DEFAULTS[start + 1..];
        let part = &part[..part.find("\n[").unwrap_or(part.len())];
        for key in shape.keys {
            let shown = |line: &str| {
                let line = line.trim_start_matches("# ");
                line.strip_prefix(key.name).is_some_and(|rest| rest.starts_with(" = "))
            };
            assert!(part.lines().any(shown), "[{section}] {}", key.name);
        }
    }
}

#[test]
fn the_commented_examples_of_the_defaults_are_readable() {
    let mut text = String::new();
    for line in DEFAULTS.lines() {
        let bare = line.trim_start_matches("# ");
        let is_key = |key: &str| !key.is_empty() && !key.contains(' ');
        let example = bare.split_once(" = ").is_some_and(|(key, _)| is_key(key));
        let is_second_credential = bare.starts_with("token = ");
        text.push_str(if example && !is_second_credential { bare } else { line });
        text.push('\n');
    }
    let stack = value(&text, &[]);
    assert_eq!(stack.aws.region.as_deref(), Some("eu-west-1"));
    assert_eq!(stack.ceilings.stack, Some(100));
    assert_eq!(stack.process_fleet.out_of.len(), 1);
    assert_eq!((stack.instance.agents.len(), stack.instance.runners.len()), (2, 2));
    assert!(matches!(stack.github.credential, Some(GithubCredential::App { id: 12345, .. })));
}

#[test]
fn the_environment_has_the_last_word() {
    let file = "[stack]\nname = \"file\"\n[aws]\nsubnets = [\"subnet-1\"]\n";
    let stack = value(
        file,
        &[
            ("BULLPEN_STACK_NAME", "123"),
            ("BULLPEN_AWS_SUBNETS", "subnet-2, subnet-3"),
            ("BULLPEN_CEILINGS_STACK", "7"),
            ("BULLPEN_PROCESS_FLEET_OUT_OF", "spot/c6i.large/local-a,spot/c6i.large/local-b"),
            ("BULLPEN_PROCESS_FLEET_BOOT_DELAY", "1ms"),
            ("BULLPEN_INSTANCE_SUDO", "false"),
            ("BULLPEN_INSTANCE_METADATA_HOPS", "2"),
            ("BULLPEN_LIMITS_IDLE_RELEASED", "9m"),
            ("BULLPEN_GITHUB_TOKEN", "env:TOKEN"),
            ("BULLPEN_BLESS", "1"),
            ("PATH", "/bin"),
        ],
    );
    assert_eq!(stack.name, "123");
    assert_eq!(stack.aws.subnets, ["subnet-2", "subnet-3"]);
    assert_eq!(stack.ceilings.stack, Some(7));
    assert_eq!(stack.process_fleet.out_of.len(), 2);
    assert_eq!((stack.instance.sudo, stack.instance.metadata_hops), (false, 2));
    assert_eq!(stack.process_fleet.boot_delay, std::time::Duration::from_millis(1));
    assert_eq!(stack.limits.idle_released, std::time::Duration::from_secs(540));
    let token = SecretRef::Env("TOKEN".to_owned());
    assert_eq!(stack.github.credential, Some(GithubCredential::Token(token)));
}

#[test]
fn a_wrong_variable_is_named_and_a_secret_in_one_is_not_shown() {
    let messages = messages(
        "",
        &[
            ("BULLPEN_AWS_REGIO", "eu-west-1"),
            ("BULLPEN_CEILINGS_STACK", "-1"),
            ("BULLPEN_GITHUB_TOKEN", "ghp_secret"),
        ],
    );
    assert_eq!(
        messages,
        [
            "0:0: error: BULLPEN_GITHUB_TOKEN: `token` must say where the secret is; the value is not shown; \
             write `env:NAME`, `file:/path`, or the ARN of a parameter or secret [literal-secret]",
            "0:0: error: BULLPEN_AWS_REGIO: there is no such key in `[aws]`; did you mean `REGION`? [unknown-key]",
            "0:0: error: BULLPEN_CEILINGS_STACK: `stack` must be a whole number, 0 or more, not `-1` [wrong-type]",
        ]
    );
}

#[test]
fn who_may_not_become_root_may_not_use_docker_unless_told_so() {
    let of = |text: &str| {
        let instance = value(&format!("[instance]\n{text}"), &[]).instance;
        (instance.sudo, instance.docker)
    };
    assert_eq!(of(""), (true, true));
    assert_eq!(of("sudo = false\n"), (false, false));
    assert_eq!(of("sudo = false\ndocker = true\n"), (false, true));
    assert_eq!(of("docker = false\n"), (true, false));
}

#[test]
fn metadata_are_closed_and_prices_protected_unless_told_otherwise() {
    let instance = value("", &[]).instance;
    assert_eq!((instance.metadata_open, instance.price_protection), (false, 100));
    let chosen =
        value("[instance]\nmetadata = \"open\"\nprice-protection = 999999\n", &[]).instance;
    assert_eq!((chosen.metadata_open, chosen.price_protection), (true, 999_999));
    let wrong = messages("[instance]\nmetadata = \"opne\"\n", &[]);
    assert!(
        wrong[0].contains("`metadata` must be one of `closed`, `open`, not `opne`"),
        "{wrong:?}"
    );
}

#[test]
fn an_instance_fetches_only_what_has_a_checksum() {
    let sum = "0A".repeat(32);
    let text = format!(
        "[instance]\nagent-arm64 = \"s3://b/agent\"\nagent-arm64-sha256 = \"{sum}\"\n\
         runner-dir = \"/home/r/\"\n"
    );
    let stack = value(&text, &[]);
    let agent = &stack.instance.agents[&Architecture::Arm64];
    assert_eq!((agent.url.as_str(), agent.sha256.as_str()), ("s3://b/agent", &*"0a".repeat(32)));
    assert_eq!((stack.instance.agents.len(), stack.instance.runner_dir.as_str()), (1, "/home/r"));
    let without = messages("[instance]\nrunner-x64 = \"https://example.com/r.tar.gz\"\n", &[]);
    let expected = "2:1: error: `runner-x64` needs `runner-x64-sha256` beside it [missing-key]";
    assert_eq!(without, [expected]);
}
