//! Tests of the common inputs: the state directory, the engine, and GitHub's credential.
//!
//! Not here: the commands' own inputs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bullpen_core::mailbox::Secret;

use super::*;
use crate::inputs::github::{AppKey, Scope};

const KEY: &str = "-----BEGIN RSA PRIVATE KEY-----\nc2VjcmV0\n-----END RSA PRIVATE KEY-----\n";

#[test]
fn the_state_is_in_the_given_directory_or_in_the_data_directory() {
    let state = |flags: &[&str], pairs: &[(&str, &str)]| stack_inputs(flags, pairs).unwrap().state;
    let xdg = ("XDG_DATA_HOME", "/data");
    let own = ("BULLPEN_STATE", "own");
    assert_eq!(state(&[], &[]), Path::new("/home/me/.local/share/bullpen"));
    assert_eq!(state(&[], &[xdg]), Path::new("/data/bullpen"));
    assert_eq!(
        state(&[], &[("XDG_DATA_HOME", "data")]),
        Path::new("/home/me/.local/share/bullpen")
    );
    assert_eq!(state(&[], &[xdg, own]), Path::new("own"));
    assert_eq!(state(&[], &[xdg, own, ("INPUT_STATE", "input")]), Path::new("input"));
    assert_eq!(state(&["--state", "flag"], &[own, ("INPUT_STATE", "input")]), Path::new("flag"));
    let nowhere = stack_inputs(&[], &[("HOME", "")]).unwrap_err();
    assert!(nowhere.starts_with("--state: not given"), "{nowhere}");
    for wrong in ["", " ", "a\nb"] {
        let error = stack_inputs(&["--state", wrong], &[]).unwrap_err();
        assert_eq!(error, format!("--state: {wrong:?} is not a path"));
    }
}

#[test]
fn only_engines_and_fleets_of_this_build_can_be_chosen() {
    assert!(stack_inputs(&["--engine", "embedded", "--fleet", "process"], &[]).is_ok());
    assert_eq!(stack_inputs(&[], &[]).unwrap().fleet, Fleet::Process);
    let error = stack_inputs(&[], &[("INPUT_FLEET", "ec2")]).unwrap_err();
    assert!(error.starts_with("INPUT_FLEET: "), "{error}");
    let error = stack_inputs(&["--engine", "embeded"], &[]).unwrap_err();
    assert!(error.ends_with("did you mean \"embedded\"?"), "{error}");
}

#[cfg(not(feature = "aws"))]
#[test]
fn a_build_without_aws_says_so() {
    for (flags, error) in [
        (["--engine", "aws"], "--engine: \"aws\" is not in this build; use embedded"),
        (["--fleet", "ec2"], "--fleet: \"ec2\" is not in this build; use process"),
        (["--fleet", ""], "--fleet: \"\" is not process, the only one in this build"),
    ] {
        assert_eq!(stack_inputs(&flags, &[]).unwrap_err(), error);
    }
}

#[cfg(feature = "aws")]
#[test]
fn a_build_with_aws_has_both_engines() {
    let read = |flags: &[&str]| stack_inputs(flags, &[]).map(|read| (read.engine, read.fleet));
    assert_eq!(read(&["--engine", "aws"]), Ok((Engine::Aws, Fleet::Ec2)));
    assert_eq!(read(&["--engine", "aws", "--fleet", "process"]), Ok((Engine::Aws, Fleet::Process)));
    let error = read(&["--fleet", "ec2"]).unwrap_err();
    assert_eq!(
        error,
        "--fleet: \"ec2\" needs --engine aws: instances cannot reach the files of this machine"
    );
    let error = stack_inputs(&["--engine", "gcp"], &[]).unwrap_err();
    assert_eq!(error, "--engine: \"gcp\" is not embedded or aws");
}

#[test]
fn a_repository_or_an_organisation() {
    let scope = |text: &str| common(&["--repository", text], &[]).map(|common| common.github.scope);
    assert_eq!(scope("me/my.repo"), Ok(Some(Scope::Repository("me/my.repo".into()))));
    assert_eq!(scope("my-org"), Ok(Some(Scope::Organisation("my-org".into()))));
    for wrong in ["", " ", "/", "a/", "/b", "a/b/c", "a b", "a/..", "ä", "https://github.com/a/b"]
    {
        let legal = "is not a repository as OWNER/NAME, or an organisation";
        assert_eq!(scope(wrong), Err(format!("--repository: {wrong:?} {legal}")));
    }
    let from_workflow = common(&[], &[("GITHUB_REPOSITORY", "a/b")]).unwrap().github.scope;
    assert_eq!(from_workflow, Some(Scope::Repository("a/b".into())));
}

#[test]
fn addresses_are_https_or_this_machine() {
    let api = |text: &str| common(&["--api-url", text], &[]).map(|common| common.github.api_url);
    let defaults = common(&[], &[]).unwrap().github;
    assert_eq!(defaults.api_url, "https://api.github.com");
    assert_eq!(defaults.server_url, "https://github.com");
    assert_eq!(api("https://ghe.example/api/v3/").as_deref(), Ok("https://ghe.example/api/v3"));
    for local in
        ["http://127.0.0.1:8080", "http://localhost:1", "http://[::1]:80", "http://localhost"]
    {
        assert_eq!(api(local).as_deref(), Ok(local));
    }
    for wrong in [
        "",
        "ghe.example",
        "http://ghe.example",
        "ftp://x",
        "https://",
        "https://a b",
        "https://user:pw@x",
        "https://x?y",
        "http://localhost.evil.example",
        "http://127.0.0.1@x",
    ] {
        let error = api(wrong).unwrap_err();
        assert!(error.starts_with("--api-url: ") && error.contains("https address"), "{error}");
    }
    let server = common(&[], &[("GITHUB_SERVER_URL", "https://ghe.example")]).unwrap();
    assert_eq!(server.github.server_url, "https://ghe.example");
}

#[test]
fn a_token_or_an_app_and_never_the_workflows_own_token() {
    let credential =
        |flags: &[&str], pairs: &[(&str, &str)]| common(flags, pairs).map(|c| c.github.credential);
    let token = |text: &str| Ok(Some(Credential::Token(Secret::new(text))));
    let own = ("GITHUB_TOKEN", "ghs_own");
    assert_eq!(credential(&[], &[own]), Ok(None));
    assert_eq!(common(&[], &[own]).unwrap().github.run_reader, Some(Secret::new("ghs_own")));
    assert_eq!(credential(&[], &[own, ("INPUT_GITHUB-TOKEN", "pat\n")]), token("pat"));
    assert_eq!(credential(&[], &[own, ("INPUT_GITHUB_TOKEN", "pat")]), token("pat"));
    let file = Ok(Some(Credential::TokenFile(PathBuf::from("token"))));
    assert_eq!(credential(&["--github-token-file", "token"], &[]), file);
    assert_eq!(credential(&[], &[("INPUT_GITHUB_TOKEN_FILE", "token")]), file);
    let error = credential(&[], &[own, ("INPUT_GITHUB-TOKEN", "ghs_own")]).unwrap_err();
    assert!(error.contains("GITHUB_TOKEN, which cannot register") && !error.contains("ghs_own"));

    let app = |key| Ok(Some(Credential::App { id: 12, key }));
    let text = [("INPUT_APP-ID", "12"), ("INPUT_APP-KEY", KEY)];
    assert_eq!(credential(&[], &text), app(AppKey::Text(Secret::new(KEY.trim()))));
    let file = ["--app-id", "12", "--app-key", "key.pem"];
    assert_eq!(credential(&file, &[]), app(AppKey::File(PathBuf::from("key.pem"))));
    for flags in [
        &["--app-id", "12"][..],
        &["--app-key", "key.pem"],
        &["--github-token-file", "token", "--app-id", "12"],
        &["--github-token-file", "token", "--app-key", "key.pem"],
        &["--app-id", "0", "--app-key", "key.pem"],
        &["--app-id", "-1", "--app-key", "key.pem"],
        &["--app-id", "x", "--app-key", "key.pem"],
        &["--app-id", "99999999999999999999", "--app-key", "key.pem"],
        &["--app-id", "", "--app-key", "key.pem"],
        &["--app-id", "12", "--app-key", ""],
        &["--app-id", "12", "--app-key", KEY],
        &["--github-token-file", ""],
        &["--github-token-file", "s3cr3t\non two lines"],
    ] {
        let error = credential(flags, &[]).unwrap_err();
        assert!(error.starts_with("--") && error.lines().count() == 1, "{error}");
        assert!(!error.contains("s3cr3t") && !error.contains("c2VjcmV0"), "{error}");
    }
    let both = [("INPUT_GITHUB_TOKEN", "s3cr3t"), ("INPUT_GITHUB_TOKEN_FILE", "token")];
    let error = credential(&[], &both).unwrap_err();
    assert_eq!(
        error,
        "INPUT_GITHUB_TOKEN: INPUT_GITHUB_TOKEN_FILE is given as well; give one of them"
    );
}

#[test]
fn no_argument_holds_a_secret() {
    let all = [flags::<CommonArgs>(), flags::<ProvisionArgs>(), flags::<RefreshArgs>()];
    for flag in all.iter().chain([&flags::<ReleaseArgs>()]).flatten() {
        assert!(flag != "github-token", "every user can read arguments");
    }
    let error = common(&["--app-id", "1", "--app-key", KEY], &[]).unwrap_err();
    assert!(error.starts_with("--app-key: other users of this machine can read"), "{error}");
    assert!(error.contains("path of a file") && error.contains("INPUT_APP-KEY"), "{error}");
}

#[test]
fn no_secret_is_in_an_error_or_in_debug_output() {
    let lost_its_first_line = format!("s3cr3t\n{KEY}");
    for (name, value) in [
        ("INPUT_GITHUB-TOKEN", "s3cr3t two"),
        ("INPUT_GITHUB-TOKEN", "s3cr3tä"),
        ("INPUT_APP-KEY", lost_its_first_line.as_str()),
    ] {
        let error = common(&[], &[(name, value), ("INPUT_APP-ID", "1")]).unwrap_err();
        assert!(!error.contains("s3cr3t"), "{error}");
        let error = common(&[], &[(name, value)]).unwrap_err();
        assert!(!error.contains("s3cr3t"), "{error}");
    }
    let flags = ["--app-id", "1", "--app-key", "-----BEGIN s3cr3t"];
    let pairs = [("INPUT_GITHUB_TOKEN", "s3cr3t")];
    let printed = format!("{:?}{:?}", args::<CommonArgs>(&flags), common(&[], &pairs));
    assert!(!printed.contains("s3cr3t"), "{printed}");
}

#[test]
fn d29_the_numbers_of_the_stack_are_the_users() {
    let inputs = stack_inputs(&[], &[]).unwrap();
    let stack = |pairs: &[(&str, &str)]| files::stack(&inputs, &variables(pairs));
    assert_eq!(stack(&[]).unwrap().limits.fleet_validation, Duration::from_secs(180));
    let longer = stack(&[("BULLPEN_LIMITS_FLEET_VALIDATION", "8m")]).unwrap();
    assert_eq!(longer.limits.fleet_validation, Duration::from_secs(480));
    let error = stack(&[("BULLPEN_LIMITS_FLEET_VALIDATION", "8 m")]).unwrap_err().to_string();
    assert!(error.contains("BULLPEN_LIMITS_FLEET_VALIDATION"), "{error}");
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("key.pem");
    let missing = files::app_key(&AppKey::File(key.clone())).unwrap_err().to_string();
    assert!(missing.contains("key.pem"), "{missing}");
    std::fs::write(&key, KEY).unwrap();
    assert_eq!(files::app_key(&AppKey::File(key)).unwrap(), Secret::new(KEY.trim()));
    let other = directory.path().join("other");
    std::fs::write(&other, "s3cr3t, not a key").unwrap();
    let error = files::app_key(&AppKey::File(other)).unwrap_err().to_string();
    assert!(error.ends_with("other is not a key in PEM") && !error.contains("s3cr3t"), "{error}");
    let token = directory.path().join("token");
    let missing = files::token(&token).unwrap_err().to_string();
    assert!(missing.contains("could not read") && missing.contains("token"), "{missing}");
    std::fs::write(&token, "pat\n").unwrap();
    assert_eq!(files::token(&token).unwrap(), Secret::new("pat"));
    std::fs::write(&token, "s3cr3t and more").unwrap();
    let error = files::token(&token).unwrap_err().to_string();
    assert!(error.contains("is not one word") && !error.contains("s3cr3t"), "{error}");
    let inputs =
        stack_inputs(&["--config", "/no/such.yml", "--stack", "/no/such.toml"], &[]).unwrap();
    assert!(files::config(&inputs).unwrap_err().to_string().contains("/no/such.yml"));
    let error = files::stack(&inputs, &Environment::new()).unwrap_err().to_string();
    assert!(error.contains("/no/such.toml"), "{error}");
}

/// The inputs about GitHub, completed by `bullpen.toml`.
fn completed(toml: &str, flags: &[&str], pairs: &[(&str, &str)]) -> Result<GithubInputs, String> {
    let environment = variables(pairs);
    let (stack, findings) =
        bullpen_core::config::stack::read(toml.as_bytes(), &environment).into_parts();
    let github = stack.unwrap_or_else(|| panic!("{findings:?}")).github;
    let given = common(flags, pairs)?.github;
    given.completed_by(&github, &environment).map_err(|error| error.to_string())
}

#[test]
fn bullpen_toml_fills_absent_inputs() {
    let app = "[github]\nurl = \"https://ghe.example\"\napp-id = 7\nprivate-key = \"env:KEY\"\n\
               more-apps = { 8 = \"env:KEY\" }\n";
    let github = completed(app, &[], &[("KEY", KEY)]).unwrap();
    assert_eq!(github.api_url, "https://ghe.example/api/v3");
    assert_eq!(github.server_url, "https://ghe.example");
    let key = Secret::new(KEY.trim());
    let as_app = Credential::App { id: 7, key: AppKey::Text(key.clone()) };
    assert_eq!(github.credential, Some(as_app));
    assert_eq!(github.more_apps, [(8, key.clone())]);
    assert_eq!(github.secrets(), [&key, &key]);

    // A given input wins, and the secret that the file names is not read.
    let given = ["--api-url", "https://other.example/api/v3"];
    let github = completed(app, &given, &[("INPUT_GITHUB_TOKEN", "pat")]).unwrap();
    assert_eq!(github.api_url, "https://other.example/api/v3");
    assert_eq!(github.credential, Some(Credential::Token(Secret::new("pat"))));

    let error = completed(app, &[], &[]).unwrap_err();
    assert_eq!(error, "github.private-key: the variable KEY is not set");
    let token = |place: &str| format!("[github]\ntoken = \"{place}\"\n");
    let error = completed(&token("env:EMPTY"), &[], &[("EMPTY", " ")]).unwrap_err();
    assert_eq!(error, "github.token: env:EMPTY is empty");
    let error = completed(&token("file:/no/such"), &[], &[]).unwrap_err();
    assert!(error.starts_with("could not read /no/such"), "{error}");
    let arn = "arn:aws:ssm:eu-west-1:123456789012:parameter/bullpen/token";
    let error = completed(&token(arn), &[], &[]).unwrap_err();
    assert!(error.contains("hand it in as env:NAME or file:/path"), "{error}");
}
